//! The input of an engine: operations of this rank, and judgments of peers' accesses.

use crate::{Direction, Refusal, RegionNumber};

/// A put or a get that missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineOperation {
    /// The driver's name for it, not in use.
    pub id: u64,
    /// The rank of the peer.
    pub peer: u32,
    /// The direction of the data.
    pub direction: Direction,
    /// The own address.
    pub local: u64,
    /// The peer's region that is meant.
    pub region: RegionNumber,
    /// The peer's address.
    pub remote: u64,
    /// The length in bytes.
    pub len: u64,
    /// The lifetime of the own memory.
    pub own: OwnMemory,
    /// True if the operation must be copied through messages, whatever is registered. The peer's
    /// memory may not last as long as the registration of its bucket.
    pub copied: bool,
}

/// The lifetime of the own memory of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnMemory {
    /// The memory goes only after it was [taken back](crate::Engine::revoke), or its registration
    /// follows it wherever it is mapped. So it may stay registered.
    Persistent,
    /// The memory may come and go unseen, so it is registered for the operation alone.
    Transient,
    /// The NIC takes the data along with the operation, a put, so the memory needs no registration.
    Inline,
    /// The NIC needs no registration of own memory. The operation uses the memory until it is over.
    Unregistered,
}

/// The driver's judgment of a message's access to own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessVerdict {
    /// The access is allowed.
    Fine,
    /// The access is allowed, but the memory may come and go unseen, so it must not stay
    /// registered.
    Copy,
    /// The access is refused.
    Refused(Refusal),
}

impl AccessVerdict {
    pub(super) fn refusal(self) -> Option<Refusal> {
        match self {
            AccessVerdict::Refused(why) => Some(why),
            AccessVerdict::Fine | AccessVerdict::Copy => None,
        }
    }

    /// The reason why nothing is registered for the access, if so.
    pub(super) fn objection(self) -> Option<Refusal> {
        match self {
            AccessVerdict::Copy => Some(Refusal::Limit),
            verdict => verdict.refusal(),
        }
    }
}
