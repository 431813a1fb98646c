//! One thread of a rank at work: it draws what to do, does it, and says what was wrong.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use hydrant::{Error, Job, Rank, Result};

use super::watch::{self, Slot};
use crate::{
    hammer::log::kind,
    kernel,
    seed::{Dice, Seed, mix},
};

/// Sentences that are kept of what was wrong.
const SENTENCES: usize = 6;
/// Operations between two looks at what is pinned.
const SAMPLE: u64 = 16;

/// What a thread did and found; those of a rank are added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Operations, by the first word of what is said of them.
    pub(crate) operations: BTreeMap<String, u64>,
    /// Comparisons made.
    pub(crate) checks: u64,
    pub(crate) wrong: u64,
    /// What was wrong first.
    pub(crate) sentences: Vec<String>,
    /// What is wrong unless a rank was lost.
    suspicions: Vec<String>,
    /// The operation that took longest.
    pub(crate) longest: Duration,
    pub(crate) longest_what: String,
    /// Most kilobytes that were seen pinned.
    pub(crate) pinned_most: u64,
    /// All that was done and seen, as one number: the same for the same run in virtual time.
    pub(crate) trace: u64,
}

impl Tally {
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

    /// No rank was lost, so that what was suspected is wrong.
    pub(crate) fn confirm(&mut self) {
        self.wrong += self.suspicions.len() as u64;
        self.sentences.append(&mut self.suspicions);
        self.sentences.truncate(SENTENCES);
    }
}

/// The threads of a job, and what they may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crew {
    pub(crate) ranks: usize,
    pub(crate) threads: usize,
    /// Whether handles and guards are leaked at times.
    pub(crate) leaks: bool,
}

impl Crew {
    /// Threads of all ranks.
    pub(crate) fn workers(self) -> usize {
        self.ranks * self.threads
    }
}

/// A thread of a rank.
pub(crate) struct Hand<'job> {
    pub(crate) job: &'job Job,
    pub(crate) crew: Crew,
    /// The thread's number among those of all ranks.
    pub(crate) worker: usize,
    pub(crate) dice: Dice,
    pub(crate) tally: Tally,
    simulated: bool,
    slot: Arc<Mutex<Slot>>,
}

impl<'job> Hand<'job> {
    pub(crate) fn new(job: &'job Job, crew: Crew, thread: usize, seed: u64) -> Self {
        let worker = job.rank().index() * crew.threads + thread;
        Self {
            job,
            crew,
            worker,
            dice: Dice::new(Seed::new(seed, worker as u64)),
            tally: Tally::default(),
            simulated: is_simulated(job),
            slot: watch::slot(job.rank(), thread),
        }
    }

    /// Any rank, this one included.
    pub(crate) fn draw_rank(&mut self) -> Rank {
        Rank(self.dice.below(self.crew.ranks) as u32)
    }

    /// So many bytes that nobody wrote before.
    pub(crate) fn draw_bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.dice.next().to_le_bytes());
        words.take(len).collect()
    }

    /// Does something, and keeps how long it took and how it ended. `what` begins with the
    /// operation's name.
    pub(crate) fn attempt<R>(
        &mut self,
        what: &str,
        operation: impl FnOnce(&'job Job) -> Result<R>,
    ) -> Result<R> {
        let since = self.job.now();
        watch::begin(&self.slot, what);
        let outcome = operation(self.job);
        watch::end(&self.slot);
        // By the job's clock, for in virtual time nothing may hang on the real one.
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

    /// Does something that may fail only because a rank is lost; any other failure is wrong.
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

    /// Says that a failure is wrong, unless it is the loss of a rank.
    pub(crate) fn complain(&mut self, what: &str, cause: Error) -> Result<()> {
        if let Error::PeerLost(_) | Error::JobOver = cause {
            return Err(cause);
        }
        self.wrong(format!("{what}: {cause}"));
        Ok(())
    }

    /// Something was as it should be, or not.
    pub(crate) fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        self.tally.checks += 1;
        if !right {
            self.wrong(what());
        }
    }

    /// Something was as it should be, or a rank is lost that nobody has told this one of yet.
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
            match asleep {
                true => thread::sleep(time),
                false => std::hint::spin_loop(),
            }
        }
    }

    /// Adds to the trace.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.tally.trace = (self.tally.trace ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// Whether time is virtual, so that nothing may hang on the real one.
pub(crate) fn is_simulated(job: &Job) -> bool {
    job.settings().conduit.is_virtual()
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a future on a thread that sleeps meanwhile and looks after nothing.
pub(crate) fn asleep<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
