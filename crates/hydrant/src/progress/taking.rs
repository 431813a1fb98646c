//! Looking after the messages of one kind alone: a thread that waits for one of them takes it where it arrives, which
//! costs less than a [route](super::Route), and than being told of it.
//!
//! What it passes over is looked after by others or later. So it is no more than so often in a row that a
//! thread may do this, and only where there is nothing else to do that whoever polls does.

use hydrant_conduit::Delivery;

use super::Progress;
use crate::Rank;

/// How often in a row a thread may leave other messages to a poll; a power of two, as the next two are.
const IN_A_ROW: u32 = 64;
/// The same where nobody else looks after them while the program computes.
const UNSERVED_IN_A_ROW: u32 = 16;
/// Of so many looks round that may leave messages of the kind, one leaves none. Kept messages are received first, and
/// peers that send other kinds between may fill them up as fast as that: without it nobody would look at the rest.
const PAST: u32 = 8;
/// Looks of a thread that waits, before it waits in another way: for as long as who waits [polls](super::wait) without
/// a rest.
const LOOKS: u32 = 64;
const CROWDED_LOOKS: u32 = 2;

impl Progress {
    /// Whether this thread may look after messages of one kind alone now. It looks after messages then.
    #[inline]
    pub(crate) fn may_take(&self) -> bool {
        if self.virtual_time || self.has_errands() || self.has_backlog() {
            return false;
        }
        self.attention().attend();
        true
    }

    /// How often in a row a thread may pass over other messages.
    fn in_a_row(&self) -> u32 {
        if self.served {
            IN_A_ROW
        } else {
            UNSERVED_IN_A_ROW
        }
    }

    /// This thread found a message of this kind without a look at all that arrives, or may: it looks round, if it has not
    /// for so long. What it would find next in the same way, of one peer or of all, mostly stays where it is, for it takes
    /// that itself.
    #[inline]
    pub(crate) fn found_one(&self, kind: u8, of: Option<Rank>) {
        if self.virtual_time {
            return;
        }
        let (passed_over, in_a_row) = (self.attention().passes_over(), self.in_a_row());
        // Powers of two, so that nothing is divided.
        let is_due = |every: u32| passed_over & (every - 1) == 0;
        if is_due(in_a_row) {
            if is_due(PAST * in_a_row) {
                _ = self.look_round();
            } else {
                _ = self.look_round_past(kind, of);
            }
        }
    }

    /// How often a thread that waits looks for messages of one kind alone.
    #[inline]
    pub(crate) fn looks(&self) -> u32 {
        if self.crowded { CROWDED_LOOKS } else { LOOKS }
    }

    /// Hands over messages of one kind that have arrived, until `take` says that it wants no more: whether
    /// a [poll](Self::poll) may find something else.
    #[inline]
    pub(crate) fn take(&self, kind: u8, mut take: impl FnMut(&Delivery<'_>) -> bool) -> bool {
        let mut delivered = false;
        let others = self.conduit.take(kind, &mut |delivery| {
            delivered = true;
            take(delivery)
        });
        if delivered {
            self.wake_hopeful();
        }
        others
    }
}
