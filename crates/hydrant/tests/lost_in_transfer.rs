//! A rank is killed by SIGKILL while all ranks put and get as fast as they can, where memory must
//! be registered, with every strategy. Each survivor hears which rank was lost, at once or at the
//! next operation. The survivors go on together, and the job ends.
//!
//! `HYDRANT_TEST_ROUNDS` sets the number of ranks killed with each strategy.

#[path = "support/killed.rs"]
mod killed;

use std::{process::ExitCode, thread, time::Duration};

use hydrant::{Error, GlobalPtr, Job, Rank, Result, Symmetric};
use hydrant_base::{Random, block_on};
use hydrant_testing::{
    launcher, roles,
    running::{self, Running, say},
};
use rustix::process;

const RANKS: u32 = 4;
/// Elements of each rank's symmetric memory, and of its exposed buffer.
const ELEMENTS: usize = 1 << 18;
/// Operations of a thread with the survivors after the loss.
const AFTERWARDS: usize = 20;

fn main() -> ExitCode {
    roles::main(|_, _| Some(rank()), killed::under_every_strategy(kill_one))
}

fn kill_one(strategy: &str, round: u32) {
    let mut command = launcher::command(RANKS, &["transfers"]);
    command.envs([
        ("HYDRANT_CONDUIT", "smp+pin"),
        ("HYDRANT_REGISTRATION", strategy),
        ("HYDRANT_M", ["1M", "64M"][round as usize % 2]),
    ]);
    let victim = round % RANKS;
    let mut job = Running::start(command);
    let pid = killed::ready(&mut job, RANKS)[victim as usize];
    thread::sleep(Duration::from_micros(u64::from(round * 7919 % 60_000)));
    let begun = running::now();
    process::kill_process(pid, process::Signal::KILL).expect("the victim is killed");
    let (_, printed) = job.end();
    killed::all_told(&printed, RANKS, victim);
    let after = running::now().saturating_sub(begun);
    println!("round {round}: rank {victim} was killed, the job ended after {after:?}");
}

fn rank() -> ExitCode {
    let builder = Job::builder()
        .expect("the settings are valid")
        .heap(16 << 20);
    let end = builder.run(|job| {
        let memory = job.alloc::<u64>(ELEMENTS)?;
        let pointers = job.alloc::<GlobalPtr<u64>>(job.size() as usize)?;
        let done = job.alloc::<u64>(job.size() as usize)?;
        let lent = job.expose(vec![0_u64; ELEMENTS])?;
        for rank in job.ranks() {
            pointers.put(rank, job.rank().index(), &[lent.pointer(0)?])?;
        }
        job.barrier()?;
        let there = Places {
            memory,
            pointers: pointers.local()?.to_vec(),
        };
        say(&format!("ready {} {}", job.rank(), std::process::id()));
        let lost = thread::scope(|threads| {
            let other = threads.spawn(|| transfer(job, &there, 1));
            transfer(job, &there, 2).and(other.join().expect("no panic"))
        })?;
        say(&format!("lost {} {lost}", job.rank()));
        killed::part(job, &done, lost)?;
        Err::<(), _>(Error::PeerLost(lost))
    });
    match end {
        Err(Error::PeerLost(_)) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error {error}"));
            ExitCode::FAILURE
        }
        Ok(()) => ExitCode::FAILURE,
    }
}

/// The memory that ranks put to and get from.
struct Places {
    memory: Symmetric<u64>,
    pointers: Vec<GlobalPtr<u64>>,
}

/// Puts and gets of all lengths, with memory that comes and goes, until a rank is lost, and then
/// some with the others. Returns the lost rank.
fn transfer(job: &Job, there: &Places, seed: u64) -> Result<Rank> {
    let mut random = Random::new(seed + 10 * u64::from(job.rank().0));
    let mut draw = |below| random.below(below);
    let mut lost = None;
    let mut left = AFTERWARDS;
    while left > 0 {
        let rank = Rank(draw(job.size() as usize) as u32);
        if lost == Some(rank) {
            continue;
        }
        left -= usize::from(lost.is_some());
        match one(job, there, rank, &mut draw) {
            Err(Error::PeerLost(peer)) if peer == rank && lost.is_none() => lost = Some(rank),
            outcome => outcome?,
        }
    }
    lost.ok_or_else(|| Error::other("nobody was lost"))
}

/// Does one or several puts and gets with one rank.
fn one(
    job: &Job,
    Places { memory, pointers }: &Places,
    rank: Rank,
    draw: &mut impl FnMut(usize) -> usize,
) -> Result<()> {
    let len = 1 << draw(15);
    let index = draw(ELEMENTS - len);
    let mut data = vec![7; len];
    let there = pointers[rank.index()];
    match draw(9) {
        0 => memory.put(rank, index, &data),
        1 => memory.get(rank, index, &mut data),
        2 => job.put_to(there, &data),
        3 => job.get_from(there, &mut data),
        4 => {
            let put = memory.put_nb(rank, index, data)?;
            let get = memory.get_nb(rank, index, len)?;
            put.wait()?;
            get.wait().map(drop)
        }
        5 => {
            let mut put = job.put_to_nb(there, data)?;
            while !put.test()? {}
            Ok(())
        }
        6 => block_on(job.get_from_nb(there, data)?).map(drop),
        7 => {
            let part = |at| memory.get_nb(rank, index + at, len - at);
            let parts = [0, len / 3, len / 2].map(part).into_iter();
            let parts = hydrant::when_all(parts.collect::<Result<Vec<_>>>()?);
            job.wait_for(parts)?
                .into_iter()
                .try_for_each(|part| part.map(drop))
        }
        _ => job.scope(|s| (0..4).try_for_each(|_| s.put(memory, rank, index, &data).map(drop))),
    }
}
