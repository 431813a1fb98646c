//! Jobs of which a rank is killed: who it is, who was told, and how the others part.
//!
//! Every rank prints `ready RANK PID` when it is there, and every survivor `lost RANK VICTIM`, and
//! what else it wishes, when it is told.

use std::thread;

use hydrant::{Job, Rank, Result, Signal, Symmetric};
use hydrant_testing::{
    roles,
    running::{Running, fields},
};
use libtest_mimic::Trial;
use rustix::process::Pid;

/// Those that differ in what is under way when a rank is lost.
const STRATEGIES: [&str; 4] = ["bounce", "firehose", "rendezvous-unpin", "on-demand"];

/// Tests that kill a rank under each strategy, in so many rounds as `HYDRANT_TEST_ROUNDS` says.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn under_every_strategy(kill_one: fn(&str, u32)) -> Vec<Trial> {
    let rounds = std::env::var("HYDRANT_TEST_ROUNDS").map_or(2, |rounds| {
        rounds.parse().expect("HYDRANT_TEST_ROUNDS is a number")
    });
    let test = |strategy: &'static str| {
        let name = format!("under_{}", strategy.replace('-', "_"));
        roles::test(name, move || {
            (0..rounds).for_each(|round| kill_one(strategy, round));
        })
    };
    STRATEGIES.map(test).into()
}

/// Waits until all ranks of a job are there: their processes, by rank.
pub(crate) fn ready(job: &mut Running, ranks: u32) -> Vec<Pid> {
    let lines = job.expect("ready", ranks as usize);
    let pid = |rank: u32| {
        let line = lines.iter().find(|line| line[0] == rank.to_string());
        line.and_then(|line| Pid::from_raw(line[1].parse().ok()?))
    };
    (0..ranks)
        .map(|rank| pid(rank).expect("every rank is ready"))
        .collect()
}

/// Fails the test unless every survivor was told, of the victim and nobody else: the words of
/// each after `lost`.
pub(crate) fn all_told(printed: &[String], ranks: u32, victim: u32) -> Vec<Vec<String>> {
    let told: Vec<_> = (printed.iter())
        .filter_map(|line| fields(line, "lost"))
        .collect();
    let all = printed.join("\n");
    assert_eq!(
        told.len() as u32,
        ranks - 1,
        "not every survivor was told of a loss:\n{all}"
    );
    for rank in &told {
        assert_eq!(
            rank[1],
            victim.to_string(),
            "rank {} was told of another:\n{all}",
            rank[0]
        );
    }
    told
}

/// Comes back when all but the one that was lost are here: nobody takes its memory away before
/// all have done what they wanted with it. `done` has a word for each rank.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn part(job: &Job, done: &Symmetric<u64>, lost: Rank) -> Result<()> {
    let survivors = || job.ranks().filter(|rank| *rank != lost);
    for rank in survivors() {
        done.signal(rank, job.rank().index(), Signal::Set(1))?;
    }
    let here = done.local()?;
    for rank in survivors() {
        while here.load(rank.index())? == 0 {
            job.poll();
            thread::yield_now();
        }
    }
    Ok(())
}
