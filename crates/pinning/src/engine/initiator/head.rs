//! The head of a piece: its first bytes, which are copied through messages while the peer registers
//! the rest. ARMCI §3 overlaps registration on both sides, and injects early.
//!
//! A move takes a message, a registration and an answer, and the network would be idle meanwhile.
//! The rest of the piece is unchanged: all of its buckets are moved, and its own memory is
//! registered whole, for the next operation on it.

use super::{Initiator, StepContext};

impl Initiator {
    /// Copies the head of a piece whose move was just sent. `moved` has the move's number of
    /// buckets, and true if it evicts.
    pub(super) fn copy_head(&mut self, id: u64, moved: (u64, bool), cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return self.impossible.note("a piece that is over gets a head");
        };
        let (Some(choice), Some(trial)) = (&self.choice, &mut piece.trial) else {
            return;
        };
        // The rest begins at a page of the peer, and less than a page is not worth a message.
        let page = cx.config().page as u64;
        let end = piece.remote + choice.head(trial.class, piece.len, moved);
        let head = (end / page * page).saturating_sub(piece.remote);
        if head < page {
            return;
        }
        // The time of a piece with a head is a sample neither of a move nor of a copy.
        trial.route = None;
        let first = piece.split_head(head);
        if let Some(op) = self.ops.get_mut(&first.op) {
            op.count_piece();
        }
        self.stats.pieces += 1;
        self.stats.heads += 1;
        let name = cx.name();
        self.pieces.insert(name, first);
        self.start_copy(name, cx);
    }
}
