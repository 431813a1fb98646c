//! The backlog: what is to be done by whoever polls. Messages of the room above, and of handlers, for
//! which a peer had no room, which are sent when there is some; messages whose asker has what it waited for, which are
//! sent with others, before a user's handler or at the end of the poll; and tasks that were woken.
//!
//! Whoever polls sends them, so that nothing is to be done while somebody polls. A thread that
//! falls asleep while messages wait sleeps as [`Sleeper::Room`], and is woken when a peer has
//! taken something; but whether messages wait may change when it has already decided how to
//! sleep, and there may be room before it asks for being told. So:
//!
//! - Whoever finds that there is no room, where there was before, [wakes](Progress::look_after_backlog)
//!   those threads of the rank that sleep for something else.
//! - Whoever is about to sleep asks [once more](Progress::would_sleep_past_room), when it can be
//!   woken: it does not sleep if messages have begun to wait, or if those that waited can go.
//! - While messages wait, the service thread naps for a millisecond at most, and looks after every
//!   nap; it leaves that to application threads only while these sleep, for room.

use std::{
    cell::Cell,
    ptr,
    sync::atomic::{
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use hydrant_conduit::Sleeper;

use super::Progress;

/// What may be to be done.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Backlog {
    /// Messages of the room that registers memory wait for room.
    Registration = 1,
    /// Messages of [handlers](super::onward) do.
    Onward = 2,
    /// [Tasks](super::spawned) were woken.
    Tasks = 4,
    /// Messages of the room that registers memory, for which there is room, go along with what this thread
    /// sends in the same poll.
    Along = 8,
}

thread_local! {
    /// Of whom this thread is polling; null if of nobody.
    static POLLED: Cell<*const Progress> = const { Cell::new(ptr::null()) };
}

/// How often a poll looks again for tasks that tasks have woken.
const ROUNDS: u32 = 4;

/// This thread polls until this is dropped, and then the tasks that were woken meanwhile.
pub(super) struct Polls<'a> {
    progress: &'a Progress,
    before: *const Progress,
}

impl Drop for Polls<'_> {
    fn drop(&mut self) {
        let progress = self.progress;
        if progress.has_backlog() {
            match ptr::eq(self.before, progress) {
                // In the midst of another poll, which may be in a handler that waits for what a task does: whoever
                // sleeps polls it.
                true => {
                    progress.flush_backlog();
                    if progress.has_backlog_of(Backlog::Tasks) {
                        progress.look_after_backlog();
                    }
                }
                false => progress.flush_woken(),
            }
        }
        POLLED.set(self.before);
    }
}

impl Progress {
    /// This thread polls from now on.
    #[inline]
    pub(super) fn polls(&self) -> Polls<'_> {
        Polls {
            progress: self,
            before: POLLED.replace(self),
        }
    }

    fn is_polled_here(&self) -> bool {
        ptr::eq(POLLED.get(), self)
    }

    /// The service thread sleeps, for longer than messages that found no room may wait, and for
    /// something else than room.
    pub(super) fn service_rests(&self, rests: bool) {
        self.service_rests.store(rests, Relaxed);
        // Then it looks whether messages wait; who found no room looks whether it rests after that.
        fence(SeqCst);
    }
}

impl Progress {
    /// Whether messages wait for room, or tasks to be polled.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Relaxed) != 0
    }

    pub(crate) fn has_backlog_of(&self, what: Backlog) -> bool {
        self.backlog.load(Relaxed) & what as u8 != 0
    }

    /// Says whether something is to be done, by who holds it: whether it is now and was not before.
    pub(crate) fn set_backlog(&self, what: Backlog, waits: bool) -> bool {
        let waited = if waits {
            self.backlog.fetch_or(what as u8, SeqCst)
        } else {
            self.backlog.fetch_and(!(what as u8), SeqCst)
        };
        waits && waited & what as u8 == 0
    }

    /// Sends what there is room for, and polls tasks, if there is anything of that.
    #[inline]
    pub(crate) fn flush_backlog(&self) {
        if self.has_backlog() {
            self.work_off();
        }
    }

    #[cold]
    fn work_off(&self) {
        // Before the program's own code, that of tasks.
        self.flush_along();
        // Tasks are not polled in the midst of another, or of a handler.
        if self.has_backlog_of(Backlog::Tasks) && super::may_wait("a task").is_ok() {
            self.run_tasks();
        }
        if self.has_backlog_of(Backlog::Onward) {
            self.flush_onward();
        }
        if self.has_backlog_of(Backlog::Registration) {
            self.tell_operations(|operations| operations.flush());
        }
    }

    /// Sends what was to go along with something else, before something that may take long.
    #[inline]
    pub(crate) fn flush_along(&self) {
        if self.has_backlog_of(Backlog::Along) {
            self.send_along();
        }
    }

    #[cold]
    fn send_along(&self) {
        self.tell_operations(|operations| operations.flush());
    }

    /// Whether messages whose asker has what it waited for may be sent at the end of this thread's poll, and not at
    /// once: then they go with an answer to what has arrived meanwhile. In the midst of the program's own code, a
    /// handler's or a task's, that end may be far.
    pub(crate) fn may_send_along(&self) -> bool {
        !self.virtual_time && self.is_polled_here() && super::may_wait("what was granted").is_ok()
    }

    /// A task was woken. Whoever polls just now, this thread among them, polls it before that is over: nobody has to
    /// be woken for it, which takes longer than most tasks do.
    pub(super) fn look_after_task(&self) {
        if !self.is_polled_here() {
            self.look_after_backlog();
        }
    }

    /// Polls the tasks that were woken while this thread polled, and by those tasks. What is left then is looked after as
    /// what was woken elsewhere.
    pub(super) fn flush_woken(&self) {
        for _ in 0..ROUNDS {
            self.flush_backlog();
            if !self.has_backlog_of(Backlog::Tasks) {
                return;
            }
        }
        self.look_after_backlog();
    }

    /// Something has begun to wait. Whoever sleeps for something else is woken, so that
    /// it looks after them.
    pub(crate) fn look_after_backlog(&self) {
        if self.has_sleepers() || self.service_rests.load(Relaxed) {
            self.conduit.wake(self.rank);
        }
    }

    /// Whether a thread that can be woken as this sleeper must not sleep because messages that
    /// found no room can go, or have begun to wait meanwhile.
    pub(super) fn would_sleep_past_room(&self, sleeper: Sleeper) -> bool {
        if self.has_backlog_of(Backlog::Tasks) {
            return true;
        }
        if self.has_backlog() && sleeper == Sleeper::Room {
            self.flush_backlog();
            return !self.has_backlog();
        }
        self.has_backlog()
    }
}
