//! What the application's threads write down of each use: the deregistration queue of each (Li §4.1).

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
    Communication, FRAMES, Kind, Region, Time, Way,
    queue::{self, Reader, Writer},
};
use parking_lot::{Condvar, Mutex};

use super::{WORTH_IT, remote};
use crate::{
    progress::Progress,
    stripe::Striped,
    uses::{RemoteUse, Stood, Use, Uses},
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
    /// Whether uses of peers' memory are written down.
    tells_remote: bool,
    /// The helper waits for memory that was in use; some may be free by now, which is noted.
    waits_for_use: AtomicBool,
    has_freed: AtomicBool,
    freed: Mutex<Freed>,
    over: AtomicBool,
    /// Whether the helper takes part, in virtual time; and who hears of that.
    stage: (Mutex<Stage>, Condvar),
    is_idle: AtomicBool,
}

/// The most places noted that may be free; beyond that all may be.
const MOST_FREED: usize = 64;

/// The memory that may be free by now.
#[derive(Debug, Default)]
pub(super) struct Freed {
    pub(super) places: Vec<Region>,
    /// All may be free that was in use.
    pub(super) is_all: bool,
}

/// How far a helper is, in virtual time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Somebody waits for it to begin.
    Wanted,
    Began,
    /// It has ended, or is to end without having begun.
    Over,
}

impl Recorder {
    pub(super) fn new(progress: &Arc<Progress>, tells_remote: bool) -> Self {
        Self {
            progress: Arc::clone(progress),
            writers: Striped::new(Mutex::default),
            fresh: Mutex::default(),
            has_fresh: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            helper: OnceLock::new(),
            ends: AtomicBool::new(false),
            tells_remote,
            waits_for_use: AtomicBool::new(false),
            has_freed: AtomicBool::new(false),
            freed: Mutex::default(),
            over: AtomicBool::new(false),
            stage: (Mutex::new(Stage::Idle), Condvar::new()),
            is_idle: AtomicBool::new(progress.virtual_time),
        }
    }

    /// The time, as uses and deadlines have it.
    pub(super) fn now(&self) -> Time {
        let now = self.progress.conduit().now().as_nanos();
        Time(u64::try_from(now).unwrap_or(u64::MAX))
    }

    /// The calling thread is the helper; whether it has anything to do before its end. In virtual time it takes
    /// part from the first use on, while the thread of that use waits for it: so it has its turns from the
    /// same time on in every run.
    pub(super) fn begin(&self) -> bool {
        let _ = self.helper.set(thread::current());
        if !self.progress.virtual_time {
            return true;
        }
        let (stage, changed) = &self.stage;
        let mut stage = stage.lock();
        while *stage == Stage::Idle {
            changed.wait(&mut stage);
        }
        if *stage == Stage::Over {
            return false;
        }
        self.progress.conduit().take_part();
        *stage = Stage::Began;
        changed.notify_all();
        drop(stage);
        // Its first turn comes before it looks at anything.
        let _ = self.now();
        true
    }

    /// Has the helper begin, in virtual time.
    #[cold]
    fn let_begin(&self) {
        let (stage, changed) = &self.stage;
        {
            let mut stage = stage.lock();
            if *stage == Stage::Idle {
                *stage = Stage::Wanted;
                changed.notify_all();
            }
        }
        // This thread has the turn, and would lose it by sleeping where the helper gets no core for a second: figures
        // would hang on that.
        while (stage.try_lock()).is_none_or(|stage| *stage == Stage::Wanted) {
            thread::yield_now();
        }
    }

    /// Queues of threads that the helper does not know.
    pub(super) fn take_fresh(&self) -> Vec<Reader> {
        if self.has_fresh.swap(false, SeqCst) {
            std::mem::take(&mut *self.fresh.lock())
        } else {
            Vec::new()
        }
    }

    /// The helper sleeps until a time, or until a use is written down; unless `has_something` by then.
    pub(super) fn sleep(&self, until: Option<Time>, has_something: &dyn Fn() -> bool) {
        let timeout = until.map(|at| Duration::from_nanos(at.since(self.now())));
        self.asleep.store(true, SeqCst);
        let mut is_awake = || {
            self.ends()
                || self.has_fresh.load(SeqCst)
                || self.has_freed.load(SeqCst)
                || has_something()
        };
        if self.progress.virtual_time {
            // There nothing is missed: it has the turn while it looks.
            (self.progress.conduit()).wait(Sleeper::Nap, timeout, &mut is_awake);
        } else if !is_awake() {
            thread::park_timeout(timeout.map_or(LOOKS, |it| it.min(LOOKS)));
        }
        self.asleep.store(false, SeqCst);
    }

    /// The helper waits for memory to be free that was in use, or does not.
    pub(super) fn wait_for_use(&self, waits: bool) {
        self.waits_for_use.store(waits, SeqCst);
    }

    /// The memory that may be free and was in use before, if there is any.
    pub(super) fn take_freed(&self) -> Option<Freed> {
        let has_freed = self.has_freed.load(Relaxed) && self.has_freed.swap(false, SeqCst);
        has_freed.then(|| std::mem::take(&mut *self.freed.lock()))
    }

    /// Notes memory that may be free, and has the helper look.
    fn note_freed(&self, note: impl FnOnce(&mut Freed)) {
        if !self.waits_for_use.load(SeqCst) {
            return;
        }
        note(&mut self.freed.lock());
        if !self.has_freed.swap(true, SeqCst) {
            self.wake_asleep();
        }
    }

    /// The helper rests for so long, or for good, whatever is used; until its end.
    pub(super) fn rest(&self, pause: Option<Duration>) {
        let mut ends = || self.ends();
        if self.progress.virtual_time {
            (self.progress.conduit()).wait(Sleeper::Nap, pause, &mut ends);
        } else if !ends() {
            thread::park_timeout(pause.unwrap_or(LOOKS));
        }
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

    /// Has the helper end; whether it takes part in virtual time until then.
    pub(super) fn end(&self) -> bool {
        self.ends.store(true, SeqCst);
        let (stage, changed) = &self.stage;
        let mut stage = stage.lock();
        let began = *stage == Stage::Began;
        if !began {
            *stage = Stage::Over;
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

    /// The helper has ended, however that came.
    pub(super) fn ended(&self) {
        self.over.store(true, SeqCst);
        let (stage, changed) = &self.stage;
        let before = std::mem::replace(&mut *stage.lock(), Stage::Over);
        changed.notify_all();
        if before == Stage::Began {
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

impl Recorder {
    /// Writes a use down.
    fn write(&self, communication: &Communication) {
        if self.is_idle.load(Relaxed) && self.is_idle.swap(false, SeqCst) {
            self.let_begin();
        }
        // Each thread has its own but for the last stripe's: nobody waits here but for those.
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
                let region = |&(addr, bytes): &(u64, u64)| Region { addr, bytes };
                freed.places.extend(places.iter().map(region));
            }
        });
    }

    fn all_freed(&self) {
        self.note_freed(|freed| freed.is_all = true);
    }
}
