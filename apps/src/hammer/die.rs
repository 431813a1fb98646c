//! A rank that kills itself in the middle of an operation, like a crash of its machine.
//!
//! A thread watches the rank, and sends it SIGKILL in the chosen situation. No handler, no
//! destructor and no goodbye runs.

use std::{
    hint,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use clap::ValueEnum;
use hydrant::Job;
use rustix::process::{Signal, getpid, kill_process};

use super::print_line;
use crate::kernel;

/// The situation in which a rank dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Situation {
    /// Between the beginning and the end of a put
    Put,
    /// In a put that has sent a move which is not yet complete
    Move,
    /// When a registration has just begun
    Registration,
}

/// The phase of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankPhase {
    Between,
    Put,
    Get,
    Request,
    Over,
}

impl RankPhase {
    /// The word for an operation in this phase with that number.
    pub(crate) fn of(self, number: u64) -> u64 {
        number << 8 | self as u64
    }
}

/// Lets the rank work for a time, then kills it once it is in the situation.
pub(crate) fn kill_self_in(situation: Situation, job: &Job, phase: &AtomicU64, after: Duration) {
    thread::sleep(after);
    let (rank, now) = (job.rank(), kernel::now());
    print_line(&format!("at {now} rank {rank} is about to die"));
    let is = |word: u64, phase: RankPhase| word & 0xff == phase as u64;
    let mut before = (phase.load(SeqCst), count(situation, job));
    loop {
        let word = phase.load(SeqCst);
        if is(word, RankPhase::Over) {
            return;
        }
        let counted = count(situation, job);
        let happened = counted > before.1;
        let same = word == before.0 && word == phase.load(SeqCst);
        if match situation {
            Situation::Put => is(word, RankPhase::Put),
            // This put sent the move, and is still in flight.
            Situation::Move => happened && same && is(word, RankPhase::Put),
            Situation::Registration => happened,
        } {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        before = (word, counted);
        hint::spin_loop();
    }
}

/// The counter that rises in the situation.
fn count(situation: Situation, job: &Job) -> u64 {
    match situation {
        Situation::Put => 0,
        Situation::Move => job.registration().map_or(0, |stats| stats.moves),
        // The counter rises before the call of the kernel.
        Situation::Registration => job.counters().registrations,
    }
}
