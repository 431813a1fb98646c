//! The errors of the engine, of peers' messages and of registrations.

use std::{error, fmt, sync::Arc};

use crate::Size;

/// The reason why memory could not be made usable, or a peer's message not be understood.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A bucket is no power-of-two multiple of the page.
    #[error(
        "a bucket of {} will not do: it must be a power of two and a multiple of the page of {}",
        Size(*bucket as u64),
        Size(*page as u64)
    )]
    BucketSize {
        /// The bucket asked for, in bytes.
        bucket: usize,
        /// The page, in bytes.
        page: usize,
    },

    /// M leaves no bucket for each peer.
    #[error(
        "M of {} is less than one bucket of {} for each of {peers} peers: raise HYDRANT_M to {least}, or choose smaller buckets",
        Size(*m),
        Size(*bucket)
    )]
    LimitTooSmall {
        /// M: the bytes that peers together may keep registered.
        m: u64,
        /// The bytes of a bucket.
        bucket: u64,
        /// The number of peers that share M.
        peers: u64,
        /// The least sufficient M.
        least: u64,
    },

    /// MAXVICTIM holds no bucket, so no operation could register its own side.
    #[error(
        "MAXVICTIM of {} holds no bucket of {}: raise HYDRANT_MAXVICTIM to at least {bucket}",
        Size(*maxvictim),
        Size(*bucket)
    )]
    VictimsTooFew {
        /// MAXVICTIM, in bytes.
        maxvictim: u64,
        /// The bytes of a bucket.
        bucket: u64,
    },

    /// M + MAXVICTIM is more than the machine can pin.
    #[error(
        "M + MAXVICTIM of {} is above the {} that can be pinned: lower HYDRANT_M or HYDRANT_MAXVICTIM",
        Size(*wanted),
        Size(*available)
    )]
    AboveMemory {
        /// M + MAXVICTIM.
        wanted: u64,
        /// The bytes that can be registered.
        available: u64,
    },

    /// Too little memory can be registered for any limits.
    #[error(
        "{} can be registered here{}, and {ranks} ranks need {} at least, in buckets of {}: raise memlock (ulimit -l){}",
        Size(*available),
        beside(*pinned),
        Size(*least),
        Size(*bucket),
        fewer(*bucket, *page)
    )]
    MemoryTooLittle {
        /// The bytes that can be registered.
        available: u64,
        /// The bytes that this process has pinned by other means.
        pinned: u64,
        /// The smallest sufficient amount: a bucket for each peer, and one beside them.
        least: u64,
        /// The bytes of a bucket.
        bucket: u64,
        /// The bytes of a page.
        page: u64,
        /// The number of ranks of the job.
        ranks: u32,
    },

    /// Messages are too short for the protocol.
    #[error(
        "messages of {max_payload} bytes are too short: with {piggyback} bytes that are piggybacked on a move they need {least}"
    )]
    PayloadTooSmall {
        /// The most bytes of a message.
        max_payload: usize,
        /// The most bytes that are piggybacked on a move.
        piggyback: usize,
        /// The least sufficient payload.
        least: usize,
    },

    /// There is no strategy of this name.
    #[error("there is no registration strategy {name:?}; there are {known}")]
    UnknownStrategy {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },

    /// An address range leaves the address space.
    #[error("{len} bytes at address {addr:#x} leave the address space")]
    Overflow {
        /// The first address.
        addr: u64,
        /// The length in bytes.
        len: u64,
    },

    /// A rank does not exist, or is the own rank.
    #[error("rank {rank} is no peer: there are {ranks} ranks and this is rank {own}")]
    NoPeer {
        /// The rank that was named.
        rank: u32,
        /// The number of ranks of the job.
        ranks: u32,
        /// The own rank.
        own: u32,
    },

    /// Neither registration nor a copy reached the memory.
    #[error("{len} bytes at address {addr:#x} of rank {rank} cannot be reached: {why}")]
    Unreachable {
        /// The rank that owns the memory.
        rank: u32,
        /// The first address.
        addr: u64,
        /// The length in bytes.
        len: u64,
        /// The obstacle.
        why: Refusal,
    },

    /// Static registration does not fit the limits.
    #[error(
        "{} cannot be registered at the start beside {}: the limit M + MAXVICTIM is {}; raise HYDRANT_M or choose another HYDRANT_REGISTRATION",
        Size(*wanted),
        Size(*registered),
        Size(*limit)
    )]
    PastLimit {
        /// The bytes to be registered.
        wanted: u64,
        /// The bytes registered already.
        registered: u64,
        /// M + MAXVICTIM.
        limit: u64,
    },

    /// The peer is lost.
    #[error("rank {0} is lost")]
    PeerLost(u32),

    /// The network refused or failed a transfer.
    #[error("a transfer between registered memory here and at rank {rank} failed: {cause}")]
    Network {
        /// The rank on the other side.
        rank: u32,
        /// The network's error.
        cause: Cause,
    },

    /// A peer's message breaks the protocol.
    #[error("rank {peer} sent a malformed registration message: {what}")]
    Malformed {
        /// The rank of the sender.
        peer: u32,
        /// The rule that the message broke.
        what: Violation,
    },
}

