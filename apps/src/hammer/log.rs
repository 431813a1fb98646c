//! The log of a rank: its operations, its waits, and its errors.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use hydrant::{Error, Job, Rank, Result};
use serde::Serialize;

use super::die::RankPhase;
use crate::kernel;

/// Operations between two samples of the pinned memory.
const SAMPLE: u64 = 16;

/// Counts of operations.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct HammerTally {
    /// Blocks put, blocks got, and messages sent.
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    pub(crate) requests: u64,
    /// Checks of data that was got or had arrived, and those that failed.
    pub(crate) verified: u64,
    pub(crate) wrong: u64,
    /// The first failed check.
    pub(crate) first_wrong: Option<String>,
}

/// A rank whose loss this rank heard of.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Loss {
    pub(crate) rank: u32,
    /// The time of the error, in nanoseconds since 1970.
    pub(crate) at: u64,
    /// The time that the operation had waited before its error.
    pub(crate) waited: f64,
    /// Successful operations afterwards.
    pub(crate) operations_after: u64,
}

/// One rank's log.
pub(crate) struct RankLog<'job> {
    job: &'job Job,
    pub(crate) tally: HammerTally,
    pub(crate) losses: Vec<Loss>,
    /// Failures by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// The time of the longest operation.
    pub(crate) longest: Duration,
    /// The most kilobytes seen pinned.
    pub(crate) pinned_most: u64,
    there: Vec<bool>,
    attempts: u64,
    phase: Arc<AtomicU64>,
}

impl<'job> RankLog<'job> {
    pub(crate) fn new(job: &'job Job) -> Self {
        Self {
            job,
            tally: HammerTally::default(),
            losses: Vec::new(),
            errors: BTreeMap::new(),
            longest: Duration::ZERO,
            pinned_most: 0,
            there: job.ranks().map(|rank| rank != job.rank()).collect(),
            attempts: 0,
            phase: Arc::new(AtomicU64::new(RankPhase::Between.of(0))),
        }
    }

    pub(crate) fn rank(&self) -> Rank {
        self.job.rank()
    }

    /// The current phase, for the watching thread.
    pub(crate) fn phase(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.phase)
    }

    pub(crate) fn set_phase(&self, phase: RankPhase) {
        self.phase.store(phase.of(self.attempts), SeqCst);
    }

    /// Runs an operation that may fail, and records its time and outcome.
    pub(crate) fn attempt<R>(
        &mut self,
        phase: RankPhase,
        operation: impl FnOnce(&'job Job) -> Result<R>,
    ) -> Result<R> {
        let since = Instant::now();
        self.set_phase(phase);
        let outcome = operation(self.job);
        self.set_phase(RankPhase::Between);
        let waited = since.elapsed();
        self.longest = self.longest.max(waited);
        self.attempts += 1;
        match &outcome {
            Ok(_) => {
                for loss in &mut self.losses {
                    loss.operations_after += 1;
                }
            }
            Err(cause) => {
                *self.errors.entry(kind(cause)).or_default() += 1;
                if let Error::PeerLost(lost) = cause {
                    self.lose(*lost, waited);
                }
            }
        }
        outcome
    }

    fn lose(&mut self, lost: Rank, waited: Duration) {
        let there = self.there.get_mut(lost.index());
        if there.is_some_and(std::mem::take) {
            self.losses.push(Loss {
                rank: lost.0,
                at: kernel::now(),
                waited: waited.as_secs_f64(),
                operations_after: 0,
            });
        }
    }

    /// Records whether data was right.
    pub(crate) fn verified(&mut self, right: bool, what: impl FnOnce() -> String) {
        self.tally.verified += 1;
        if !right {
            self.tally.wrong += 1;
            self.tally.first_wrong.get_or_insert_with(what);
        }
    }

    /// Samples the pinned memory now and then.
    pub(crate) fn sample(&mut self) {
        if self.attempts.is_multiple_of(SAMPLE) {
            self.pinned_most = self.pinned_most.max(kernel::pinned());
        }
    }

    /// A random other rank that survives.
    pub(crate) fn draw(&self, chance: u64) -> Option<Rank> {
        let there = self.there.iter().filter(|there| **there).count();
        let chosen = chance.checked_rem(there as u64)? as usize;
        self.others().nth(chosen)
    }

    /// The other ranks that survive.
    pub(crate) fn others(&self) -> impl Iterator<Item = Rank> {
        let ranks = (0..).map(Rank).zip(&self.there);
        ranks.filter(|(_, there)| **there).map(|(rank, _)| rank)
    }

    pub(crate) fn is_there(&self, rank: Rank) -> bool {
        self.there.get(rank.index()).copied().unwrap_or_default()
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.others().next().is_none() && !self.losses.is_empty()
    }

    /// The number of lost ranks.
    pub(crate) fn lost(&self) -> usize {
        self.losses.len()
    }

    /// Pings a peer that this rank waits for, unless the peer `is_done` by now.
    pub(crate) fn ping(
        &mut self,
        peer: Rank,
        ask: impl FnOnce() -> Result<u64>,
        is_done: impl FnOnce() -> bool,
    ) {
        let since = Instant::now();
        if let Err(cause) = ask()
            && !is_done()
        {
            *self.errors.entry(kind(&cause)).or_default() += 1;
            self.lose(peer, since.elapsed());
        }
    }

    /// # Errors
    /// The first loss.
    pub(crate) fn loss(&self) -> Result<()> {
        match self.losses.first() {
            Some(loss) => Err(Error::PeerLost(Rank(loss.rank))),
            None => Ok(()),
        }
    }
}

/// The kind of a failure, as programs distinguish them. A failure that this program should never
/// get is its sentence.
pub(crate) fn kind(cause: &Error) -> String {
    match cause {
        Error::PeerLost(rank) => format!("PeerLost({rank})"),
        Error::BadAddress { .. } => "BadAddress".to_owned(),
        Error::Freed => "Freed".to_owned(),
        Error::JobOver => "JobOver".to_owned(),
        Error::OutOfMemory { .. } => "OutOfMemory".to_owned(),
        Error::ResultLost { .. } => "ResultLost".to_owned(),
        Error::Revoked { .. } => "Revoked".to_owned(),
        Error::WordNotRegistered { .. } => "WordNotRegistered".to_owned(),
        cause => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_programs_match_them() {
        assert_eq!(kind(&Error::PeerLost(Rank(3))), "PeerLost(3)");
        assert_eq!(kind(&Error::Freed), "Freed");
        let address = Error::BadAddress {
            rank: Rank(1),
            addr: 5,
            len: 6,
        };
        assert_eq!(kind(&address), "BadAddress");
        assert_eq!(kind(&Error::other("unforeseen")), "unforeseen");
    }
}
