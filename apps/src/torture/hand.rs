//! One working thread of a rank: it draws an operation, runs it, and records faults.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use hydrant::{Error, Job, Rank, Result};
use hydrant_base::{Random, mix};

use super::watch::{self, WatchSlot};
use crate::{hammer::log::kind, kernel, seed::Seed};

/// The most sentences about faults that are kept.
const SENTENCES: usize = 6;
/// Operations between two samples of the pinned memory.
const SAMPLE: u64 = 16;

/// The counts and faults of a thread; those of a rank's threads are added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct TortureTally {
    /// Operations, by the first word of their description.
    pub(crate) operations: BTreeMap<String, u64>,
    /// The number of comparisons.
    pub(crate) checks: u64,
    pub(crate) wrong: u64,
    /// The first faults.
    pub(crate) sentences: Vec<String>,
    /// Faults that count only if no rank was lost.
    suspicions: Vec<String>,
    /// The time of the longest operation.
    pub(crate) longest: Duration,
    pub(crate) longest_what: String,
    /// The most kilobytes seen pinned.
    pub(crate) pinned_most: u64,
    /// A hash of all operations and results: in virtual time, equal runs have equal hashes.
    pub(crate) trace: u64,
}

impl TortureTally {
    pub(crate) fn add(&mut self, other: Self) {
        for (name, count) in other.operations {
            *self.operations.entry(name).or_default() += count;
        }
        self.checks += other.checks;
        self.wrong += other.wrong;
        self.suspicions.extend(other.suspicions);
        self.sentences.extend(other.sentences);
        self.sentences.truncate(SENTENCES);
        if other.longest > self.longest {
            (self.longest, self.longest_what) = (other.longest, other.longest_what);
        }
        self.pinned_most = self.pinned_most.max(other.pinned_most);
        self.trace = mix(self.trace ^ other.trace);
    }

    /// Turns suspicions into faults, because no rank was lost.
    pub(crate) fn confirm(&mut self) {
        self.wrong += self.suspicions.len() as u64;
        self.sentences.append(&mut self.suspicions);
        self.sentences.truncate(SENTENCES);
    }
}

/// The threads of a job, and their permissions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crew {
    pub(crate) ranks: usize,
    pub(crate) threads: usize,
    /// True if handles and guards are leaked at times.
    pub(crate) leaks: bool,
}

impl Crew {
    /// The number of threads of all ranks.
    pub(crate) fn workers(self) -> usize {
        self.ranks * self.threads
    }
}

/// A thread of a rank.
pub(crate) struct Hand<'job> {
    pub(crate) job: &'job Job,
    pub(crate) crew: Crew,
    /// The number of the thread among those of all ranks.
    pub(crate) worker: usize,
    pub(crate) dice: Random,
    pub(crate) tally: TortureTally,
    simulated: bool,
    slot: Arc<Mutex<WatchSlot>>,
}

impl<'job> Hand<'job> {
    pub(crate) fn new(job: &'job Job, crew: Crew, thread: usize, seed: u64) -> Self {
        let worker = job.rank().index() * crew.threads + thread;
        Self {
            job,
            crew,
            worker,
            dice: Seed::new(seed, worker as u64).random(),
            tally: TortureTally::default(),
            simulated: is_simulated(job),
            slot: watch::slot(job.rank(), thread),
        }
    }

    /// A random rank, which may be this one.
    pub(crate) fn draw_rank(&mut self) -> Rank {
        Rank(self.dice.below(self.crew.ranks) as u32)
    }

    /// `len` bytes that nobody wrote before.
    pub(crate) fn draw_bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.dice.word().to_le_bytes());
        words.take(len).collect()
    }

    /// Runs an operation, and records its time and outcome. `what` begins with the operation's
    /// name.
    pub(crate) fn attempt<R>(
        &mut self,
        what: &str,
        operation: impl FnOnce(&'job Job) -> Result<R>,
    ) -> Result<R> {
        let since = self.job.now();
        watch::begin(&self.slot, what);
        let outcome = operation(self.job);
        watch::end(&self.slot);
        // By the job's clock: in virtual time nothing may depend on the real one.
        let took = self.job.now().saturating_sub(since);
        if took > self.tally.longest {
            (self.tally.longest, self.tally.longest_what) = (took, what.to_owned());
        }
        let name = what.split(' ').next().unwrap_or_default();
        let count = self.tally.operations.entry(name.to_owned()).or_default();
        *count += 1;
        if count.is_multiple_of(SAMPLE) {
            self.tally.pinned_most = self.tally.pinned_most.max(kernel::pinned());
        }
        if self.simulated {
            self.note(what.as_bytes());
            self.note(&self.job.now().as_nanos().to_le_bytes());
        }
        if let Err(cause) = &outcome {
            self.note(kind(cause).as_bytes());
        }
        outcome
    }

    /// Runs an operation that may fail only by the loss of a rank; any other failure is a fault.
    pub(crate) fn must<R>(
        &mut self,
        what: &str,
        operation: impl FnOnce(&'job Job) -> Result<R>,
    ) -> Result<Option<R>> {
        match self.attempt(what, operation) {
            Ok(value) => Ok(Some(value)),
            Err(cause) => self.complain(what, cause).map(|()| None),
        }
    }

    /// Records a failure as a fault, unless it is the loss of a rank.
    pub(crate) fn complain(&mut self, what: &str, cause: Error) -> Result<()> {
        if let Error::PeerLost(_) | Error::JobOver = cause {
            return Err(cause);
        }
        self.wrong(format!("{what}: {cause}"));
        Ok(())
    }

    /// Records the outcome of a check.
    pub(crate) fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        self.tally.checks += 1;
        if !right {
            self.wrong(what());
        }
    }

    /// Records the outcome of a check. A failed one counts only if no rank was lost, perhaps
    /// unnoticed so far.
    pub(crate) fn check_unless_lost(&mut self, right: bool, what: impl FnOnce() -> String) {
        self.tally.checks += 1;
        if !right {
            let suspicion = self.sentence(&what());
            self.tally.suspicions.push(suspicion);
        }
    }

    fn sentence(&self, what: &str) -> String {
        let (rank, thread) = (self.job.rank(), self.worker % self.crew.threads);
        format!(
            "rank {rank}, thread {thread}, after {:?}: {what}",
            self.job.now()
        )
    }

    pub(crate) fn wrong(&mut self, what: String) {
        self.tally.wrong += 1;
        if self.tally.sentences.len() < SENTENCES {
            let sentence = self.sentence(&what);
            eprintln!("torture: {sentence}");
            self.tally.sentences.push(sentence);
        }
    }

    /// Computes for a while without a call of Hydrant.
    pub(crate) fn compute(&mut self) {
        if self.simulated {
            self.job.compute(1000 << self.dice.below(8));
            return;
        }
        let time = Duration::from_micros(20 << self.dice.below(10));
        let asleep = self.dice.one_in(3);
        let since = Instant::now();
        while since.elapsed() < time {
            if asleep {
                thread::sleep(time)
            } else {
                std::hint::spin_loop()
            }
        }
    }

    /// Adds bytes to the trace.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.tally.trace = (self.tally.trace ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// True if time is virtual, so that nothing may depend on the real clock.
pub(crate) fn is_simulated(job: &Job) -> bool {
    job.settings().conduit.is_virtual()
}
