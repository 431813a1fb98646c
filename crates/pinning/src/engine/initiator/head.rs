//! The head of a piece: what of it is copied through messages while the peer registers the rest (ARMCI §3:
//! registration overlapped on both sides, and injection that starts early).
//!
//! A move takes a message there, a registration and a message back, in which the network would be idle.
//! The rest of the piece is as before: all of its buckets are moved, and its own memory is registered
//! whole, for the next operation that comes here.

use super::{Initiator, StepContext};

impl Initiator {
    /// Copies the head of a piece whose move was just asked for, of so many buckets, for which others were
    /// given up or not.
    pub(super) fn copy_head(&mut self, id: u64, moved: (u64, bool), cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get_mut(&id) else {
            return self.impossible.note("a piece that is over gets a head");
        };
        let (Some(choice), Some(tried)) = (&self.choice, &mut piece.tried) else {
            return;
        };
        // What is left begins at a page of the peer's, and less than one is not worth a message.
        let page = cx.config().page as u64;
        let end = piece.remote + choice.head(tried.class, piece.len, moved);
        let head = (end / page * page).saturating_sub(piece.remote);
        if head < page {
            return;
        }
        // What it takes is neither what a move takes nor what a copy does.
        tried.route = None;
        let first = piece.split_head(head);
        if let Some(op) = self.ops.get_mut(&first.op) {
            op.joined();
        }
        self.stats.pieces += 1;
        self.stats.heads += 1;
        let name = cx.name();
        self.pieces.insert(name, first);
        self.start_copy(name, cx);
    }
}
