//! A rank that kills itself in the middle of something, as its users' machines would.
//!
//! A thread watches what the rank does, and sends it SIGKILL as soon as it sees it there. The
//! kernel does the rest: no handler, no destructor and no goodbye.

use std::{
    hint,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use clap::ValueEnum;
use hydrant::Job;
use rustix::process::{Signal, getpid, kill_process};

use super::say;
use crate::kernel;

/// When a rank dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Situation {
    /// Between the beginning and the end of a put
    Put,
    /// In a put that has sent a move which is not yet done with
    Move,
    /// When a registration has just begun
    Registration,
}

/// What a rank does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Between,
    Put,
    Get,
    Request,
    Over,
}

impl Phase {
    /// The word that says so of an operation with that number.
    pub(crate) fn of(self, number: u64) -> u64 {
        number << 8 | self as u64
    }
}

/// Lets the rank work for a time, then kills it in that situation, if it gets into it.
pub(crate) fn kill_self_in(situation: Situation, job: &Job, phase: &AtomicU64, after: Duration) {
    thread::sleep(after);
    let (rank, now) = (job.rank(), kernel::now());
    say(&format!("at {now} rank {rank} is about to die"));
    let is = |word: u64, phase: Phase| word & 0xff == phase as u64;
    let mut before = (phase.load(SeqCst), count(situation, job));
    loop {
        let word = phase.load(SeqCst);
        if is(word, Phase::Over) {
            return;
        }
        let counted = count(situation, job);
        let happened = counted > before.1;
        let same = word == before.0 && word == phase.load(SeqCst);
        if match situation {
            Situation::Put => is(word, Phase::Put),
            // Sent by this put, which goes on.
            Situation::Move => happened && same && is(word, Phase::Put),
            Situation::Registration => happened,
        } {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        before = (word, counted);
        hint::spin_loop();
    }
}

/// What goes up when it happens.
fn count(situation: Situation, job: &Job) -> u64 {
    match situation {
        Situation::Put => 0,
        Situation::Move => job.registration().map_or(0, |stats| stats.moves),
        // Counted before the kernel is asked.
        Situation::Registration => job.counters().registrations,
    }
}
