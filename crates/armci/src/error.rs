//! What can go wrong, and ARMCI's number for it.

use hydrant_pinning::Size;

/// What a call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why ARMCI could not do what was asked. Nothing was changed unless [`Error::Hydrant`] says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pointer that must lead somewhere does not.
    #[error("{what} is null")]
    Null {
        /// Which.
        what: &'static str,
    },

    /// A number is below what it can be, or so large that no memory has so much.
    #[error("{what} is {value}, and must be at least {least} and no more than memory has")]
    Number {
        /// Which.
        what: &'static str,
        /// The number given.
        value: i64,
        /// The least that it can be.
        least: i64,
    },

    /// What is handed over is longer than can be.
    #[error("{what} has {}, and can have {}", Size(bytes.unsigned_abs()), Size(most.unsigned_abs()))]
    TooLong {
        /// What it is.
        what: &'static str,
        /// Bytes of it.
        bytes: i64,
        /// Bytes that it can have.
        most: i64,
    },

    /// There are not so many stride levels.
    #[error("{levels} stride levels: there are 0 to {}", crate::MAX_STRIDE_LEVEL)]
    StrideLevels {
        /// The number given.
        levels: i32,
    },

    /// There is no such process.
    #[error("process {proc} is out of range: there are processes 0 to {}", processes - 1)]
    NoProcess {
        /// The number given.
        proc: i32,
        /// How many there are.
        processes: usize,
    },

    /// No memory of the process that ARMCI allocated is there.
    #[error("ARMCI allocated no memory of process {proc} at {addr:#x}")]
    UnknownAddress {
        /// Whose memory was meant.
        proc: i32,
        /// The address.
        addr: usize,
    },

    /// The bytes are not all in the allocation in which the first one is.
    #[error(
        "{} at {addr:#x} of process {proc} reach past their allocation, which has {} from there on",
        Size(*bytes as u64), Size(*left as u64)
    )]
    PastAllocation {
        /// Whose memory was meant.
        proc: i32,
        /// The first byte.
        addr: usize,
        /// From the first to the last one.
        bytes: usize,
        /// How many there are.
        left: usize,
    },

    /// An operation's code means nothing.
    #[error("{code} is no code of {what}")]
    Code {
        /// What was to be done.
        what: &'static str,
        /// The code given.
        code: i32,
    },

    /// A name means no reduction of such elements.
    #[error(
        "\"{name}\" is no reduction of {elements}, of which there are: +, *, max, min, absmax, absmin{others}"
    )]
    Reduction {
        /// The name given.
        name: String,
        /// The kind of elements.
        elements: &'static str,
        /// The further reductions of such elements.
        others: &'static str,
    },

    /// A process is not among those that take part.
    #[error("process {proc} is none of the {members} processes that take part")]
    NoMember {
        /// The number given, among all processes.
        proc: i32,
        /// The number of processes that take part.
        members: usize,
    },

    /// The address to be freed is not the start of an allocation.
    #[error("{addr:#x} lies inside an allocation, which begins at {start:#x}: free that")]
    InsideAllocation {
        /// The address given.
        addr: usize,
        /// The start of the allocation.
        start: usize,
    },

    /// A handle was not made by ARMCI.
    #[error(
        "the handle is none that ARMCI made: prepare it by ARMCI_INIT_HANDLE, and begin an operation with it"
    )]
    Handle,

    /// A handle of mutexes was not made by ARMCI, or was destroyed.
    #[error(
        "the handle names no mutexes: ARMCIX_Create_mutexes_hdl makes it, and ARMCIX_Destroy_mutexes_hdl ends it"
    )]
    NoMutexSet,

    /// The program's MPI failed.
    #[error("MPI: {doing}: {why}")]
    Mpi {
        /// The action that was asked of it.
        doing: &'static str,
        /// The reason.
        why: String,
    },

    /// An address does not suit what is there.
    #[error("the address {addr:#x} is not a multiple of {align}")]
    Misaligned {
        /// The address.
        addr: usize,
        /// What it must be a multiple of.
        align: usize,
    },

    /// ARMCI is not initialized, or no more.
    #[error("ARMCI is not initialized, or is finalized already")]
    NotInitialized,

    /// Mutexes are there already.
    #[error("there are mutexes already: destroy them first")]
    MutexesExist,

    /// There are no mutexes.
    #[error("there are no mutexes: create them first")]
    NoMutexes,

    /// There is no such mutex in a set.
    #[error("mutex {mutex} of process {proc} is out of range: it made {mutexes}")]
    NoMutex {
        /// The number given.
        mutex: i32,
        /// The process of the mutex.
        proc: i32,
        /// The number of mutexes that that process made.
        mutexes: u64,
    },

    /// A mutex that is not locked is to be unlocked.
    #[error("mutex {mutex} of process {proc} is not locked")]
    NotLocked {
        /// The number given.
        mutex: i32,
        /// The process of the mutex.
        proc: i32,
    },

    /// A handle names no group.
    #[error("{group} is no group, or was freed")]
    NoGroup {
        /// The handle given.
        group: i32,
    },

    /// This process is no member of the group, or one process is named twice.
    #[error("a group of {members} processes: {why}")]
    Group {
        /// How many were named.
        members: i32,
        /// What is wrong with them.
        why: &'static str,
    },

    /// There is not so much memory.
    #[error(
        "no memory for {} on process {proc}: raise HYDRANT_HEAP, or ARMCI_DEFAULT_SHMMAX if it is set",
        Size(*bytes as u64)
    )]
    OutOfMemory {
        /// Which process has it not.
        proc: usize,
        /// How many were asked for.
        bytes: usize,
    },

    /// A message does not fit the buffer it is received in.
    #[error("a message of {} from process {from} does not fit a buffer of {}", Size(*bytes as u64), Size(*room as u64))]
    Truncated {
        /// Who sent it.
        from: usize,
        /// Bytes of the message.
        bytes: usize,
        /// Bytes of the buffer.
        room: usize,
    },

    /// Another process failed in what all do together.
    #[error("process {proc} could not do its part; it says why")]
    Elsewhere {
        /// Which.
        proc: usize,
    },

    /// What Hydrant said.
    #[error(transparent)]
    Hydrant(#[from] hydrant::Error),
}

impl Error {
    /// The number that ARMCI's functions return for it: its `FAIL` to `FAIL8`.
    pub fn code(&self) -> i32 {
        match self {
            Error::Null { .. } => -1,
            Error::Code { .. }
            | Error::Reduction { .. }
            | Error::Misaligned { .. }
            | Error::Handle
            | Error::NoMutexSet => -2,
            Error::Number { .. } | Error::TooLong { .. } => -3,
            Error::StrideLevels { .. } => -4,
            Error::NoProcess { .. }
            | Error::NoGroup { .. }
            | Error::NoMember { .. }
            | Error::Group { .. } => -5,
            Error::UnknownAddress { .. }
            | Error::PastAllocation { .. }
            | Error::InsideAllocation { .. } => -6,
            Error::NotInitialized => -8,
            _ => -7,
        }
    }
}

/// Checks that a pointer leads somewhere.
pub(crate) fn not_null<T>(pointer: *const T, what: &'static str) -> Result<()> {
    if pointer.is_null() {
        return Err(Error::Null { what });
    }
    Ok(())
}

/// A number of bytes or elements, which must be at least `least`.
pub(crate) fn count(value: i64, least: i64, what: &'static str) -> Result<usize> {
    if value < least {
        return Err(Error::Number { what, value, least });
    }
    usize::try_from(value).map_err(|_| Error::Number { what, value, least })
}
