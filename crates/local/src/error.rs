//! Errors of connections.

use crate::GrantRefusal;

/// The reason why a connection was not made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens under the address: its process has ended, or it is of another host or network namespace.
    #[error("nobody listens there")]
    Nobody,

    /// The other process did not answer in time.
    #[error("no answer in time")]
    TimedOut,

    /// The other process does not know the key of the address, or this one does not.
    #[error("the key does not fit")]
    WrongKey,

    /// The other process is of another version.
    #[error("the other side speaks version {theirs} of the protocol, this one version {ours}")]
    Version {
        /// The version of the other process.
        theirs: u32,
        /// The version of this process.
        ours: u32,
    },

    /// The other process does not want the connection.
    #[error("the other side refuses: {0}")]
    Refused(String),

    /// The other process connects to this one at the same time, and that connection counts.
    #[error("the other side connects at the same time")]
    Crossing,

    /// The other process sent what no process of this version sends.
    #[error("the other side sent a malformed packet: {0}")]
    Malformed(&'static str),

    /// The system refused something.
    #[error("{0}")]
    System(#[from] hydrant_conduit::Error),
}

/// The reason why an access to a peer's memory ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The grant does not cover the access.
    #[error("{0}")]
    Refused(GrantRefusal),

    /// The peer's memory, or this process's own, is not mapped or lacks the permission.
    #[error("the memory is not mapped, or lacks the permission")]
    BadAddress,

    /// The system does not let this process copy from or to the other.
    #[error("the system forbids copies between the two processes")]
    Forbidden,

    /// The peer has ended, or the connection has.
    #[error("the connection has ended")]
    Ended,
}
