//! Records of each use by application threads: each thread has a deregistration queue (Li §4.1).

use std::{
    sync::{
        Arc, OnceLock,
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
    Communication, CommunicationKind, FRAMES, PageRun, RegistrationOutcome, Time,
    queue::{self, RecordReader, RecordWriter},
};
use parking_lot::{Condvar, Mutex};

use super::remote;
use crate::{
    progress::Progress,
    stripe::Striped,
    uses::{MemoryState, MemoryUse, RemoteUse, Uses},
};

/// Shorter uses are not worth a registration of their own (Li §2, Tezuka §2). They stay registered
/// until room is short.
pub(super) const SHORTEST_RECORDED: u64 = 8 << 10;

/// The longest that the helper sleeps without a check. A thread that writes while the helper falls
/// asleep may still see it awake, and wake nobody. The memory of that use then stays registered for
/// that long.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The queues, and the means to wake the helper that reads them.
pub(super) struct Recorder {
    progress: Arc<Progress>,
    /// A queue for each thread, from its first use on.
    writers: Striped<Mutex<Option<RecordWriter>>>,
    /// Queues that the helper does not know yet, and true if there are any.
    new_queues: Mutex<Vec<RecordReader>>,
    has_new_queues: AtomicBool,
    /// True while the helper sleeps or is about to.
    asleep: AtomicBool,
    helper: OnceLock<Thread>,
    /// True once the helper is to end.
    ends: AtomicBool,
    /// True if uses of peers' memory are recorded.
    tells_remote: bool,
    /// True while the helper waits for memory in use.
    waits_for_use: AtomicBool,
    has_freed: AtomicBool,
    freed: Mutex<FreedMemory>,
    over: AtomicBool,
    /// The stage of the helper in virtual time, and a signal of its changes.
    stage: (Mutex<HelperStage>, Condvar),
    is_idle: AtomicBool,
}

/// The most noted ranges of memory that may be free. Beyond that, all memory may be.
const MOST_FREED: usize = 64;

/// Memory that may be free now.
#[derive(Debug, Default)]
pub(super) struct FreedMemory {
    pub(super) places: Vec<PageRun>,
    /// True if all memory that was in use may be free.
    pub(super) is_all: bool,
}

/// The stages of a helper in virtual time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HelperStage {
    Idle,
    /// A thread waits for the helper to begin.
    Wanted,
    Began,
    /// The helper has ended, or is to end without having begun.
    Over,
}

impl Recorder {
    pub(super) fn new(progress: &Arc<Progress>, tells_remote: bool) -> Self {
        Self {
            progress: Arc::clone(progress),
            writers: Striped::new(Mutex::default),
            new_queues: Mutex::default(),
            has_new_queues: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            helper: OnceLock::new(),
            ends: AtomicBool::new(false),
            tells_remote,
            waits_for_use: AtomicBool::new(false),
            has_freed: AtomicBool::new(false),
            freed: Mutex::default(),
            over: AtomicBool::new(false),
            stage: (Mutex::new(HelperStage::Idle), Condvar::new()),
            is_idle: AtomicBool::new(progress.virtual_time),
        }
    }

    /// Returns the time, as uses and deadlines count it.
    pub(super) fn now(&self) -> Time {
        let now = self.progress.conduit().now().as_nanos();
        Time(u64::try_from(now).unwrap_or(u64::MAX))
    }

    /// Declares the calling thread as the helper. Returns whether it has anything to do. In virtual
    /// time the helper takes part from the first use on, and the thread of that use waits for it.
    /// So the helper has its turns from the same time on in every run.
    pub(super) fn begin(&self) -> bool {
        let _ = self.helper.set(thread::current());
        if !self.progress.virtual_time {
            return true;
        }
        let (stage, changed) = &self.stage;
        let mut stage = stage.lock();
        while *stage == HelperStage::Idle {
            changed.wait(&mut stage);
        }
        if *stage == HelperStage::Over {
            return false;
        }
        self.progress.conduit().take_part();
        *stage = HelperStage::Began;
        changed.notify_all();
        drop(stage);
        // The helper's first turn comes before its first check.
        let _ = self.now();
        true
    }

    /// Lets the helper begin, in virtual time.
    #[cold]
    fn let_helper_begin(&self) {
        let (stage, changed) = &self.stage;
        {
            let mut stage = stage.lock();
            if *stage == HelperStage::Idle {
                *stage = HelperStage::Wanted;
                changed.notify_all();
            }
        }
        // This thread has the turn, and would lose it if it slept while the helper gets no core for
        // a second. Results would depend on that.
        while (stage.try_lock()).is_none_or(|stage| *stage == HelperStage::Wanted) {
            thread::yield_now();
        }
    }

    /// Takes the queues that the helper does not know yet.
    pub(super) fn take_new_queues(&self) -> Vec<RecordReader> {
        if self.has_new_queues.swap(false, SeqCst) {
            std::mem::take(&mut *self.new_queues.lock())
        } else {
            Vec::new()
        }
    }

