//! Receives messages of one kind alone. A thread that waits for such a message takes it where it
//! arrives, which costs less than a [route](super::Route) and a notification.
//!
//! Other messages stay for other threads or later polls. So a thread may do this only a limited
//! number of times in a row, and only while polls have nothing else to do.

use hydrant_conduit::Delivery;

use super::Progress;
use crate::Rank;

/// The number of times in a row that a thread may leave other messages unhandled. It is a power of
/// two, as are the next two.
const IN_A_ROW: u32 = 64;
/// The same where no service thread handles them while the program computes.
const UNSERVED_IN_A_ROW: u32 = 16;
/// Of so many polls that may skip messages of the kind, one skips none. Kept messages are received
/// first, and peers that also send other kinds may refill them as fast as that. Without a full poll
/// the other messages would never be handled.
const PAST: u32 = 8;
/// Attempts of a waiting thread before it waits in another way. They last about as long as a waiter
/// [polls](super::wait) without a rest.
const LOOKS: u32 = 64;
const CROWDED_LOOKS: u32 = 2;

impl Progress {
    /// Returns whether this thread may now receive messages of one kind alone. If so, the thread
    /// counts as handling messages.
    #[inline]
    pub(crate) fn may_take(&self) -> bool {
        if self.virtual_time || self.has_errands() || self.has_backlog() {
            return false;
        }
        self.attention().attend();
        true
    }

    /// Returns how many times in a row a thread may skip other messages.
    fn in_a_row(&self) -> u32 {
        if self.served {
            IN_A_ROW
        } else {
            UNSERVED_IN_A_ROW
        }
    }

    /// Notes that this thread received, or may receive, a message of this kind without a full poll.
    /// Polls now and then. Most of those polls skip further messages of the kind, from one peer or
    /// from all, because the thread takes these itself.
    #[inline]
    pub(crate) fn note_taken(&self, kind: u8, of: Option<Rank>) {
        if self.virtual_time {
            return;
        }
        let (passed_over, in_a_row) = (self.attention().count_passed_over(), self.in_a_row());
        // Powers of two, so that nothing is divided.
        let is_due = |every: u32| passed_over & (every - 1) == 0;
        if is_due(in_a_row) {
            if is_due(PAST * in_a_row) {
                _ = self.make_progress();
            } else {
                _ = self.make_progress_past(kind, of);
            }
        }
    }

    /// Returns how many times a waiting thread tries to receive messages of one kind alone.
    #[inline]
    pub(crate) fn takes_before_wait(&self) -> u32 {
        if self.crowded { CROWDED_LOOKS } else { LOOKS }
    }

    /// Passes messages of one kind that have arrived to `take`, until `take` returns false. Returns
    /// whether a [poll](Self::poll) may find anything else.
    #[inline]
    pub(crate) fn take(&self, kind: u8, mut take: impl FnMut(&Delivery<'_>) -> bool) -> bool {
        let mut delivered = false;
        let others = self.conduit.take(kind, &mut |delivery| {
            delivered = true;
            take(delivery)
        });
        if delivered {
            self.wake_condition_waiters();
        }
        others
    }
}
