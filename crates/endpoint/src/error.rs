//! Errors of endpoints, each with its remedy.

use std::{fmt, time::Duration};

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call failed.
///
/// `Debug` prints the same sentence as `Display`, because `main` and `unwrap` print errors by `Debug`.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes are no address.
    #[error("these bytes are no address of an endpoint: {0}")]
    BadAddress(&'static str),

    /// Bytes are no descriptor.
    #[error("these bytes are no descriptor of a region: {0}")]
    BadDescriptor(&'static str),

    /// The address is this endpoint's own.
    #[error("the address is this endpoint's own: an endpoint connects to others only")]
    OwnAddress,

    /// A name is too long.
    #[error("a name of {len} bytes is above the limit of {limit}")]
    NameTooLong {
        /// The bytes of the name.
        len: usize,
        /// The most bytes.
        limit: usize,
    },

    /// The peer cannot be reached, or does not want to be.
    #[error("endpoint {peer} is not reached: {why}")]
    Unreachable {
        /// The peer.
        peer: String,
        /// The reason.
        why: String,
    },

    /// The peer ended, was killed or cannot be reached any more.
    #[error("endpoint {peer} is lost: {cause}")]
    Lost {
        /// The peer.
        peer: String,
        /// The cause.
        cause: LossCause,
    },

    /// The peer has closed its endpoint.
    #[error("endpoint {peer} has left")]
    Left {
        /// The peer.
        peer: String,
    },

    /// Nobody has connected to the peer, or the connection has ended.
    #[error("endpoint {peer} is not connected: call Endpoint::connect")]
    NotConnected {
        /// The peer.
        peer: String,
    },

    /// The descriptor is of another endpoint, or of another incarnation of this one.
    #[error(
        "the descriptor is of incarnation {owner:016x}, and endpoint {peer} is incarnation {found:016x}: the owner has \
         been started again, or is another"
    )]
    OtherOwner {
        /// The peer that was asked.
        peer: String,
        /// The owner that the descriptor names.
        owner: u64,
        /// The peer's incarnation.
        found: u64,
    },

    /// The descriptor was not made by the owner of the region, or was changed.
    #[error("endpoint {peer} has not made this descriptor: it was changed, or is of a stranger")]
    Forged {
        /// The owner.
        peer: String,
    },

    /// The owner has revoked the region.
    #[error("the region of endpoint {peer} is revoked")]
    Revoked {
        /// The owner.
        peer: String,
    },

    /// The time for which memory was lent is over.
    #[error("the time for which endpoint {peer} lent the region is over")]
    Expired {
        /// The owner.
        peer: String,
    },

    /// The descriptor does not permit the access.
    #[error("the descriptor of endpoint {peer}'s region does not permit {what}")]
    NotPermitted {
        /// The owner.
        peer: String,
        /// The kind of access.
        what: &'static str,
    },

    /// The access leaves the region.
    #[error("{len} bytes at offset {offset} end past the {region} bytes of the region")]
    OutOfBounds {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
        /// The bytes of the region, or of the part that the descriptor names.
        region: u64,
    },

    /// A range is none.
    #[error("the range {start}..{end} ends before it begins")]
    BadRange {
        /// Its begin.
        start: u64,
        /// Its end.
        end: u64,
    },

    /// Two lengths differ that must be equal.
    #[error("{what}: {left} against {right}")]
    LengthMismatch {
        /// The things that do not fit together.
        what: &'static str,
        /// One length.
        left: u64,
        /// The other.
        right: u64,
    },

    /// Memory is not mapped, or lacks the permission.
    #[error("memory of endpoint {peer}, or of this process, is not mapped or lacks the permission")]
    NotMapped {
        /// The owner of the other memory.
        peer: String,
    },

    /// The system forbids copies between the processes.
    #[error(
        "the system forbids copies between this process and endpoint {peer} (ptrace_scope, another user, or a \
         container): use memory of Endpoint::alloc"
    )]
    Forbidden {
        /// The peer.
        peer: String,
    },

    /// A table is full.
    #[error("no more {what}: the limit is {limit}")]
    Exhausted {
        /// The entries of the table.
        what: &'static str,
        /// The limit.
        limit: u64,
    },

    /// A descriptor has been narrowed too often.
    #[error("a descriptor can be narrowed {limit} times")]
    NarrowedTooOften {
        /// The most narrowings.
        limit: usize,
    },

    /// A message is too long.
    #[error("a message of {len} bytes is above the limit of {limit}")]
    MessageTooLong {
        /// The bytes of the message.
        len: usize,
        /// The most bytes.
        limit: usize,
    },

    /// The peer has not read its messages, so that there is no room for another.
    #[error("endpoint {peer} has {} KiB of messages that it has not read", limit >> 10)]
    NoRoom {
        /// The peer.
        peer: String,
        /// The most bytes of messages that are not read.
        limit: usize,
    },

    /// The deadline of the operation has passed. Nothing of it lands any more.
    #[error("the deadline has passed after {} of {} bytes", .done, .all)]
    DeadlinePassed {
        /// The bytes that were transferred.
        done: u64,
        /// All bytes.
        all: u64,
    },

    /// The operation was cancelled. Nothing of it lands any more.
    #[error("the operation was cancelled after {} of {} bytes", .done, .all)]
    Cancelled {
        /// The bytes that were transferred.
        done: u64,
        /// All bytes.
        all: u64,
    },

    /// Something did not happen in time.
    #[error("{what} did not happen within {} ms", .within.as_millis())]
    TimedOut {
        /// The event that was waited for.
        what: &'static str,
        /// How long.
        within: Duration,
    },

    /// A peer still uses the region.
    #[error("a peer has been using the revoked region for {} ms: it is stopped, or copies much", .within.as_millis())]
    StillInUse {
        /// How long the call waited.
        within: Duration,
    },

    /// The endpoint is closed.
    #[error("this endpoint is closed")]
    Closed,

    /// This process was forked from the one that has the endpoint.
    #[error(
        "this process was forked from the one that has the endpoint: make another endpoint here"
    )]
    Forked,

    /// The system refused something.
    #[error("{0}")]
    System(#[from] hydrant_conduit::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why a peer is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossCause {
    /// Its process has ended.
    #[error("its process has ended")]
    Died,
    /// The connection has ended.
    #[error("the connection has ended")]
    Broken,
    /// The network has lost it, for this reason.
    #[error("{0}")]
    Network(&'static str),
    /// It broke the protocol.
    #[error("it broke the protocol ({0})")]
    Malformed(&'static str),
}
