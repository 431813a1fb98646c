//! What can go wrong, and what to do about it.

use std::fmt;

use hydrant_pinning::Size;

use crate::{Rank, TeamRank};

/// What a call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why Hydrant could not do what was asked. Nothing was changed unless the variant says so.
///
/// `Debug` is the same sentence as `Display`: `fn main() -> hydrant::Result<()>` and `unwrap` print
/// an error by its `Debug`, and a sentence is what their readers need. Programs tell errors apart
/// by matching the variants.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such rank.
    #[error("rank {rank} is out of range: the job has ranks 0 to {}", size - 1)]
    RankOutOfRange {
        /// The rank named.
        rank: Rank,
        /// Ranks in the job.
        size: u32,
    },

    /// There is no such member of the team.
    #[error("rank {rank} of the team is out of range: the team has ranks 0 to {}", size - 1)]
    TeamRankOutOfRange {
        /// The rank named.
        rank: TeamRank,
        /// Members of the team.
        size: u32,
    },

    /// The elements named are not all there.
    #[error("{count} elements at index {index} are out of bounds: there are {len}")]
    OutOfBounds {
        /// First element.
        index: usize,
        /// Elements named.
        count: usize,
        /// Elements that there are.
        len: usize,
    },

    /// The address does not suit the type.
    #[error("byte offset {offset} is not a multiple of {align}, the alignment of {what}")]
    Misaligned {
        /// Byte offset in the memory named.
        offset: u64,
        /// Alignment needed.
        align: usize,
        /// What needs it.
        what: &'static str,
    },

    /// The rank does not let peers name any address of its memory.
    #[error(
        "rank {rank} does not offer its whole address space: set HYDRANT_ANYWHERE=on for all ranks, or JobBuilder::anywhere"
    )]
    AnywhereRefused {
        /// Whose memory it is, or the rank that asked without the setting.
        rank: Rank,
    },

    /// Elements without a size cannot be stored anywhere.
    #[error("{what} has size zero, so no memory can hold it")]
    ZeroSized {
        /// The type.
        what: &'static str,
    },

    /// Memory cannot be one rank's alone while others can reach it.
    #[error(
        "rank {rank} has another handle of the memory, or of freed memory that lay in its place, or \
         uses it in another thread: drop that first"
    )]
    HandleInUse {
        /// Where.
        rank: Rank,
    },

    /// A wait for any of no words would never end.
    #[error("no words were given to wait for")]
    NothingToWaitFor,

    /// Two buffers that must be apart share bytes.
    #[error("the {len} bytes at {addr:#x} overlap the memory they were to be copied to or from")]
    Overlap {
        /// Address of the buffer given.
        addr: usize,
        /// Its bytes.
        len: usize,
    },

    /// Slices that must be equally long are not.
    #[error("{what}: {left} against {right}")]
    LengthMismatch {
        /// What does not fit together.
        what: &'static str,
        /// One length.
        left: usize,
        /// The other.
        right: usize,
    },

    /// A section leaves the buffer that it is about.
    #[error("{count} elements at index {index} of the buffer are out of bounds: it has {len}")]
    OutsideBuffer {
        /// First element.
        index: usize,
        /// Elements from the first to the last.
        count: usize,
        /// Elements that the buffer has.
        len: usize,
    },

    /// A section that is written to names an element twice.
    #[error(
        "a section that is written to names an element twice: {elements} elements within {span}"
    )]
    SectionOverlap {
        /// Elements of the section.
        elements: usize,
        /// Elements from its first to its last.
        span: usize,
    },

    /// A section reaches further than any memory.
    #[error("{count} times, {stride} elements apart, reaches further than any memory")]
    SectionOverflow {
        /// How often a level of the section repeats what is within it.
        count: usize,
        /// How far apart.
        stride: usize,
    },

    /// A section has more levels than are possible.
    #[error("a section of {levels} levels: {limit} are possible")]
    SectionLevels {
        /// Levels given.
        levels: usize,
        /// Most levels.
        limit: usize,
    },

    /// A block of a collective is not within its buffer.
    #[error(
        "the block of rank {block} of the team, {count} elements at index {index}, ends past the \
         {len} elements of the buffer"
    )]
    BlockOutOfBounds {
        /// Whose block it is.
        block: TeamRank,
        /// Its first element.
        index: usize,
        /// Its elements.
        count: usize,
        /// Elements of the buffer.
        len: usize,
    },

    /// Two blocks that a collective was to write share elements.
    #[error("the blocks of ranks {one} and {other} of the team share the element at index {index}")]
    BlocksOverlap {
        /// Whose the one block is.
        one: TeamRank,
        /// Whose the other is.
        other: TeamRank,
        /// The first element that they share.
        index: usize,
    },

    /// A rank sends another number of elements than the one that receives them has room for.
    #[error("rank {from} sends {sent} elements to rank {to}, which wants {wanted} from it")]
    CountMismatch {
        /// Who sends.
        from: Rank,
        /// Who receives.
        to: Rank,
        /// Elements sent.
        sent: u64,
        /// Elements wanted.
        wanted: u64,
    },

    /// A message that fits a receive is longer than its buffer. The receive is over; the message is not
    /// lost: it goes to the next receive that fits, and has room.
    #[error(
        "a message of {len} bytes from rank {from} under tag {tag} does not fit the receive's {room} \
         bytes: receive it with more room"
    )]
    ReceiveTooShort {
        /// Who sent it.
        from: Rank,
        /// Its tag.
        tag: u64,
        /// Its bytes.
        len: u64,
        /// Bytes of the buffer.
        room: usize,
    },

    /// A tag that programs may not use.
    #[error("tag {tag} is reserved: programs use 0 to {limit}")]
    ReservedTag {
        /// The tag given.
        tag: u64,
        /// The highest that may be used.
        limit: u64,
    },

    /// A message has more payload than the conduit carries.
    #[error("a message of {len} bytes is above the limit of {limit} (see Job::limits)")]
    MessageTooLong {
        /// Bytes given.
        len: usize,
        /// Most bytes.
        limit: usize,
    },

    /// A message has more arguments than the conduit carries.
    #[error("{count} arguments are above the limit of {limit} (see Job::limits)")]
    TooManyArgs {
        /// Arguments given.
        count: usize,
        /// Most arguments.
        limit: usize,
    },

    /// The target has no handler of this number.
    #[error("rank {rank} has no handler number {handler}; was it registered by every rank?")]
    UnknownHandler {
        /// The rank asked.
        rank: Rank,
        /// The handler's number.
        handler: u16,
    },

    /// The handler panicked; the message that caused it had no other effect.
    #[error("{name} (handler number {handler}) panicked on rank {rank}: {message}")]
    HandlerPanicked {
        /// Where it ran.
        rank: Rank,
        /// The handler's number.
        handler: u16,
        /// The Rust name of the handler or the function, and where this rank registered it.
        name: String,
        /// What it said.
        message: String,
    },

    /// No room for another handler.
    #[error("no more than {limit} handlers can be registered")]
    TooManyHandlers {
        /// Most handlers.
        limit: usize,
    },

    /// Data and its signal are for different ranks.
    #[error("the data is for rank {data} and its signal for rank {signal}: they go together")]
    RankMismatch {
        /// Whose memory the data is for.
        data: Rank,
        /// Whose memory the signal is in.
        signal: Rank,
    },

    /// Handlers have sent more than their peers take.
    #[error("handlers have sent {limit} bytes for which peers have no room, and may send no more")]
    OnwardFull {
        /// Bytes that a rank keeps for its peers.
        limit: usize,
    },

    /// A handler tried something that waits.
    #[error("a handler may not wait: {what} was called from one")]
    InHandler {
        /// What was called.
        what: &'static str,
    },

    /// A request's handler tried to reply a second time, or a reply's handler at all.
    #[error("a handler may reply once, and only to a request")]
    NoReply,

    /// An argument or a result could not be put into bytes or back.
    #[error("the {what} of a remote call cannot be encoded or decoded: {cause}")]
    Codec {
        /// Argument or result.
        what: &'static str,
        /// What the format said.
        cause: String,
    },

    /// The ranks called a collective with different arguments.
    #[error("ranks disagree in {operation}: rank {rank} {theirs}, rank {own} {ours}")]
    CollectiveMismatch {
        /// The collective.
        operation: &'static str,
        /// A rank that differs.
        rank: Rank,
        /// What it gave.
        theirs: String,
        /// This rank.
        own: Rank,
        /// What this rank gave.
        ours: String,
    },

    /// A collective was called while another was under way on the same team.
    #[error("{what} was called out of turn: {why}")]
    OutOfTurn {
        /// What was called.
        what: &'static str,
        /// What stood in the way.
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

    /// This process is a child that was forked from a rank. It has copies of the rank's handles and memory, and takes
    /// no part in the job: see [`Job`](crate::Job).
    #[error(
        "this process was forked from rank {rank} and takes no part in the job: leave it to rank {rank}, or have \
         the child call exec"
    )]
    Forked {
        /// The rank. Its process is this one's parent or an older ancestor.
        rank: Rank,
    },

    /// A handle or pointer of another job.
    #[error("this {what} belongs to another job")]
    ForeignHandle {
        /// What it is.
        what: &'static str,
    },

    /// A global pointer that does not fit eight bytes.
    #[error("this global pointer takes {bits} bits, and a packed one has 64")]
    PointerTooWide {
        /// Bits that it takes.
        bits: u32,
    },

    /// A global pointer that this job never made.
    #[error("this global pointer names nothing: {why}")]
    ForgedPointer {
        /// What is wrong with it.
        why: &'static str,
    },

    /// Memory lent to peers was taken back.
    #[error("rank {rank} took the exposed memory back")]
    Revoked {
        /// Its owner.
        rank: Rank,
    },

    /// Memory that is not mapped, or lacks the rights.
    #[error("{len} bytes at address {addr:#x} of rank {rank} are not mapped or not permitted")]
    BadAddress {
        /// Whose memory.
        rank: Rank,
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },

    /// A connection broke when a NIC had done an atomic operation and its result was on the way.
    /// It was done once. An addition was made; what compares first, as all others do, may have
    /// found something else and changed nothing.
    #[error(
        "an atomic operation on a word of rank {rank} was done once, but the connection broke \
         before its result came back"
    )]
    ResultLost {
        /// Whose word.
        rank: Rank,
    },

    /// A word that NICs change could not be registered at its owner.
    #[error(
        "a word of rank {rank} could not be registered there in {seconds} s, and only a NIC may \
         change it (HYDRANT_ATOMICS=messages needs no registration)"
    )]
    WordNotRegistered {
        /// Whose word.
        rank: Rank,
        /// How long it was tried.
        seconds: u64,
    },

    /// A mutex is locked that should not be.
    #[error("mutex {mutex} of rank {rank} is held already: unlock it first")]
    MutexHeld {
        /// Whose mutex.
        rank: Rank,
        /// Which of that rank's.
        mutex: usize,
    },

    /// A mutex is to be unlocked that this rank has not locked.
    #[error("mutex {mutex} of rank {rank} is not held by this rank")]
    MutexNotHeld {
        /// Whose mutex.
        rank: Rank,
        /// Which of that rank's.
        mutex: usize,
    },

    /// There is not so much memory.
    #[error(
        "no memory for {} on rank {rank}: {} are available ({remedy})",
        Size(*wanted),
        Size(*available)
    )]
    OutOfMemory {
        /// Which rank lacks it.
        rank: Rank,
        /// Bytes wanted.
        wanted: u64,
        /// Bytes there are.
        available: u64,
        /// How to get more.
        remedy: &'static str,
    },

    /// A rank ended while this one still needed it.
    #[error(
        "rank {0} is lost: it ended, or cannot be reached any more, while others still needed it"
    )]
    PeerLost(Rank),

    /// A rank came to the end of the job in good order, so that the awaited message or collective cannot come any
    /// more. Or the rank ended and did not receive a message.
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

    /// This rank takes no part in the job any more, though it goes on: a peer got something from
    /// it that follows no rule and gave it up, another thread of it called
    /// [`Job::abort`](crate::Job::abort), or a function that it gave to a reduction panicked.
    #[error(
        "rank {0}, this one, takes no part any more: it aborted, a function of a reduction panicked \
         here, or it sent a peer what follows no rule, as when its memory is overwritten (the peer \
         says what)"
    )]
    Expelled(Rank),

    /// A setting has a value that it cannot have.
    #[error("{name}={value} is not valid: expected {expected}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: String,
    },

    /// Memory could not be registered, or the limits for that cannot be.
    #[error(transparent)]
    Registration(#[from] hydrant_pinning::Error),

    /// The job could not be joined.
    #[error("cannot join the job: {0}")]
    Launch(#[from] hydrant_launch::Error),

    /// The network failed.
    #[error(transparent)]
    Conduit(hydrant_conduit::Error),

    /// The program has a subscriber for `tracing` already.
    #[error("the log has its subscriber already; log_to_stderr cannot set another")]
    LogTaken,

    /// A program's own failure, so that `?` works in a job's body.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps a program's own failure.
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(cause.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one write: the result of `main` is written piece by piece, while other ranks write to the same place.
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
