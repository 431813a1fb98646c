//! The backlog: messages of the room above for which a peer had no room, and who sends them when
//! there is some.
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

use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};

use hydrant_conduit::Sleeper;

use super::Progress;

impl Progress {
    /// The service thread sleeps, for longer than messages that found no room may wait, and for
    /// something else than room.
    pub(super) fn service_rests(&self, rests: bool) {
        self.service_rests.store(rests, Relaxed);
        // Then it looks whether messages wait; who found no room looks whether it rests after that.
        fence(SeqCst);
    }
}

impl Progress {
    /// Whether messages wait for room.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Relaxed)
    }

    /// Says whether messages wait for room, by who holds them: whether they do now and none did before.
    pub(crate) fn set_backlog(&self, waits: bool) -> bool {
        let waited = self.backlog.swap(waits, SeqCst);
        waits && !waited
    }

    /// Sends what there is room for, if messages wait.
    #[inline]
    pub(crate) fn flush_backlog(&self) {
        if self.has_backlog() {
            self.tell_operations(|operations| operations.flush());
        }
    }

    /// Messages have begun to wait for room. Whoever sleeps for something else is woken, so that
    /// it looks after them.
    pub(crate) fn look_after_backlog(&self) {
        if self.has_sleepers() || self.service_rests.load(Relaxed) {
            self.conduit.wake(self.rank);
        }
    }

    /// Whether a thread that can be woken as this sleeper must not sleep because messages that
    /// found no room can go, or have begun to wait meanwhile.
    pub(super) fn would_sleep_past_room(&self, sleeper: Sleeper) -> bool {
        if self.has_backlog() && sleeper == Sleeper::Room {
            self.flush_backlog();
            return !self.has_backlog();
        }
        self.has_backlog()
    }
}
