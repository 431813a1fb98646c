//! A rank killed by SIGKILL while all put to each other and get from each other as fast as they
//! can, where memory must be registered, by every strategy: each survivor hears which rank was
//! lost, in mid-operation or at the next, and the job ends.
//!
//! `HYDRANT_TEST_ROUNDS` kills that many ranks by each strategy.

#[path = "support/launcher.rs"]
mod launcher;
#[path = "support/running.rs"]
mod running;
mod support;

use std::{io::Write, process::ExitCode, thread, time::Duration};

use hydrant::{Error, GlobalPtr, Job, Rank, Result, Symmetric};
use running::{Running, fields};
use rustix::process::{Pid, Signal, kill_process};

const RANKS: u32 = 4;
const STRATEGIES: [&str; 4] = ["bounce", "firehose", "rendezvous-unpin", "on-demand"];
/// Elements of what each rank has for the others, symmetric or exposed.
const ELEMENTS: usize = 1 << 18;

fn main() -> ExitCode {
    let rounds = std::env::var("HYDRANT_TEST_ROUNDS").map_or(3, |rounds| {
        rounds.parse().expect("HYDRANT_TEST_ROUNDS is a number")
    });
    let tests = STRATEGIES.map(|strategy| {
        support::test(format!("under_{}", strategy.replace('-', "_")), move || {
            (0..rounds).for_each(|round| kill_one(strategy, round));
        })
    });
    let role = |role: &str, arguments: &[String]| match role {
        "launch" => launcher::launch(arguments),
        _ => rank(),
    };
    support::main(role, tests.into())
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
    let ready = job.expect("ready", RANKS as usize);
    let pid = (ready.iter())
        .find(|rank| rank[0] == victim.to_string())
        .and_then(|rank| Pid::from_raw(rank[1].parse().ok()?))
        .expect("the victim is ready");
    thread::sleep(Duration::from_micros(u64::from(round * 7919 % 60_000)));
    let killed = running::now();
    kill_process(pid, Signal::KILL).expect("the victim is killed");
    let (_, printed) = job.end();
    let all = printed.join("\n");
    let told: Vec<_> = (printed.iter())
        .filter_map(|line| fields(line, "lost"))
        .collect();
    assert_eq!(
        told.len() as u32,
        RANKS - 1,
        "not every survivor was told:\n{all}"
    );
    // An operation with a survivor that gave up before names that one.
    assert!(
        told.iter().any(|rank| rank[1] == victim.to_string()),
        "nobody was told of the victim:\n{all}"
    );
    let after = running::now().saturating_sub(killed);
    println!("round {round}: rank {victim} was killed, the job ended after {after:?}");
}

fn rank() -> ExitCode {
    let builder = Job::builder()
        .expect("the settings are valid")
        .heap(16 << 20);
    let end = builder.run(|job| {
        let memory = job.alloc::<u64>(ELEMENTS)?;
        let pointers = job.alloc::<GlobalPtr<u64>>(job.size() as usize)?;
        let lent = job.expose(vec![0_u64; ELEMENTS])?;
        for rank in job.ranks() {
            pointers.put(rank, job.rank().index(), &[lent.pointer(0)?])?;
        }
        job.barrier()?;
        let pointers = pointers.local()?.to_vec();
        say(&format!("ready {} {}", job.rank(), std::process::id()));
        // The ends of all threads are awaited, as of all that a rank does.
        let end: Result<()> = thread::scope(|threads| {
            let other = threads.spawn(|| transfer(job, &memory, &pointers, 1));
            let end = transfer(job, &memory, &pointers, 2);
            end.and(other.join().expect("no panic"))
        });
        // Who heard of the loss before took its buffer back and ended.
        if let Err(Error::PeerLost(lost) | Error::Revoked { rank: lost }) = &end {
            say(&format!("lost {} {lost}", job.rank()));
        }
        end
    });
    match end {
        Err(Error::PeerLost(_) | Error::Revoked { .. }) | Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Puts and gets of all lengths, from and into memory that comes and goes, until one fails.
fn transfer(
    job: &Job,
    memory: &Symmetric<u64>,
    pointers: &[GlobalPtr<u64>],
    seed: u64,
) -> Result<()> {
    let mut state = seed + 10 * u64::from(job.rank().0);
    let mut draw = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    loop {
        let rank = Rank(draw(job.size() as usize) as u32);
        let len = 1 << draw(15);
        let index = draw(ELEMENTS - len);
        let mut data = vec![seed; len];
        let there = pointers[rank.index()];
        match draw(6) {
            0 => memory.put(rank, index, &data)?,
            1 => memory.get(rank, index, &mut data)?,
            2 => job.put_to(there, &data)?,
            3 => job.get_from(there, &mut data)?,
            4 => {
                let first = memory.put_nb(rank, index, data)?;
                let second = memory.get_nb(rank, index, len)?;
                first.wait()?;
                drop(second);
            }
            _ => job.scope(|s| {
                for _ in 0..4 {
                    s.put(memory, rank, index, &data)?;
                }
                Ok(())
            })?,
        }
    }
}

/// A whole line in one write, for the ranks share the pipe.
fn say(line: &str) {
    let _ = std::io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}
