//! A rank killed by SIGKILL while many threads of each other rank have messages of the engine
//! queued to it: it was stopped before, so that there is no room for them, and hardly any access
//! finds its memory registered. Every operation with it ends with its loss, and those with others
//! go on and come out right.
//!
//! `HYDRANT_TEST_ROUNDS` kills that many ranks by each strategy.

#[path = "support/killed.rs"]
mod killed;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use hydrant::{Error, Job, Rank, Result, Symmetric};
use hydrant_testing::{
    launcher, roles,
    running::{self, Running, say},
};
use rustix::process::{Signal, kill_process};

const RANKS: u32 = 4;
/// Threads of a rank that access the victim, and those that access all others.
const STREAMS: usize = 6;
const EXCHANGES: usize = 2;
/// Operations that a thread has under way at once: together more than there is room for.
const BATCH: usize = 64;
/// Elements that each rank has for the others, many times what may be registered.
const ELEMENTS: usize = 1 << 20;
/// Elements of an operation with the victim: a page and more.
const LEN: usize = 600;
/// Rounds with the survivors after a thread heard of the loss.
const AFTERWARDS: usize = 20;

fn main() -> ExitCode {
    roles::main(
        |_, arguments| Some(rank(Rank(arguments[0].parse().expect("the victim")))),
        killed::under_every_strategy(kill_one),
    )
}

fn kill_one(strategy: &str, round: u32) {
    let victim = round % RANKS;
    let mut command = launcher::command(RANKS, &["queued", &victim.to_string()]);
    command.envs([
        ("HYDRANT_CONDUIT", "smp+pin"),
        ("HYDRANT_REGISTRATION", strategy),
        ("HYDRANT_M", "256K"),
        ("HYDRANT_MAXVICTIM", "64K"),
        // Room for less than firehoses can be asked for at a time.
        ("HYDRANT_RING_SLOTS", "8"),
    ]);
    let mut job = Running::start(command);
    let pid = killed::ready(&mut job, RANKS)[victim as usize];
    let wait = |most: u32| thread::sleep(Duration::from_micros((round * 7919 % most).into()));
    wait(20_000);
    kill_process(pid, Signal::STOP).expect("the victim is stopped");
    // Until messages wait, and a little longer, or perhaps not yet.
    if round % 2 == 1 {
        job.expect("stalled", 1);
    }
    wait(60_000);
    let begun = running::now();
    kill_process(pid, Signal::KILL).expect("the victim is killed");
    let (_, printed) = job.end();
    killed::all_told(&printed, RANKS, victim);
    let after = running::now().saturating_sub(begun);
    println!("round {round}: rank {victim} was killed, the job ended after {after:?}");
}

/// The role: `queued VICTIM`.
fn rank(victim: Rank) -> ExitCode {
    let builder = Job::builder()
        .expect("the settings are valid")
        .heap(16 << 20);
    let end = builder.run(|job| {
        let memory = job.alloc::<u64>(ELEMENTS)?;
        let done = job.alloc::<u64>(job.size() as usize)?;
        job.barrier()?;
        say(&format!("ready {} {}", job.rank(), std::process::id()));
        if job.rank() == victim {
            // Its service thread answers.
            thread::sleep(Duration::from_secs(3600));
        }
        let (memory, is_lost) = (&memory, &AtomicBool::new(false));
        thread::scope(|threads| {
            let mut all = Vec::new();
            for number in 0..STREAMS {
                all.push(threads.spawn(move || {
                    let end = stream(job, memory, victim, number);
                    is_lost.store(true, SeqCst);
                    end
                }));
            }
            threads.spawn(|| say_when_stalled(job, is_lost));
            for number in 0..EXCHANGES {
                all.push(threads.spawn(move || exchange(job, memory, victim, number, is_lost)));
            }
            let ends = all.into_iter().map(|it| it.join().expect("no panic"));
            ends.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
        })?;
        say(&format!("lost {} {victim}", job.rank()));
        killed::part(job, &done, victim)?;
        Err::<(), _>(Error::PeerLost(victim))
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

/// Says that messages of the engine have found no room, once they have, again and again: who waits
/// for that may have begun to listen late.
fn say_when_stalled(job: &Job, is_lost: &AtomicBool) {
    while !is_lost.load(SeqCst) {
        if job.counters().registration_stalls > 0 {
            say(&format!("stalled {}", job.rank()));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Puts to the victim and gets from it, many at once and each somewhere else, until it is lost:
/// every one of them either succeeded or says so.
fn stream(job: &Job, memory: &Symmetric<u64>, victim: Rank, number: usize) -> Result<()> {
    let mut at = (job.rank().index() * STREAMS + number) * 7919;
    let mut is_lost = false;
    loop {
        let (mut puts, mut gets) = (Vec::new(), Vec::new());
        for turn in 0..BATCH {
            at = (at + 104_729) % (ELEMENTS - LEN);
            let refused = match turn % 2 {
                0 => memory
                    .put_nb(victim, at, vec![at as u64; LEN])
                    .map(|it| puts.push(it))
                    .map_err(Error::from),
                _ => memory.get_nb(victim, at, LEN).map(|it| gets.push(it)),
            };
            is_lost |= is_loss(refused, victim)?;
        }
        for put in puts {
            is_lost |= is_loss(put.wait(), victim)?;
        }
        for get in gets {
            is_lost |= is_loss(get.wait(), victim)?;
        }
        if is_lost {
            return Ok(());
        }
    }
}

/// Whether an operation with the victim ended because that was lost; any other error is one.
fn is_loss<R>(end: Result<R>, victim: Rank) -> Result<bool> {
    match end {
        Err(Error::PeerLost(lost)) if lost == victim => Ok(true),
        end => end.map(|_| false),
    }
}

/// Puts to all others but the victim where no other thread does, and reads it again, until a
/// while after the loss.
fn exchange(
    job: &Job,
    memory: &Symmetric<u64>,
    victim: Rank,
    number: usize,
    is_lost: &AtomicBool,
) -> Result<()> {
    let own = job.rank().index() * EXCHANGES + number;
    let part = ELEMENTS / (RANKS as usize * EXCHANGES);
    let (mut round, mut left) = (0, AFTERWARDS);
    while left > 0 {
        left -= usize::from(is_lost.load(SeqCst));
        round += 1;
        let others = job.ranks().filter(|it| *it != job.rank() && *it != victim);
        for rank in others {
            let index = own * part + round * 3001 % (part - LEN);
            let data = vec![(own * 1_000_000 + round) as u64; LEN];
            memory.put(rank, index, &data)?;
            let mut back = vec![0; LEN];
            memory.get(rank, index, &mut back)?;
            assert_eq!(back, data, "rank {rank} has something else at {index}");
        }
    }
    Ok(())
}
