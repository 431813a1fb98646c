//! What application threads do just now, so that the service thread knows when to step in.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use super::Progress;

/// Operations in a row that look after no messages, and bytes of one that alone is too long.
const MANY: u32 = 16;
const LONG: usize = 4096;

/// What an application thread says of itself. Exactness does not matter, cost does: threads that
/// share a stripe may undo each other's marks, and then the service thread takes over a little
/// sooner or later than it might.
#[derive(Default)]
pub(super) struct Attention {
    /// Counts up, by two, while the thread looks after messages; odd while it is inside a call.
    marks: AtomicU64,
    /// Operations that it waited for without looking after messages.
    unattended: AtomicU32,
    /// How often it looked after those of one kind [alone](super::taking).
    passed_over: AtomicU32,
}

impl Attention {
    /// The thread looks after messages.
    #[inline]
    pub(super) fn attend(&self) {
        self.mark(|marks| marks.wrapping_add(2));
    }

    /// The thread is inside a call until it drops what it gets.
    #[inline]
    pub(super) fn enter(&self) -> Inside<'_> {
        self.mark(|marks| marks | 1);
        Inside(self)
    }

    /// Both.
    #[inline]
    pub(super) fn look_inside(&self) -> Inside<'_> {
        self.mark(|marks| marks.wrapping_add(2) | 1);
        Inside(self)
    }

    /// The thread looks after messages of one kind alone: how often it has done so.
    #[inline]
    pub(super) fn passes_over(&self) -> u32 {
        let count = self.passed_over.load(Relaxed).wrapping_add(1);
        self.passed_over.store(count, Relaxed);
        count
    }

    /// As [`Progress::is_due`].
    #[inline]
    fn is_due(&self, bytes: usize) -> bool {
        let count = self.unattended.load(Relaxed).wrapping_add(1);
        self.unattended.store(count, Relaxed);
        bytes >= LONG || count.is_multiple_of(MANY)
    }

    #[inline]
    fn mark(&self, change: impl FnOnce(u64) -> u64) {
        let marks = self.marks.load(Relaxed);
        self.marks.store(change(marks), Relaxed);
    }
}

impl Progress {
    /// What the thread that calls says of itself.
    #[inline]
    pub(super) fn attention(&self) -> &Attention {
        self.attention.mine().0
    }

    /// An application thread is inside a call that may keep it busy for long, as where the
    /// network does its work in the call that posts it.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.attention().enter()
    }

    /// Whether messages are to be looked after now that an operation of so many bytes was waited
    /// for without: after one that took long, or many that did not.
    #[inline]
    pub(crate) fn is_due(&self, bytes: usize) -> bool {
        self.attention().is_due(bytes)
    }

    /// How often application threads looked after messages.
    pub(super) fn attended(&self) -> u64 {
        (self.attention.owned().chain([self.attention.shared()]))
            .map(|own| own.marks.load(Relaxed) / 2)
            .fold(0, u64::wrapping_add)
    }

    /// Whether an application thread seems to be inside a call. Of those that share a stripe nobody
    /// knows: one may have undone another's mark for good.
    pub(super) fn is_inside(&self) -> bool {
        (self.attention.owned()).any(|own| own.marks.load(Relaxed) % 2 == 1)
    }

    /// Returns whether the rank may have another thread of the program: several living threads have waited in the job or
    /// polled its messages, or the process has several [threads](super::threads).
    pub(crate) fn has_many_threads(&self) -> bool {
        let has_come = |it: &Attention| it.marks.load(Relaxed) != 0;
        let own = self.attention.held().filter(|it| has_come(it)).count();
        own > 1 || has_come(self.attention.shared()) || self.here.has_several_threads()
    }

    /// An application thread goes to sleep, until it drops what it gets.
    pub(super) fn fall_asleep(&self) -> Asleep<'_> {
        self.asleep.fetch_add(1, SeqCst);
        // Then it looks once more; who did what it waits for looks for sleepers after that.
        fence(SeqCst);
        Asleep(self)
    }

    /// How many application threads sleep in a wait.
    pub(super) fn asleep(&self) -> u32 {
        self.asleep.load(Relaxed)
    }

    /// Whether an application thread sleeps, or has not yet seen what was done before this.
    pub(crate) fn has_sleepers(&self) -> bool {
        fence(SeqCst);
        self.asleep.load(Relaxed) > 0
    }

    /// Something ended otherwise than by what a conduit hands up: perhaps another thread sleeps
    /// for it.
    pub(crate) fn wake_sleepers(&self) {
        self.wake_hopeful();
        if self.has_sleepers() {
            self.conduit.notify(self.rank);
        }
    }

    pub(super) fn unpark_service(&self) {
        let _held = self.park.lock();
        self.unpark.notify_all();
    }

    /// The service thread: waits until no application thread sleeps in a wait.
    pub(super) fn park_service(&self) {
        let mut held = self.park.lock();
        self.parked.store(true, SeqCst);
        while self.asleep.load(SeqCst) > 0 && !self.is_stopped() {
            self.unpark.wait(&mut held);
        }
        self.parked.store(false, SeqCst);
    }
}

/// An application thread is inside a call, until this is dropped: it leaves, goes to sleep there or
/// unwinds.
#[must_use]
pub(crate) struct Inside<'a>(&'a Attention);

impl Inside<'_> {
    /// As [`Progress::is_due`], of what the thread is inside for.
    #[inline]
    pub(crate) fn is_due(&self, bytes: usize) -> bool {
        self.0.is_due(bytes)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.mark(|marks| marks & !1);
    }
}

/// An application thread sleeps, until this is dropped, by a thread that unwinds, too: as long as
/// one sleeps the service thread does nothing.
#[must_use]
pub(super) struct Asleep<'a>(&'a Progress);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let progress = self.0;
        if progress.asleep.fetch_sub(1, SeqCst) == 1 && progress.parked.load(SeqCst) {
            progress.unpark_service();
        }
    }
}