/// The reason why little can be registered, if the process has pinned memory.
fn beside(pinned: u64) -> String {
    match pinned {
        0 => String::new(),
        bytes => format!(
            " beside the {} that this process has pinned already (VmPin)",
            Size(bytes)
        ),
    }
}

/// The further remedies if little can be registered.
fn fewer(bucket: u64, page: u64) -> &'static str {
    if bucket > page {
        ", lower HYDRANT_BUCKET, or start fewer ranks"
    } else {
        ", or start fewer ranks"
    }
}

/// The rule of the protocol that a peer's message broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A move, where nothing is registered on request.
    NothingOnRequest,
    /// A move of another strategy.
    OtherStrategy,
    /// A move that needs nothing.
    NoNeeds,
    /// A move whose needs overlap, or are not in order.
    NeedsOutOfOrder,
    /// Piggybacked data that is too long, or on a move of several needs.
    Piggyback,
    /// A move for more firehoses than the peer owns.
    TooManyFirehoses,
    /// A release by a peer that holds nothing.
    ReleaseByNoHolder,
    /// A release of what is not held.
    ReleaseOfNothing,
    /// The end of a revocation that was not asked for.
    RevokedUnasked,
    /// A pull of no memory.
    PullOfNothing,
    /// More revocations at once than there can be.
    TooManyRevocations,
    /// An answer to no move.
    AnswerToNoMove,
    /// An answer about buckets that were not asked for.
    AnswerUnasked,
    /// An answer that grants buckets twice.
    GrantedTwice,
    /// An answer that refuses buckets twice.
    RefusedTwice,
    /// An answer with data that was not asked for.
    DataUnasked,
    /// An answer that lends more than was asked for.
    LentTooMuch,
    /// Data of another length than asked for.
    DataLength,
    /// The end of a put that was not made.
    StoredUnasked,
    /// Data that was not asked for.
    FetchedUnasked,
    /// The end of a pull that was not asked for.
    PulledUnasked,
    /// A registration of more memory than there is.
    TooMuchMemory,
}

impl Violation {
    /// Returns the violation as a clause, for an error of the network that quotes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Violation::NothingOnRequest => "a move, where nothing is registered on request",
            Violation::OtherStrategy => "a move of another strategy",
            Violation::NoNeeds => "a move that needs nothing",
            Violation::NeedsOutOfOrder => "a move whose needs overlap, or are not in order",
            Violation::Piggyback => {
                "piggybacked data that is too long, or on a move of several needs"
            }
            Violation::TooManyFirehoses => "a move for more firehoses than the peer owns",
            Violation::ReleaseByNoHolder => "a release by a peer that holds nothing",
            Violation::ReleaseOfNothing => "a release of what is not held",
            Violation::RevokedUnasked => "the end of a revocation that was not asked for",
            Violation::PullOfNothing => "a pull of no memory",
            Violation::TooManyRevocations => "more revocations at once than there can be",
            Violation::AnswerToNoMove => "an answer to no move",
            Violation::AnswerUnasked => "an answer about buckets that were not asked for",
            Violation::GrantedTwice => "an answer that grants buckets twice",
            Violation::RefusedTwice => "an answer that refuses buckets twice",
            Violation::DataUnasked => "an answer with data that was not asked for",
            Violation::LentTooMuch => "an answer that lends more than was asked for",
            Violation::DataLength => "data of another length than asked for",
            Violation::StoredUnasked => "the end of a put that was not made",
            Violation::FetchedUnasked => "data that was not asked for",
            Violation::PulledUnasked => "the end of a pull that was not asked for",
            Violation::TooMuchMemory => "a registration of more memory than there is",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error of the network, which travels through the engine unchanged. The engine does not know
/// its type.
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn error::Error + Send + Sync>);

impl Cause {
    /// Wraps an error.
    pub fn new(cause: impl error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(cause))
    }

    /// Returns the error, if it is of this type.
    pub fn get<E: error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl PartialEq for Cause {
    /// Returns true for the very same error, and not for an equal one.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The reason why a registration or an access was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The limit is reached and nothing can be evicted.
    #[error("the limit M + MAXVICTIM is reached and everything registered is in use")]
    Limit = 0,
    /// The memory is not mapped.
    #[error("the memory is not mapped")]
    NotMapped = 1,
    /// The memory is mapped without the right to write.
    #[error("the memory is read-only")]
    ReadOnly = 2,
    /// The system or the NIC has no room.
    #[error(
        "the system or the NIC refused to register more memory (memlock, memory or table of keys)"
    )]
    Exhausted = 3,
    /// The memory is not lent to peers, or not any more.
    #[error("the memory is not lent to peers")]
    NotLent = 4,
}

impl Refusal {
    /// Returns true if a copy might still reach the memory.
    pub fn can_copy(self) -> bool {
        matches!(self, Self::Limit | Self::Exhausted)
    }
}
