//! Tracks what application threads do, so that the service thread knows when to take over.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use super::Progress;

/// The number of operations in a row without a poll, and the bytes of one operation that alone
/// takes too long.
const MANY: u32 = 16;
const LONG: usize = 4096;

/// The activity of an application thread. The cost matters more than exactness. Threads that share
/// a stripe may undo each other's marks. The service thread then takes over a little sooner or
/// later than it might.
#[derive(Default)]
pub(super) struct Attention {
    /// Increased by two with each poll; odd while the thread is inside a call.
    marks: AtomicU64,
    /// The number of operations that the thread waited for without a poll.
    unattended: AtomicU32,
    /// The number of times the thread received messages of one kind [alone](super::taking).
    passed_over: AtomicU32,
}

impl Attention {
    /// Notes that the thread polls.
    #[inline]
    pub(super) fn attend(&self) {
        self.mark(|marks| marks.wrapping_add(2));
    }

    /// Notes that the thread is inside a call until the returned value is dropped.
    #[inline]
    pub(super) fn enter(&self) -> Inside<'_> {
        self.mark(|marks| marks | 1);
        Inside(self)
    }

    /// Notes both that the thread polls and that it is inside a call.
    #[inline]
    pub(super) fn attend_inside(&self) -> Inside<'_> {
        self.mark(|marks| marks.wrapping_add(2) | 1);
        Inside(self)
    }

    /// Counts that the thread received messages of one kind alone, and returns the count.
    #[inline]
    pub(super) fn count_passed_over(&self) -> u32 {
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
    /// Returns the entry of the calling thread.
    #[inline]
    pub(super) fn attention(&self) -> &Attention {
        self.attention.mine().0
    }

    /// Notes that an application thread is inside a call that may keep it busy for long. Some
    /// networks do their work in the call that posts it.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.attention().enter()
    }

    /// Returns whether the thread should poll, now that it waited without polls for an operation of
    /// so many bytes. It should after one long operation or after many short ones.
    #[inline]
    pub(crate) fn is_due(&self, bytes: usize) -> bool {
        self.attention().is_due(bytes)
    }

    /// Returns how often application threads polled.
    pub(super) fn attended(&self) -> u64 {
        (self.attention.owned().chain([self.attention.shared()]))
            .map(|own| own.marks.load(Relaxed) / 2)
            .fold(0, u64::wrapping_add)
    }

    /// Returns whether an application thread seems to be inside a call. Threads that share a stripe
    /// are ignored, because one may have undone another's mark for good.
    pub(super) fn is_inside(&self) -> bool {
        (self.attention.owned()).any(|own| own.marks.load(Relaxed) % 2 == 1)
    }

    /// Returns whether the rank may have another thread of the program. It may if several living
    /// threads have waited or polled in the job, or if the process has several
    /// [threads](super::threads).
    pub(crate) fn has_many_threads(&self) -> bool {
        let has_come = |it: &Attention| it.marks.load(Relaxed) != 0;
        let own = self.attention.held().filter(|it| has_come(it)).count();
        own > 1 || has_come(self.attention.shared()) || self.here.has_several_threads()
    }

    /// Counts an application thread as asleep until the returned value is dropped.
    pub(super) fn fall_asleep(&self) -> Asleep<'_> {
        self.asleep.fetch_add(1, SeqCst);
        // The caller then checks its condition once more. A thread that makes the condition true
        // looks for sleepers after that.
        fence(SeqCst);
        Asleep(self)
    }

    /// Returns how many application threads sleep in a wait.
    pub(super) fn asleep(&self) -> u32 {
        self.asleep.load(Relaxed)
    }

    /// Returns whether an application thread sleeps, or may not yet see what the caller did before
    /// this call.
    pub(crate) fn has_sleepers(&self) -> bool {
        fence(SeqCst);
        self.asleep.load(Relaxed) > 0
    }

    /// Wakes sleeping application threads, because something changed that no conduit reports.
    pub(crate) fn wake_sleepers(&self) {
        self.wake_condition_waiters();
        if self.has_sleepers() {
            self.conduit.notify(self.rank);
        }
    }

    pub(super) fn unpark_service(&self) {
        let _held = self.park.lock();
        self.unpark.notify_all();
    }

    /// Lets the service thread wait until no application thread sleeps in a wait.
    pub(super) fn park_service(&self) {
        let mut held = self.park.lock();
        self.parked.store(true, SeqCst);
        while self.asleep.load(SeqCst) > 0 && !self.is_stopped() {
            self.unpark.wait(&mut held);
        }
        self.parked.store(false, SeqCst);
    }
}

/// Marks an application thread as inside a call. It is dropped when the thread leaves the call,
/// sleeps there, or unwinds.
#[must_use]
pub(crate) struct Inside<'a>(&'a Attention);

impl Inside<'_> {
    /// As [`Progress::is_due`], for the operation of this call.
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

/// Counts an application thread as asleep until this is dropped, also by a thread that unwinds. The
/// service thread does nothing as long as one sleeps.
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
