//! The backlog: work that is due at the next poll.
//!
//! - Messages of the registration room, and of handlers, for which a peer had no room. They are
//!   sent when there is room.
//! - Messages that nobody waits for. They are sent along with others, before a user's handler or at
//!   the end of the poll.
//! - Tasks that were woken.
//!
//! PollScope work the backlog off, so that no thread is needed while another polls. A thread that falls
//! asleep while messages wait sleeps as [`Sleeper::Room`], and is woken when a peer has taken
//! something. But messages may begin to wait after the thread has chosen how to sleep. There may
//! also be room before the thread asks to be told. So:
//!
//! - A thread that finds no room, where there was room before,
//!   [wakes](Progress::wake_for_backlog) the threads of the rank that sleep for something else.
//! - A thread that is about to sleep, and can be woken by then, checks [once
//!   more](Progress::would_sleep_past_room). It does not sleep if messages have begun to wait, or
//!   if waiting messages can be sent.
//! - While messages wait, the service thread naps for at most a millisecond, and polls after every
//!   nap. It leaves the polls to application threads only while these sleep for room.

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

/// The kinds of work that may be due.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Backlog {
    /// Messages of the registration room wait for room.
    Registration = 1,
    /// Messages of [handlers](super::onward) wait for room.
    Onward = 2,
    /// [Tasks](super::spawned) were woken.
    Tasks = 4,
    /// Changes of own memory are not known to the registration room yet.
    Changes = 16,
    /// Messages of the registration room, for which there is room, wait to be sent along with
    /// others in the same poll.
    Along = 8,
}

thread_local! {
    /// The rank that this thread is polling, or null.
    static POLLED: Cell<*const Progress> = const { Cell::new(ptr::null()) };
}

/// How often a poll runs tasks again that other tasks have woken.
const ROUNDS: u32 = 4;

/// Marks this thread as polling until it is dropped. Then runs the tasks that were woken meanwhile.
pub(super) struct PollScope<'a> {
    progress: &'a Progress,
    before: *const Progress,
}

impl Drop for PollScope<'_> {
    fn drop(&mut self) {
        let progress = self.progress;
        if progress.has_backlog() {
            if ptr::eq(self.before, progress) {
                // This poll is within another one, perhaps in a handler that waits for a task. A
                // sleeping thread is woken to run the task.
                progress.flush_backlog();
                if progress.has_backlog_of(Backlog::Tasks) {
                    progress.wake_for_backlog();
                }
            } else {
                progress.flush_woken();
            }
        }
        POLLED.set(self.before);
    }
}

impl Progress {
    /// Marks this thread as polling.
    #[inline]
    pub(super) fn begin_poll(&self) -> PollScope<'_> {
        PollScope {
            progress: self,
            before: POLLED.replace(self),
        }
    }

    /// Returns whether this thread polls at this moment. It then handles a message, and cannot wait for another.
    pub(crate) fn is_polled_here(&self) -> bool {
        ptr::eq(POLLED.get(), self)
    }

    /// Notes whether the service thread sleeps for something other than room, and for longer than
    /// messages without room may wait.
    pub(super) fn service_rests(&self, rests: bool) {
        self.service_rests.store(rests, Relaxed);
        // The service thread then checks for waiting messages. A thread that finds no room reads
        // the flag after it has noted the message.
        fence(SeqCst);
    }
}

impl Progress {
    /// Returns whether messages wait for room or tasks wait to run.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Relaxed) != 0
    }

    pub(crate) fn has_backlog_of(&self, what: Backlog) -> bool {
        self.backlog.load(Relaxed) & what as u8 != 0
    }

    /// Sets or clears a kind of work; called by the owner of that work. Returns whether the work is
    /// due now and was not before.
    pub(crate) fn set_backlog(&self, what: Backlog, waits: bool) -> bool {
        let waited = if waits {
            self.backlog.fetch_or(what as u8, SeqCst)
        } else {
            self.backlog.fetch_and(!(what as u8), SeqCst)
        };
        waits && waited & what as u8 == 0
    }

    /// Sends the messages for which there is room, and runs woken tasks.
    #[inline]
    pub(crate) fn flush_backlog(&self) {
        if self.has_backlog() {
            self.work_off();
        }
    }

    #[cold]
    fn work_off(&self) {
        if self.has_backlog_of(Backlog::Changes) {
            self.set_backlog(Backlog::Changes, false);
            self.tell_operations(|operations| operations.learn_changes());
        }
        // Before tasks, which are user code.
        self.flush_along();
        // Tasks are not run within another task or a handler.
        if self.has_backlog_of(Backlog::Tasks) && super::may_wait("a task").is_ok() {
            self.run_tasks();
        }
        if self.has_backlog_of(Backlog::Registration) {
            self.tell_operations(|operations| operations.flush());
        }
        // They may have to follow messages of the registration room.
        if self.has_backlog_of(Backlog::Onward) {
            self.flush_onward();
        }
    }

    /// Sends the messages that wait to be sent along with others. Called before something that may
    /// take long.
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

    /// Returns whether messages that nobody waits for may be sent at the end of this thread's poll.
    /// They then go along with an answer to what has arrived meanwhile. Within a handler or a task,
    /// which is user code, the end of the poll may be far.
    pub(crate) fn may_send_along(&self) -> bool {
        !self.virtual_time && self.is_polled_here() && super::may_wait("what was granted").is_ok()
    }

    /// Sees to it that a woken task runs. A thread that polls now, perhaps this one, runs it before
    /// its poll ends. Then no thread is woken, which would take longer than most tasks do.
    pub(super) fn wake_for_task(&self) {
        if !self.is_polled_here() {
            self.wake_for_backlog();
        }
    }

    /// Runs the tasks that were woken by this poll or by those tasks. Wakes another thread for the
    /// rest.
    pub(super) fn flush_woken(&self) {
        for _ in 0..ROUNDS {
            self.flush_backlog();
            if !self.has_backlog_of(Backlog::Tasks) {
                return;
            }
        }
        self.wake_for_backlog();
    }

    /// Wakes threads that sleep for something else, because work has become due.
    pub(crate) fn wake_for_backlog(&self) {
        if self.has_sleepers() || self.service_rests.load(Relaxed) {
            self.conduit.wake(self.rank);
        }
    }

    /// Returns whether a thread that can be woken as `sleeper` must not sleep. It must not if
    /// messages without room can be sent now, or if other messages have begun to wait.
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
