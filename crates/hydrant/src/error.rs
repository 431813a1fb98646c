//! The errors of this crate, each with its remedy.

use std::fmt;

use hydrant_pinning::Size;

use crate::{Rank, TeamRank};

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call failed. A failed call changes nothing unless its variant says so.
///
/// `Debug` prints the same sentence as `Display`: `fn main() -> hydrant::Result<()>` and `unwrap`
/// print an error by its `Debug`, and their readers need a sentence. Programs tell errors apart by
/// matching the variants.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such rank.
    #[error("rank {rank} is out of range: the job has ranks 0 to {}", size - 1)]
    RankOutOfRange {
        /// The rank named.
        rank: Rank,
        /// The number of ranks in the job.
        size: u32,
    },

    /// There is no such member of the team.
    #[error("rank {rank} of the team is out of range: the team has ranks 0 to {}", size - 1)]
    TeamRankOutOfRange {
        /// The rank named.
        rank: TeamRank,
        /// The number of members of the team.
        size: u32,
    },

    /// Not all of the named elements exist.
    #[error("{count} elements at index {index} are out of bounds: there are {len}")]
    OutOfBounds {
        /// The first element.
        index: usize,
        /// The number of named elements.
        count: usize,
        /// The number of elements that exist.
        len: usize,
    },

    /// The address does not suit the type.
    #[error("byte offset {offset} is not a multiple of {align}, the alignment of {what}")]
    Misaligned {
        /// The byte offset in the named memory.
        offset: u64,
        /// The needed alignment.
        align: usize,
        /// The type or operation that needs it.
        what: &'static str,
    },

    /// The rank does not let peers name any address of its memory.
    #[error(
        "rank {rank} does not offer its whole address space: set HYDRANT_ANYWHERE=on for all ranks, or JobBuilder::anywhere"
    )]
    AnywhereRefused {
        /// The owner of the memory, or the rank that asked without the setting.
        rank: Rank,
    },

    /// Zero-sized elements cannot be stored.
    #[error("{what} has size zero, so no memory can hold it")]
    ZeroSized {
        /// The type.
        what: &'static str,
    },

    /// Memory cannot become exclusive while others can reach it.
    #[error(
        "rank {rank} has another handle of the memory, or of freed memory that lay in its place, or \
         uses it in another thread: drop that first"
    )]
    HandleInUse {
        /// The rank with the other handle.
        rank: Rank,
    },

    /// A wait for any of no words would never end.
    #[error("no words were given to wait for")]
    NothingToWaitFor,

    /// Two buffers that must be apart share bytes.
    #[error("the {len} bytes at {addr:#x} overlap the memory they were to be copied to or from")]
    Overlap {
        /// The address of the given buffer.
        addr: usize,
        /// The bytes of the given buffer.
        len: usize,
    },

    /// Two lengths differ that must be equal.
    #[error("{what}: {left} against {right}")]
    LengthMismatch {
        /// The two things that do not fit together.
        what: &'static str,
        /// One length.
        left: usize,
        /// The other.
        right: usize,
    },

    /// A section leaves its buffer.
    #[error("{count} elements at index {index} of the buffer are out of bounds: it has {len}")]
    OutsideBuffer {
        /// The first element.
        index: usize,
        /// The number of elements from the first to the last.
        count: usize,
        /// The number of elements of the buffer.
        len: usize,
    },

    /// A section that is written to names an element twice.
    #[error(
        "a section that is written to names an element twice: {elements} elements within {span}"
    )]
    SectionOverlap {
        /// The number of elements of the section.
        elements: usize,
        /// The number of elements from its first to its last.
        span: usize,
    },

    /// A section reaches further than any memory.
    #[error("{count} times, {stride} elements apart, reaches further than any memory")]
    SectionOverflow {
        /// The number of repetitions of a level of the section.
        count: usize,
        /// The distance of the repetitions, in elements.
        stride: usize,
    },

    /// A section has more levels than are possible.
    #[error("a section of {levels} levels: {limit} are possible")]
    SectionLevels {
        /// The number of levels given.
        levels: usize,
        /// The most levels.
        limit: usize,
    },

    /// A block of a collective leaves its buffer.
    #[error(
        "the block of rank {block} of the team, {count} elements at index {index}, ends past the \
         {len} elements of the buffer"
    )]
    BlockOutOfBounds {
        /// The member whose block it is.
        block: TeamRank,
        /// The first element of the block.
        index: usize,
        /// The number of elements of the block.
        count: usize,
        /// The number of elements of the buffer.
        len: usize,
    },

    /// Two blocks that a collective was to write share elements.
    #[error("the blocks of ranks {one} and {other} of the team share the element at index {index}")]
    BlocksOverlap {
        /// The member whose block is the first.
        one: TeamRank,
        /// The member whose block is the second.
        other: TeamRank,
        /// The first element that they share.
        index: usize,
    },

    /// A rank sends another number of elements than its receiver has room for.
    #[error("rank {from} sends {sent} elements to rank {to}, which wants {wanted} from it")]
    CountMismatch {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// The number of elements sent.
        sent: u64,
        /// The number of elements wanted.
        wanted: u64,
    },

    /// A message that fits a receive is longer than its buffer. The receive has ended. The message
    /// is not lost: it goes to the next receive that fits and has room.
    #[error(
        "a message of {len} bytes from rank {from} under tag {tag} does not fit the receive's {room} \
         bytes: receive it with more room"
    )]
    ReceiveTooShort {
        /// The sender.
        from: Rank,
        /// The tag of the message.
        tag: u64,
        /// The bytes of the message.
        len: u64,
        /// The bytes of the buffer.
        room: usize,
    },

    /// A tag that programs may not use.
    #[error("tag {tag} is reserved: programs use 0 to {limit}")]
    ReservedTag {
        /// The tag given.
        tag: u64,
        /// The highest tag that programs may use.
        limit: u64,
    },

    /// A message has more payload than the conduit carries.
    #[error("a message of {len} bytes is above the limit of {limit} (see Job::limits)")]
    MessageTooLong {
        /// The bytes of the payload.
        len: usize,
        /// The most bytes.
        limit: usize,
    },

    /// A message has more arguments than the conduit carries.
    #[error("{count} arguments are above the limit of {limit} (see Job::limits)")]
    TooManyArgs {
        /// The number of arguments.
        count: usize,
        /// The most arguments.
        limit: usize,
    },

    /// The target has no handler with this number.
    #[error("rank {rank} has no handler number {handler}; was it registered by every rank?")]
    UnknownHandler {
        /// The target.
        rank: Rank,
        /// The number of the handler.
        handler: u16,
    },

    /// The handler panicked. The message that caused it had no other effect.
    #[error("{name} (handler number {handler}) panicked on rank {rank}: {message}")]
    HandlerPanicked {
        /// The rank on which it ran.
        rank: Rank,
        /// The number of the handler.
        handler: u16,
        /// The Rust name of the handler or the function, and where this rank registered it.
        name: String,
        /// The message of the panic.
        message: String,
    },

    /// There is no room for another handler.
    #[error("no more than {limit} handlers can be registered")]
    TooManyHandlers {
        /// The most handlers.
        limit: usize,
    },

    /// Data and its signal are for different ranks.
    #[error("the data is for rank {data} and its signal for rank {signal}: they go together")]
    RankMismatch {
        /// The rank that the data is for.
        data: Rank,
        /// The rank whose memory has the signal word.
        signal: Rank,
    },

    /// Handlers have sent more than their peers take.
    #[error("handlers have sent {limit} bytes for which peers have no room, and may send no more")]
    OnwardFull {
        /// The most bytes that a rank keeps for its peers.
        limit: usize,
    },

    /// A handler called something that waits.
    #[error("a handler may not wait: {what} was called from one")]
    InHandler {
        /// The call.
        what: &'static str,
    },

    /// A handler of a request tried to reply a second time, or a handler of a reply tried to reply.
    #[error("a handler may reply once, and only to a request")]
    NoReply,

    /// An argument or a result could not be encoded or decoded.
    #[error("the {what} of a remote call cannot be encoded or decoded: {cause}")]
    Codec {
        /// The word "argument" or "result".
        what: &'static str,
        /// The error of the format.
        cause: String,
    },

    /// The ranks called a collective with different arguments.
    #[error("ranks disagree in {operation}: rank {rank} {theirs}, rank {own} {ours}")]
    CollectiveMismatch {
        /// The collective.
        operation: &'static str,
        /// A rank that differs.
        rank: Rank,
        /// The arguments of that rank.
        theirs: String,
        /// This rank.
        own: Rank,
        /// The arguments of this rank.
        ours: String,
    },

    /// A collective was called while another was in flight on the same team.
    #[error("{what} was called out of turn: {why}")]
    OutOfTurn {
        /// The call.
        what: &'static str,
        /// The obstacle.
        why: &'static str,
    },

    /// The type has no such reduction.
    #[error("{what} cannot be reduced by {op}")]
    UnsuitableOp {
        /// The type.
        what: &'static str,
        /// The operation.
        op: &'static str,
    },

    /// The memory was freed.
    #[error("this memory was freed")]
    Freed,

    /// The job is over.
    #[error("the job that this belongs to is over")]
    JobOver,

    /// This process is a child that was forked from a rank. It has copies of the rank's handles and
    /// memory, and takes no part in the job: see [`Job`](crate::Job).
    #[error(
        "this process was forked from rank {rank} and takes no part in the job: leave it to rank {rank}, or have \
         the child call exec"
    )]
    Forked {
        /// The rank. Its process is this one's parent or an older ancestor.
        rank: Rank,
    },

    /// A handle or pointer belongs to another job.
    #[error("this {what} belongs to another job")]
    ForeignHandle {
        /// The kind of handle.
        what: &'static str,
    },

    /// A global pointer does not fit into eight bytes.
    #[error("this global pointer takes {bits} bits, and a packed one has 64")]
    PointerTooWide {
        /// The bits that it takes.
        bits: u32,
    },

    /// A global pointer was never made by this job.
    #[error("this global pointer names nothing: {why}")]
    ForgedPointer {
        /// The defect of the pointer.
        why: &'static str,
    },

    /// Memory that was lent to peers was taken back.
    #[error("rank {rank} took the exposed memory back")]
    Revoked {
        /// The owner of the memory.
        rank: Rank,
    },

    /// Memory is not mapped, or does not permit the access.
    #[error("{len} bytes at address {addr:#x} of rank {rank} are not mapped or not permitted")]
    BadAddress {
        /// The owner of the memory.
        rank: Rank,
        /// The first address.
        addr: u64,
        /// The number of bytes.
        len: u64,
    },

    /// A connection broke after a NIC had done an atomic operation, while the result was in flight.
    /// The operation was done once. An addition took effect. Other operations compare first, and
    /// may have found another value and changed nothing.
    #[error(
        "an atomic operation on a word of rank {rank} was done once, but the connection broke \
         before its result came back"
    )]
    ResultLost {
        /// The owner of the word.
        rank: Rank,
    },

    /// A word that NICs change could not be registered at its owner.
    #[error(
        "a word of rank {rank} could not be registered there in {seconds} s, and only a NIC may \
         change it (HYDRANT_ATOMICS=messages needs no registration)"
    )]
    WordNotRegistered {
        /// The owner of the word.
        rank: Rank,
        /// How long the registration was tried.
        seconds: u64,
    },

    /// Memory that must be registered at its allocation was not registered in time. None of it is registered now.
    #[error(
        "rank {rank} registered {} of {} within {seconds} s: raise HYDRANT_REGISTER_TIMEOUT, in seconds, or \
         HYDRANT_REGISTER_THREADS",
        Size(*registered),
        Size(*wanted)
    )]
    RegistrationTimeout {
        /// The rank that registered the memory.
        rank: Rank,
        /// The bytes that were registered by then.
        registered: u64,
        /// The bytes to register.
        wanted: u64,
        /// The time limit.
        seconds: u64,
    },

    /// A mutex is held that must not be.
    #[error("mutex {mutex} of rank {rank} is held already: unlock it first")]
    MutexHeld {
        /// The owner of the mutex.
        rank: Rank,
        /// The number of the mutex at its owner.
        mutex: usize,
    },

    /// This rank unlocked a mutex that it does not hold.
    #[error("mutex {mutex} of rank {rank} is not held by this rank")]
    MutexNotHeld {
        /// The owner of the mutex.
        rank: Rank,
        /// The number of the mutex at its owner.
        mutex: usize,
    },

    /// There is not enough memory.
    #[error(
        "no memory for {} on rank {rank}: {} are available ({remedy})",
        Size(*wanted),
        Size(*available)
    )]
    OutOfMemory {
        /// The rank that lacks it.
        rank: Rank,
        /// The bytes wanted.
        wanted: u64,
        /// The bytes available.
        available: u64,
        /// The remedy.
        remedy: &'static str,
    },

    /// A rank ended while this rank still needed it.
    #[error(
        "rank {0} is lost: it ended, or cannot be reached any more, while others still needed it"
    )]
    PeerLost(Rank),

    /// A rank came to the end of the job in good order, so that the awaited message or collective
    /// cannot come any more. Or the rank ended and did not receive a message.
    #[error("rank {rank} came to the end of the job: {why}")]
    PeerEnded {
        /// The rank that ended.
        rank: Rank,
        /// The event that cannot happen any more.
        why: &'static str,
    },

    /// All other ranks came to the end of the job in good order, so that the awaited event cannot happen any more.
    #[error("all other ranks came to the end of the job: {why}")]
    OthersEnded {
        /// The event that cannot happen any more.
        why: &'static str,
    },

    /// This rank takes no part in the job any more, though it goes on. Either a peer received a
    /// message from it that breaks a rule. Or another thread of it called
    /// [`Job::abort`](crate::Job::abort). Or a function that it passed to a reduction panicked.
    #[error(
        "rank {0}, this one, takes no part any more: it aborted, a function of a reduction panicked \
         here, or it sent a peer what follows no rule, as when its memory is overwritten (the peer \
         says what)"
    )]
    Expelled(Rank),

    /// A setting has an invalid value.
    #[error("{name}={value} is not valid: expected {expected}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// The value.
        value: String,
        /// The valid values.
        expected: String,
    },

    /// Memory could not be registered, or the limits of registration contradict each other.
    #[error(transparent)]
    Registration(#[from] hydrant_pinning::Error),

    /// The job could not be joined.
    #[error("cannot join the job: {0}")]
    Launch(#[from] hydrant_launch::Error),

    /// The network failed.
    #[error(transparent)]
    Conduit(hydrant_conduit::Error),

    /// The program has installed a subscriber for `tracing` already.
    #[error("the log has its subscriber already; log_to_stderr cannot set another")]
    LogTaken,

    /// An error of the program itself, so that `?` works in a job's body.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of the program itself.
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(cause.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one write: the result of `main` is written piece by piece, while other ranks write to
        // the same stream.
        f.write_str(&self.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(cause: std::io::Error) -> Self {
        Self::Other(Box::new(cause))
    }
}

impl From<hydrant_conduit::Error> for Error {
    fn from(error: hydrant_conduit::Error) -> Self {
        use hydrant_conduit::Error as E;
        match error {
            E::PeerLost(rank) => Self::PeerLost(rank),
            E::Revoked { peer, .. } => Self::Revoked { rank: peer },
            E::BadAddress { peer, addr, len } => Self::BadAddress {
                rank: peer,
                addr,
                len,
            },
            E::ResultLost { peer } => Self::ResultLost { rank: peer },
            E::MessageTooLong { len, limit } => Self::MessageTooLong { len, limit },
            E::TooManyArgs { count, limit } => Self::TooManyArgs { count, limit },
            other => Self::Conduit(other),
        }
    }
}
