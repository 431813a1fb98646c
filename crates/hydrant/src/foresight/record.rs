//! What the application's threads write down of each use: the deregistration queue of each (Li §4.1).

use std::{
    sync::{
        Arc, Condvar as Waiting, Mutex as Latch, OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, Thread},
    time::Duration,
};

use hydrant_conduit::Sleeper;
use hydrant_foresight::{
    Communication, FRAMES, Kind, Region, Time, Way,
    queue::{self, Reader, Writer},
};
use parking_lot::Mutex;

use super::WORTH_IT;
use crate::{
    progress::Progress,
    stripe::Striped,
    uses::{Stood, Use, Uses},
};

/// The longest that the helper sleeps without looking. A thread that writes while the helper falls asleep may
/// see it awake still, and wake nobody; the memory of that use stays registered for so long.
const LOOKS: Duration = Duration::from_secs(1);

/// The queues, and what wakes the helper that reads them.
pub(super) struct Recorder {
    progress: Arc<Progress>,
    /// A queue for each thread, from its first use on.
    writers: Striped<Mutex<Option<Writer>>>,
    /// Queues that the helper does not know yet.
    fresh: Mutex<Vec<Reader>>,
    has_fresh: AtomicBool,
    /// The helper sleeps, or is about to.
    asleep: AtomicBool,
    helper: OnceLock<Thread>,
    /// The helper is to end; it has ended.
    ends: AtomicBool,
    over: AtomicBool,
    /// The helper takes part.
    began: (Latch<bool>, Waiting),
}

impl Recorder {
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        Self {
            progress: Arc::clone(progress),
            writers: Striped::new(Mutex::default),
            fresh: Mutex::default(),
            has_fresh: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            helper: OnceLock::new(),
            ends: AtomicBool::new(false),
            over: AtomicBool::new(false),
            began: Default::default(),
        }
    }

    /// The time, as uses and deadlines have it.
    pub(super) fn now(&self) -> Time {
        let now = self.progress.conduit().now().as_nanos();
        Time(u64::try_from(now).unwrap_or(u64::MAX))
    }

    /// The calling thread is the helper.
    pub(super) fn begin(&self) {
        self.progress.conduit().take_part();
        let _ = self.helper.set(thread::current());
        let (began, waiting) = &self.began;
        *began.lock().unwrap_or_else(|it| it.into_inner()) = true;
        waiting.notify_all();
        // Its first turn comes before it looks at anything: from here on others see what it does in the
        // order of virtual time.
        let _ = self.now();
    }

    /// Waits until the helper has begun.
    pub(super) fn await_helper(&self) {
        let (began, waiting) = &self.began;
        let mut has = began.lock().unwrap_or_else(|it| it.into_inner());
        while !*has {
            has = waiting.wait(has).unwrap_or_else(|it| it.into_inner());
        }
    }

    /// Queues of threads that the helper does not know.
    pub(super) fn take_fresh(&self) -> Vec<Reader> {
        match self.has_fresh.swap(false, SeqCst) {
            true => std::mem::take(&mut *self.fresh.lock()),
            false => Vec::new(),
        }
    }

    /// The helper sleeps until a time, or until a use is written down; unless `has_something` by then.
    pub(super) fn sleep(&self, until: Option<Time>, has_something: &dyn Fn() -> bool) {
        let timeout = until.map(|at| Duration::from_nanos(at.since(self.now())));
        self.asleep.store(true, SeqCst);
        let mut is_awake = || self.ends() || self.has_fresh.load(SeqCst) || has_something();
        if self.progress.virtual_time {
            // There nothing is missed: it has the turn while it looks.
            (self.progress.conduit()).wait(Sleeper::Nap, timeout, &mut is_awake);
        } else if !is_awake() {
            thread::park_timeout(timeout.map_or(LOOKS, |it| it.min(LOOKS)));
        }
        self.asleep.store(false, SeqCst);
    }

    /// Has the helper look.
    fn wake(&self) {
        if self.progress.virtual_time {
            return self.progress.conduit().wake(self.progress.rank);
        }
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    /// Has the helper end.
    pub(super) fn end(&self) {
        self.ends.store(true, SeqCst);
        self.wake();
    }

    pub(super) fn ends(&self) -> bool {
        self.ends.load(SeqCst)
    }

    /// The helper has ended, however that came.
    pub(super) fn ended(&self) {
        self.over.store(true, SeqCst);
        if self.progress.virtual_time {
            self.wake();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Begins the queue of a thread.
    #[cold]
    fn make_queue(&self) -> Writer {
        let (writer, reader) = queue::queue(queue::DEFAULT_RECORDS);
        self.fresh.lock().push(reader);
        self.has_fresh.store(true, SeqCst);
        writer
    }
}

impl Uses for Recorder {
    fn used(&self, it: &Use) {
        let mut stack = [0; FRAMES];
        stack[0] = it.site;
        let way = match it.stood {
            _ if it.len < WORTH_IT => Way::Copied,
            Stood::Elsewhere => Way::Copied,
            Stood::Registered => Way::Found,
            Stood::Absent => Way::OnDemand,
        };
        let communication = Communication {
            begun: Time(u64::try_from(it.begun.as_nanos()).unwrap_or(u64::MAX)),
            kind: Kind(it.kind as u16),
            way,
            addr: it.addr,
            bytes: it.len,
            // The helper asks the engine when it reads this.
            region: Region::default(),
            stack,
        };
        // Each thread has its own but for the last stripe's: nobody waits here but for those.
        let (writer, _) = self.writers.mine();
        (writer.lock().get_or_insert_with(|| self.make_queue())).write(&communication);
        if self.asleep.load(Relaxed) && self.asleep.swap(false, SeqCst) {
            self.wake();
        }
    }
}
