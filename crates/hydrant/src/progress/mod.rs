//! Who looks after messages, and how waiting works.
//!
//! Each rank has one service thread, ARMCI's server. An application thread that waits looks
//! after messages itself and leaves the service thread asleep; while the application
//! computes, the service thread answers, looks on briefly, and blocks.

mod guard;
mod pending;
mod room;
mod service;
mod wait;

use std::{
    cell::Cell,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::Duration,
};

pub(crate) use pending::{Completed, Outcome, Pending};
pub(crate) use service::start_service;
pub(crate) use wait::{For, On};

use crate::{Error, Result};

/// Operations in a row that look after no messages, and bytes of one that alone is too long.
const MANY: u32 = 16;
const LONG: usize = 4096;

/// The state of a rank's progress.
pub(crate) struct Progress {
    /// Counts up, by two, while application threads look after messages; odd while one is inside
    /// a call.
    marks: AtomicU64,
    /// Application threads asleep in a wait.
    asleep: AtomicU32,
    /// Operations that were waited for without looking after messages.
    unattended: AtomicU32,
    /// The service thread waits until none is asleep.
    parked: AtomicBool,
    park: Mutex<()>,
    unpark: Condvar,
    /// The service thread sleeps, and not for [room].
    service_rests: AtomicBool,
    stopped: AtomicBool,
    /// How long a waiting thread spins.
    pub(crate) spin: Duration,
    /// More ranks than cores: whoever spins takes the core from the one it waits for.
    pub(crate) crowded: bool,
    /// Time passes by what is asked of the conduit: there is no use in looking again and again,
    /// and no service thread.
    pub(crate) virtual_time: bool,
    /// What the virtual clock showed last, in nanoseconds.
    shown: AtomicU64,
}

impl Progress {
    pub(crate) fn new(ranks_here: usize, spin: Duration, virtual_time: bool) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = cores.max(host_cores());
        Self {
            marks: AtomicU64::new(0),
            asleep: AtomicU32::new(0),
            unattended: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            park: Mutex::new(()),
            unpark: Condvar::new(),
            service_rests: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            spin,
            crowded: ranks_here > cores,
            virtual_time,
            shown: AtomicU64::new(u64::MAX),
        }
    }

    /// An application thread looks after messages. Exactness does not matter, cost does: threads
    /// that do this at the same time may undo each other's marks, and then the service thread
    /// takes over a little sooner or later than it might.
    #[inline]
    pub(crate) fn attend(&self) {
        self.mark(|marks| marks.wrapping_add(2));
    }

    /// An application thread is inside a call that may keep it busy for long, as where the
    /// network does its work in the call that posts it.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.mark(|marks| marks | 1);
        Inside(self)
    }

    /// Whether messages are to be looked after now that an operation of so many bytes was waited
    /// for without: after one that took long, or many that did not.
    #[inline]
    pub(crate) fn is_due(&self, bytes: usize) -> bool {
        let count = self.unattended.load(Relaxed).wrapping_add(1);
        self.unattended.store(count, Relaxed);
        bytes >= LONG || count.is_multiple_of(MANY)
    }

    #[inline]
    fn mark(&self, change: impl FnOnce(u64) -> u64) {
        let marks = self.marks.load(Relaxed);
        self.marks.store(change(marks), Relaxed);
    }

    /// How often application threads looked after messages.
    fn attended(&self) -> u64 {
        self.marks.load(Relaxed) / 2
    }

    /// Whether an application thread seems to be inside a call.
    fn is_inside(&self) -> bool {
        self.marks.load(Relaxed) % 2 == 1
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.unpark_service();
    }

    /// Whether the job is over here.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// An application thread goes to sleep, until it drops what it gets.
    fn fall_asleep(&self) -> Asleep<'_> {
        self.asleep.fetch_add(1, SeqCst);
        // Then it looks once more; who did what it waits for looks for sleepers after that.
        fence(SeqCst);
        Asleep(self)
    }

    /// Whether an application thread sleeps, or has not yet seen what was done before this.
    pub(crate) fn has_sleepers(&self) -> bool {
        fence(SeqCst);
        self.asleep.load(Relaxed) > 0
    }

    fn unpark_service(&self) {
        let _held = self.park.lock().unwrap_or_else(PoisonError::into_inner);
        self.unpark.notify_all();
    }

    /// The service thread: waits until no application thread sleeps in a wait.
    fn park_service(&self) {
        let mut held = self.park.lock().unwrap_or_else(PoisonError::into_inner);
        self.parked.store(true, SeqCst);
        while self.asleep.load(SeqCst) > 0 && !self.is_stopped() {
            held = self
                .unpark
                .wait(held)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.parked.store(false, SeqCst);
    }
}

/// An application thread is inside a call, until this is dropped: it leaves, goes to sleep there or
/// unwinds.
#[must_use]
pub(crate) struct Inside<'a>(&'a Progress);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.mark(|marks| marks & !1);
    }
}

/// An application thread sleeps, until this is dropped, by a thread that unwinds, too: as long as
/// one sleeps the service thread does nothing.
#[must_use]
struct Asleep<'a>(&'a Progress);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let progress = self.0;
        if progress.asleep.fetch_sub(1, SeqCst) == 1 && progress.parked.load(SeqCst) {
            progress.unpark_service();
        }
    }
}

/// Cores of the host: a rank bound to one core still shares nothing with one bound to
/// another.
fn host_cores() -> usize {
    std::fs::read_to_string("/sys/devices/system/cpu/online").map_or(1, |text| {
        (text.trim().split(','))
            .filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some(last.parse::<usize>().ok()? - first.parse::<usize>().ok()? + 1)
            })
            .sum()
    })
}

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a handler: within it nothing may wait.
pub(crate) fn in_handler<R>(handler: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_HANDLER.with(|flag| flag.set(self.0));
        }
    }
    let _restore = Restore(IN_HANDLER.with(|flag| flag.replace(true)));
    handler()
}

/// # Errors
/// [`Error::InHandler`] in a handler.
#[inline]
pub(crate) fn may_wait(what: &'static str) -> Result<()> {
    if IN_HANDLER.with(Cell::get) {
        Err(Error::InHandler { what })
    } else {
        Ok(())
    }
}
