//! Errors of a conduit.

use std::io;

use hydrant_pinning::Size;

use crate::{Rank, memory::remedy};

/// The reason why a conduit could not carry out a request.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer ended, was killed or cannot be reached any more.
    #[error(
        "rank {0} is lost: it ended, or cannot be reached any more, while others still needed it"
    )]
    PeerLost(Rank),

    /// The key names no extent, or one that was deregistered.
    #[error("rank {peer} holds no registration under key {key:#x} (revoked, or never made)")]
    Revoked {
        /// The owner of the memory.
        peer: Rank,
        /// The key that was used.
        key: u64,
    },

    /// The access leaves the extent.
    #[error("{} at offset {offset} leave an extent of {} of rank {peer}", Size(*len), Size(*extent))]
    OutOfExtent {
        /// The owner of the memory.
        peer: Rank,
        /// The first byte of the access.
        offset: u64,
        /// The bytes of the access.
        len: u64,
        /// The bytes of the extent.
        extent: u64,
    },

    /// The memory is not mapped, or lacks the permission for the access.
    #[error("{} at address {addr:#x} of rank {peer} are not mapped or not permitted", Size(*len))]
    BadAddress {
        /// The owner of the memory.
        peer: Rank,
        /// The first address.
        addr: u64,
        /// The bytes of the access.
        len: u64,
    },

    /// The word of an atomic operation is not aligned.
    #[error("address {addr:#x} of rank {peer} is not a multiple of 8, as a word must be")]
    Misaligned {
        /// The owner of the memory.
        peer: Rank,
        /// The address.
        addr: u64,
    },

    /// An atomic operation was done, but its result was lost.
    #[error(
        "an atomic operation on a word of rank {peer} was done, but the connection broke before \
         its result came back"
    )]
    ResultLost {
        /// The owner of the changed word.
        peer: Rank,
    },

    /// A table or a limit is used up.
    #[error("no more {what}: the limit is {limit} ({remedy})")]
    Exhausted {
        /// The exhausted resource.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The way to raise the limit.
        remedy: &'static str,
    },

    /// No memory is left for the segment.
    #[error("no memory for {}: {} are available", Size(*wanted), Size(*available))]
    OutOfMemory {
        /// Bytes wanted.
        wanted: u64,
        /// Bytes available.
        available: u64,
    },

    /// A message is longer than the conduit carries.
    #[error("a message of {} is above the limit of {}", Size(*len as u64), Size(*limit as u64))]
    MessageTooLong {
        /// The bytes of payload.
        len: usize,
        /// The most bytes of a message.
        limit: usize,
    },

    /// A message has more arguments than the conduit carries.
    #[error("{count} arguments are above the limit of {limit}")]
    TooManyArgs {
        /// The number of arguments.
        count: usize,
        /// The most arguments of a message.
        limit: usize,
    },

    /// A peer sent a message that follows no rule.
    #[error("rank {peer} sent a malformed message: {what}")]
    Malformed {
        /// The sender.
        peer: Rank,
        /// The violation.
        what: &'static str,
    },

    /// This conduit cannot join the ranks.
    #[error("{0}")]
    Unreachable(String),

    /// The system refused a request.
    #[error("{what}: {cause}")]
    System {
        /// The request.
        what: &'static str,
        /// The system's error.
        cause: String,
    },
}

impl Error {
    /// Makes the error for a refusal by the system.
    pub fn system(what: &'static str, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        if cause.raw_os_error() == Some(libc::EMFILE) {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            let owner = "descriptors of open files in this process";
            return Self::no_descriptors(owner, limit.unwrap_or(u64::MAX));
        }
        Self::System {
            what,
            cause: format!("{cause}{}", remedy(&cause)),
        }
    }

    /// Makes the error for a process that has used up its descriptors.
    pub fn no_descriptors(what: &'static str, limit: u64) -> Self {
        Self::Exhausted {
            what,
            limit,
            remedy: "raise RLIMIT_NOFILE: ulimit -n, or nofile in /etc/security/limits.conf",
        }
    }
}
