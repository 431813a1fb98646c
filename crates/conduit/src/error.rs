//! What can go wrong in a conduit.

use std::io;

use hydrant_pinning::Size;

use crate::{Rank, memory::remedy};

/// Why a conduit could not do what was asked.
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
        /// Whose memory was asked for.
        peer: Rank,
        /// The key that was used.
        key: u64,
    },

    /// The access leaves the extent.
    #[error("{} at offset {offset} leave an extent of {} of rank {peer}", Size(*len), Size(*extent))]
    OutOfExtent {
        /// Whose memory was asked for.
        peer: Rank,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes in the extent.
        extent: u64,
    },

    /// Memory that is not mapped, or not with the rights the access needs.
    #[error("{} at address {addr:#x} of rank {peer} are not mapped or not permitted", Size(*len))]
    BadAddress {
        /// Whose memory was asked for.
        peer: Rank,
        /// First address.
        addr: u64,
        /// Bytes asked for.
        len: u64,
    },

    /// A word for an atomic operation that does not lie as it must.
    #[error("address {addr:#x} of rank {peer} is not a multiple of 8, as a word must be")]
    Misaligned {
        /// Whose memory was asked for.
        peer: Rank,
        /// The address.
        addr: u64,
    },

    /// An atomic operation was done, but its result did not come back.
    #[error(
        "an atomic operation on a word of rank {peer} was done, but the connection broke before \
         its result came back"
    )]
    ResultLost {
        /// Whose memory was changed.
        peer: Rank,
    },

    /// A table or a limit is used up.
    #[error("no more {what}: the limit is {limit} ({remedy})")]
    Exhausted {
        /// What ran out.
        what: &'static str,
        /// How many there may be.
        limit: u64,
        /// How to raise it.
        remedy: &'static str,
    },

    /// No memory left for the segment.
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
        /// Bytes of payload.
        len: usize,
        /// Most bytes a message carries.
        limit: usize,
    },

    /// A message has more arguments than the conduit carries.
    #[error("{count} arguments are above the limit of {limit}")]
    TooManyArgs {
        /// Arguments given.
        count: usize,
        /// Most arguments a message carries.
        limit: usize,
    },

    /// A peer sent something that follows no rule.
    #[error("rank {peer} sent a malformed message: {what}")]
    Malformed {
        /// Who sent it.
        peer: Rank,
        /// What was wrong.
        what: &'static str,
    },

    /// The ranks cannot be joined by this conduit.
    #[error("{0}")]
    Unreachable(String),

    /// The system refused.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: String,
    },
}

impl Error {
    /// The system refused `what`.
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

    /// A process has as many descriptors as it may have.
    pub fn no_descriptors(what: &'static str, limit: u64) -> Self {
        Self::Exhausted {
            what,
            limit,
            remedy: "raise RLIMIT_NOFILE: ulimit -n, or nofile in /etc/security/limits.conf",
        }
    }
}