    /// Sleeps until `until` or until a use is recorded, unless `has_something` returns true. Called
    /// by the helper.
    pub(super) fn sleep(&self, until: Option<Time>, has_something: &dyn Fn() -> bool) {
        let timeout = until.map(|at| Duration::from_nanos(at.since(self.now())));
        self.asleep.store(true, SeqCst);
        let mut is_awake = || {
            self.ends()
                || self.has_new_queues.load(SeqCst)
                || self.has_freed.load(SeqCst)
                || has_something()
        };
        if self.progress.virtual_time {
            // In virtual time nothing is missed, because the helper has the turn while it checks.
            (self.progress.conduit()).wait(Sleeper::Nap, timeout, &mut is_awake);
        } else if !is_awake() {
            thread::park_timeout(timeout.map_or(LONGEST_SLEEP, |it| it.min(LONGEST_SLEEP)));
        }
        self.asleep.store(false, SeqCst);
    }

    /// Sets whether the helper waits for memory in use.
    pub(super) fn wait_for_use(&self, waits: bool) {
        self.waits_for_use.store(waits, SeqCst);
    }

    /// Takes the memory that was in use and may be free now, if there is any.
    pub(super) fn take_freed(&self) -> Option<FreedMemory> {
        let has_freed = self.has_freed.load(Relaxed) && self.has_freed.swap(false, SeqCst);
        has_freed.then(|| std::mem::take(&mut *self.freed.lock()))
    }

    /// Notes memory that may be free, and wakes the helper.
    fn note_freed(&self, note: impl FnOnce(&mut FreedMemory)) {
        if !self.waits_for_use.load(SeqCst) {
            return;
        }
        note(&mut self.freed.lock());
        if !self.has_freed.swap(true, SeqCst) {
            self.wake_asleep();
        }
    }

    /// Rests for so long, or until the end if `None`, whatever is used.
    pub(super) fn rest(&self, pause: Option<Duration>) {
        let mut ends = || self.ends();
        if self.progress.virtual_time {
            (self.progress.conduit()).wait(Sleeper::Nap, pause, &mut ends);
        } else if !ends() {
            thread::park_timeout(pause.unwrap_or(LONGEST_SLEEP));
        }
    }

    /// Wakes the helper.
    fn wake(&self) {
        if self.progress.virtual_time {
            return self.progress.conduit().wake(self.progress.rank);
        }
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    /// Tells the helper to end. Returns whether it takes part in virtual time until then.
    pub(super) fn end(&self) -> bool {
        self.ends.store(true, SeqCst);
        let (stage, changed) = &self.stage;
        let mut stage = stage.lock();
        let began = *stage == HelperStage::Began;
        if !began {
            *stage = HelperStage::Over;
            changed.notify_all();
        }
        drop(stage);
        if began || !self.progress.virtual_time {
            self.wake();
        }
        began
    }

    pub(super) fn ends(&self) -> bool {
        self.ends.load(SeqCst)
    }

    /// Notes that the helper has ended, for whatever reason.
    pub(super) fn ended(&self) {
        self.over.store(true, SeqCst);
        let (stage, changed) = &self.stage;
        let before = std::mem::replace(&mut *stage.lock(), HelperStage::Over);
        changed.notify_all();
        if before == HelperStage::Began {
            self.wake();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Makes the queue of a thread.
    #[cold]
    fn make_queue(&self) -> RecordWriter {
        let (writer, reader) = queue::queue(queue::DEFAULT_RECORDS);
        self.new_queues.lock().push(reader);
        self.has_new_queues.store(true, SeqCst);
        writer
    }
}

impl Recorder {
    /// Records a use.
    fn write(&self, communication: &Communication) {
        if self.is_idle.load(Relaxed) && self.is_idle.swap(false, SeqCst) {
            self.let_helper_begin();
        }
        // Each thread has its own queue, except those that share the last stripe. Only those wait
        // here.
        let (writer, _) = self.writers.mine();
        (writer.lock().get_or_insert_with(|| self.make_queue())).write(communication);
        self.wake_asleep();
    }

    fn wake_asleep(&self) {
        if self.asleep.load(Relaxed) && self.asleep.swap(false, SeqCst) {
            self.wake();
        }
    }
}

impl Uses for Recorder {
    fn used(&self, it: &MemoryUse) {
        let mut stack = [0; FRAMES];
        stack[0] = it.site;
        let outcome = match it.state {
            _ if it.len < SHORTEST_RECORDED => RegistrationOutcome::Copied,
            MemoryState::Elsewhere => RegistrationOutcome::Copied,
            MemoryState::Registered => RegistrationOutcome::Found,
            MemoryState::Absent => RegistrationOutcome::OnDemand,
        };
        let communication = Communication {
            begun: Time(u64::try_from(it.begun.as_nanos()).unwrap_or(u64::MAX)),
            kind: CommunicationKind(it.kind as u16),
            outcome,
            addr: it.addr,
            bytes: it.len,
            // The helper asks the engine when it reads the record.
            region: PageRun::default(),
            stack,
        };
        self.write(&communication);
    }

    fn reached(&self, it: &RemoteUse) {
        if let Some(communication) = remote::record(it) {
            self.write(&communication);
        }
    }

    fn wants_reached(&self) -> bool {
        self.tells_remote
    }

    fn waits_for_freed(&self) -> bool {
        self.waits_for_use.load(SeqCst)
    }

    fn freed(&self, places: &[(u64, u64)]) {
        self.note_freed(|freed| {
            freed.is_all |= freed.places.len() + places.len() > MOST_FREED;
            if !freed.is_all {
                let region = |&(addr, bytes): &(u64, u64)| PageRun { addr, bytes };
                freed.places.extend(places.iter().map(region));
            }
        });
    }

    fn all_freed(&self) {
        self.note_freed(|freed| freed.is_all = true);
    }
}
