//! Holds of operations: references and slots, which are given back at the end.

use hydrant_pinning::KeptHit;

use super::bounce::BounceSlot;
use crate::{
    Rank,
    registration::{Lease, Registration},
};

/// The holds of an operation in flight.
pub(crate) struct OperationHolds {
    pub(super) kind: HoldKind,
    /// The lease on the loan that the operation accesses.
    pub(super) lease: Option<Lease>,
}

/// The kind of holds.
pub(super) enum HoldKind {
    Nothing,
    /// References to both registered sides, or to the remote one.
    Hit(KeptHit),
    /// A slot of the bounce memory, with the data.
    Slot(BounceSlot),
    /// References and a slot.
    SlotAndHit(KeptHit, BounceSlot),
    /// A piece of the engine: its id there, and the peer.
    Piece(u64, Rank),
}

impl OperationHolds {
    /// Returns no holds.
    pub(super) fn nothing() -> Self {
        Self::new(None, None, None)
    }

    /// Returns the hold of a piece of the engine.
    pub(super) fn piece(id: u64, peer: Rank) -> Self {
        Self {
            kind: HoldKind::Piece(id, peer),
            lease: None,
        }
    }

    pub(super) fn new(
        hit: Option<KeptHit>,
        slot: Option<BounceSlot>,
        lease: Option<Lease>,
    ) -> Self {
        let kind = match (hit, slot) {
            (None, None) => HoldKind::Nothing,
            (Some(hit), None) => HoldKind::Hit(hit),
            (None, Some(slot)) => HoldKind::Slot(slot),
            (Some(hit), Some(slot)) => HoldKind::SlotAndHit(hit, slot),
        };
        Self { kind, lease }
    }

    /// Returns whether the holds are given back before the end is known: the data of a get is still
    /// in a slot.
    pub(super) fn precedes_end(&self) -> bool {
        match &self.kind {
            HoldKind::Slot(slot) | HoldKind::SlotAndHit(_, slot) => slot.is_read(),
            HoldKind::Piece(..) => true,
            HoldKind::Nothing | HoldKind::Hit(_) => false,
        }
    }

    /// Returns whether this is a piece of the engine, which nobody waits for.
    pub(super) fn is_piece(&self) -> bool {
        matches!(self.kind, HoldKind::Piece(..))
    }

    /// Returns whether a peer may wait until the holds are given back.
    pub(super) fn is_awaited(&self, registration: &Registration) -> bool {
        let refers = matches!(self.kind, HoldKind::Hit(_) | HoldKind::SlotAndHit(..));
        let lent = self.lease.as_ref();
        self.is_piece()
            || refers && registration.is_asked_back()
            || lent.is_some_and(|lease| registration.is_over(lease))
    }
}
