//! A rank is killed by SIGKILL during two-sided messages, with every protocol and strategy. Senders
//! to it, receivers from it or from any rank, and probes hear which rank was lost, and the job
//! ends.
//!
//! `HYDRANT_TEST_ROUNDS` sets the number of ranks killed with each strategy and protocol.

#[path = "support/killed.rs"]
mod killed;

use std::{process::ExitCode, thread, time::Duration};

use hydrant::{
    AnySource, Error, Job, MessageProtocol, Rank, Result, Settings, Symmetric, settings,
};
use hydrant_testing::{
    launcher, roles,
    running::{Running, say},
};
use rustix::process;

const RANKS: u32 = 4;
const VICTIM: Rank = Rank(1);
/// Bytes of successive messages: eager, in pieces on some networks, announced, and of many chunks.
const BYTES: [usize; 6] = [0, 100, 3000, 40_000, 100_000, 1 << 20];
const EXCHANGED: u64 = 1;
const NEVER_SENT: u64 = 2;

fn main() -> ExitCode {
    let mut tests = killed::under_every_strategy(|strategy, round| {
        kill_one(&[("CONDUIT", "smp+pin"), ("REGISTRATION", strategy)], round);
    });
    tests.push(roles::test("under_auto", || {
        kill_one(&[("CONDUIT", "smp+pin"), ("REGISTRATION", "auto")], 2);
    }));
    tests.push(roles::test("in_pieces", || {
        let pieces = [
            ("CONDUIT", "smp+pin"),
            ("RING_PAYLOAD", "16K"),
            ("MESSAGES_EAGER", "128K"),
        ];
        (0..4).for_each(|round| kill_one(&pieces, round));
    }));
    tests.push(roles::test("over_tcp", || {
        if let Err(why) = settings::fabric_endpoints(&Settings::new()) {
            eprintln!("left out: {why}");
            return;
        }
        kill_one(&[("CONDUIT", "ofi")], 1);
    }));
    tests.push(roles::test("on_shared_memory", || {
        (0..3).for_each(|round| kill_one(&[("CONDUIT", "smp")], round));
    }));
    tests.push(roles::test("between_hosts", || {
        let hosts = [("INTER_NODE", "smp+pin"), ("PRETEND_HOSTS", "2")];
        (0..2).for_each(|round| kill_one(&hosts, round));
    }));
    roles::main(|_, _| Some(rank()), tests)
}

fn kill_one(settings: &[(&str, &str)], round: u32) {
    for protocol in MessageProtocol::ALL {
        let mut command = launcher::command(RANKS, &["messages"]);
        command.env("HYDRANT_MESSAGES", protocol.to_string());
        for (name, value) in settings {
            command.env(format!("HYDRANT_{name}"), value);
        }
        command.env("HYDRANT_M", "1M");
        let mut job = Running::start(command);
        let pid = killed::ready(&mut job, RANKS)[VICTIM.index()];
        thread::sleep(Duration::from_micros(u64::from(round * 7919 % 60_000)));
        process::kill_process(pid, process::Signal::KILL).expect("the victim is killed");
        let (_, printed) = job.end();
        killed::all_told(&printed, RANKS, VICTIM.0);
    }
}

fn rank() -> ExitCode {
    let builder = Job::builder()
        .expect("the settings are valid")
        .heap(16 << 20);
    let end = builder.run(|job| {
        let done = job.alloc::<u64>(job.size() as usize)?;
        job.barrier()?;
        say(&format!("ready {} {}", job.rank(), std::process::id()));
        let lost = match job.rank() {
            VICTIM => with_all(job)?,
            _ => with_victim(job, &done)?,
        };
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

/// The victim's part: an exchange with each other rank, until it is killed.
fn with_all(job: &Job) -> Result<Rank> {
    thread::scope(|threads| {
        for rank in job.ranks().filter(|rank| *rank != VICTIM) {
            threads.spawn(move || exchange(job, rank));
        }
    });
    Err(Error::other("the victim outlived its exchanges"))
}

/// A survivor's part, with a thread for each kind of wait. Each thread hears of the same loss.
fn with_victim(job: &Job, words: &Symmetric<u64>) -> Result<Rank> {
    thread::scope(|threads| {
        let waiting = [
            threads.spawn(|| job.receive(AnySource, NEVER_SENT, &mut [0_u8; 8]).map(drop)),
            threads.spawn(|| job.receive(VICTIM, NEVER_SENT, &mut [0_u8; 8]).map(drop)),
            threads.spawn(|| job.probe(AnySource, NEVER_SENT).map(drop)),
            threads.spawn(|| job.probe_matched(VICTIM, NEVER_SENT).map(drop)),
        ];
        let lost = lost(exchange(job, VICTIM))?;
        for waiting in waiting {
            let also = self::lost(waiting.join().expect("no panic"))?;
            assert_eq!(also, lost);
        }
        assert_eq!(self::lost(job.probe(lost, NEVER_SENT).map(drop))?, lost);
        // Loops that never wait.
        for told in [
            looked(|| job.try_probe(lost, NEVER_SENT)),
            looked(|| job.try_probe(AnySource, NEVER_SENT)),
            looked(|| job.try_probe_matched(AnySource, NEVER_SENT)),
            looked(|| job.test_until(words, 0, |_| false)),
            looked(|| job.test_until_any(words, &[0], |_| false)),
        ] {
            assert_eq!(self::lost(told)?, lost);
        }
        Ok(lost)
    })
}

/// Looks again and again until something is there.
fn looked<T>(look: impl Fn() -> Result<Option<T>>) -> Result<()> {
    while look()?.is_none() {}
    Ok(())
}

/// Sends to a rank and receives from it at the same time, until that fails.
fn exchange(job: &Job, with: Rank) -> Result<()> {
    for bytes in BYTES.into_iter().cycle() {
        let (sent, mut received) = (vec![7_u8; bytes], vec![0_u8; bytes]);
        job.scope(|scope| {
            scope.receive(with, EXCHANGED, &mut received)?;
            scope.send(with, EXCHANGED, &sent).map(drop)
        })?;
        assert_eq!(received, sent);
    }
    Ok(())
}

fn lost(end: Result<()>) -> Result<Rank> {
    match end {
        Err(Error::PeerLost(rank)) => Ok(rank),
        Err(cause) => Err(cause),
        Ok(()) => Err(Error::other("nothing was lost")),
    }
}
