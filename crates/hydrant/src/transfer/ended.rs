//! The end of an operation: it gives back its holds and tells its waiters. Some holds are given back
//! before waiters learn of the end, others after it.

use hydrant_conduit::Ticket;
use hydrant_pinning::Hit;

use super::{
    OperationHolds, Transfer,
    bounce::BounceSlot,
    held::HoldKind,
    in_flight::{Completed, OperationFailure, OperationResult},
};
use crate::registration::Registration;

impl Transfer {
    /// Notes that an operation was posted to the conduit, or begun at the engine. `source_free`: it
    /// needs its source no longer.
    pub(super) fn note_posted(&self, ticket: Ticket, held: OperationHolds, source_free: bool) {
        if let Some((held, outcome)) = self.in_flight.post(ticket, held, source_free) {
            self.finish_before_end(ticket, held, outcome);
            self.progress.wake_sleepers();
        }
    }

    /// Handles the end of an operation, as the conduit or the engine reports it.
    pub(super) fn handle_end(&self, ticket: Ticket, outcome: OperationResult) {
        let Completed {
            before_end,
            after_end,
            notice,
        } = self.in_flight.complete(ticket, outcome);
        if let Some((held, outcome)) = before_end {
            self.finish_before_end(ticket, held, outcome);
        }
        if let Some(held) = after_end {
            self.give_back(held, true);
        }
        self.deliver(notice);
    }

    fn finish_before_end(&self, ticket: Ticket, held: OperationHolds, outcome: OperationResult) {
        if let HoldKind::Piece(id, peer) = held.kind {
            // Nobody waits for a piece, so its entry is removed.
            let _ = self.in_flight.forget(ticket);
            let outcome = match outcome {
                Ok(()) => Ok(()),
                Err(OperationFailure::Network(cause)) => Err(cause),
                Err(OperationFailure::Registration(cause)) => {
                    debug_assert!(false, "the engine ended a transfer: {cause}");
                    Err(hydrant_conduit::Error::PeerLost(peer))
                }
            };
            if let Some(registration) = &self.registration {
                registration.transferred(id, peer, outcome);
            }
            return;
        }
        self.give_back(held, outcome.is_ok());
        let notice = self.in_flight.end(ticket, outcome);
        self.deliver(notice);
    }

    /// Gives back the holds of an operation. The data of a get that succeeded is copied to its
    /// destination.
    pub(super) fn give_back(&self, held: OperationHolds, succeeded: bool) {
        // Without registration there are no holds.
        let Some(registration) = &self.registration else {
            return;
        };
        let OperationHolds { kind, lease } = held;
        match kind {
            HoldKind::Nothing | HoldKind::Piece(..) => {}
            HoldKind::Hit(hit) => registration.release_kept(&hit),
            HoldKind::Slot(slot) => self.give_back_slot(slot, succeeded),
            HoldKind::SlotAndHit(hit, slot) => {
                self.give_back_slot(slot, succeeded);
                registration.release_kept(&hit);
            }
        }
        registration.let_go(lease);
    }

    /// As [`give_back`](Self::give_back), for a hit that was complete at once.
    #[inline(always)]
    pub(super) fn give_back_hit(
        &self,
        registration: &Registration,
        hit: &Hit<'_>,
        slot: Option<BounceSlot>,
        succeeded: bool,
    ) {
        if let Some(slot) = slot {
            self.give_back_slot(slot, succeeded);
        }
        registration.release(hit);
    }

    fn give_back_slot(&self, slot: BounceSlot, succeeded: bool) {
        if let Some(bounce) = self.bounce.get() {
            (self.progress.conduit()).copied(bounce.give_back(slot, succeeded));
        }
    }
}
