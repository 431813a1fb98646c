//! Requests on own memory, their holds, and the registrations that they wait for.

use crate::{
    Refusal, Run, Use,
    wire::{Grant, Need},
};

/// The user of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Requester {
    /// A piece of an own operation.
    Piece(u64),
    /// A piece of an own operation on memory that may come and go unseen.
    Transient(u64),
    /// A peer's move.
    Move(u64),
    /// A peer's pull.
    Pull(u64),
    /// A pull that a peer has announced.
    Ahead,
    /// Memory pinned for good, for peers.
    Pin(u64),
    /// Memory kept for good, for own operations.
    Keep(u64),
    /// Memory that the own NIC changes for this rank.
    Own(u64),
    /// Memory held for one transfer outside the engine's operations, with its lifetime.
    Held(u64, Lifetime),
    /// Memory that is expected to be needed soon.
    Foreseen(u64),
    /// Memory registered in the background, as far as there is room.
    Background(u64),
}

/// The lifetime of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Lifetime {
    /// The memory stays what it is until the engine is told.
    Persistent,
    /// The memory may come and go unseen.
    Transient,
}

impl Requester {
    /// Returns true if the request may wait for others. A peer's request may not: the peer gets an
    /// answer, so that no two ranks ever wait for each other.
    pub(super) fn may_wait(self) -> bool {
        matches!(self, Requester::Piece(_) | Requester::Transient(_))
    }

    /// Returns true if the registration ends with the request.
    pub(super) fn is_transient(self) -> bool {
        matches!(
            self,
            Requester::Transient(_) | Requester::Held(_, Lifetime::Transient)
        )
    }

    /// Returns true if the request needs memory to stay what it was when the driver judged it, and is copied otherwise.
    pub(super) fn is_judged(self) -> bool {
        matches!(
            self,
            Requester::Piece(_)
                | Requester::Move(_)
                | Requester::Pull(_)
                | Requester::Ahead
                | Requester::Foreseen(_)
                | Requester::Background(_)
        )
    }

    /// Returns true if nothing waits for the memory yet.
    pub(super) fn is_ahead(self) -> bool {
        matches!(self, Requester::Foreseen(_) | Requester::Background(_))
    }

    pub(super) fn is_peer(self) -> bool {
        matches!(self, Requester::Move(_))
    }
}

/// A reference on an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct LocalHold {
    pub(in crate::engine) slot: u32,
    /// The part of the extent that is used.
    pub(in crate::engine) run: Run,
    pub(in crate::engine) key: u64,
    pub(in crate::engine) writable: bool,
}

impl LocalHold {
    pub(in crate::engine) fn grant(&self) -> Grant {
        Grant {
            run: self.run,
            key: self.key,
            writable: self.writable,
        }
    }
}

/// The references on an extent by several holders.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct HoldCount {
    pub(super) count: u32,
    /// The most buckets of the extent that one holder uses.
    pub(super) most: u64,
}

#[derive(Debug)]
pub(in crate::engine) struct LocalRequest {
    pub(super) requester: Requester,
    pub(super) needs: Vec<Need>,
    pub(super) used: Use,
    /// The holds, sorted by bucket once the request is done.
    pub(in crate::engine) holds: Vec<LocalHold>,
    pub(in crate::engine) refused: Vec<(Run, Refusal)>,
    /// The number of registrations and deregistrations that it waits for.
    pub(super) pending: u32,
    /// True if there was no room, so that the request starts again when there may be.
    pub(super) restart: bool,
    /// True if memory of it has changed since it was judged. What it still needs is refused then, so that it is copied.
    pub(super) outdated: bool,
    /// True if it may wait for room. It may not if its needs can never be met all at once, because
    /// parts of it would wait for each other.
    pub(super) waits: bool,
}

/// A registration that was decided on and is not done.
#[derive(Debug)]
pub(super) struct PendingRegistration {
    pub(super) id: u64,
    pub(super) need: Run,
    pub(super) preferred: Run,
    /// The requests that wait, with the buckets that each waits for.
    pub(super) waiters: Vec<(u64, Run)>,
    pub(super) started: bool,
    pub(super) retried: bool,
    /// True if a peer will hold it.
    pub(super) pledged: bool,
    /// True if it serves only the operation of the first waiter.
    pub(super) transient: bool,
    /// True if the memory has changed since the registration was decided, so that it may hold the pages from before.
    pub(super) outdated: bool,
}

/// A deregistration that was decided on and is not done.
#[derive(Debug)]
pub(super) struct PendingDeregistration {
    pub(super) run: Run,
    pub(super) waiters: Vec<(u64, Need)>,
}
