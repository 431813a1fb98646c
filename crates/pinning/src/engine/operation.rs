//! What is asked of an engine: operations, and what peers want of own memory.

use crate::{Direction, Refusal, Region};

/// A put or a get that is no hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Names it; the driver's choice, not in use.
    pub id: u64,
    /// With whom.
    pub peer: u32,
    /// Which way.
    pub direction: Direction,
    /// The own address.
    pub local: u64,
    /// The memory of the peer's that is meant.
    pub region: Region,
    /// The peer's address.
    pub remote: u64,
    /// Bytes.
    pub len: u64,
    /// How the own memory stands.
    pub own: Own,
    /// Whether it goes through messages, whatever is registered: of the peer's memory it is
    /// not known that it lasts as long as what is registered of its bucket.
    pub copied: bool,
}

/// How the own memory of an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    /// It goes only after it was [taken back](crate::Engine::revoke), or what is registered of it
    /// follows it wherever it is mapped: it may be kept registered.
    Persistent,
    /// It may come and go unseen: it is registered for the operation alone.
    Transient,
    /// The NIC takes it along with the operation, a put: it needs no registration.
    Inline,
}

/// What the driver says of what a message asks of own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may be.
    Fine,
    /// It may be reached, but not kept registered: it may come and go unseen.
    Copy,
    /// It may not be.
    Refused(Refusal),
}

impl Verdict {
    pub(super) fn refusal(self) -> Option<Refusal> {
        match self {
            Verdict::Refused(why) => Some(why),
            Verdict::Fine | Verdict::Copy => None,
        }
    }

    /// Why nothing is registered for it.
    pub(super) fn objection(self) -> Option<Refusal> {
        match self {
            Verdict::Copy => Some(Refusal::Limit),
            verdict => verdict.refusal(),
        }
    }
}
