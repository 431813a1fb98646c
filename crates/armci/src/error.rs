//! The errors, and ARMCI's numbers for them.

use hydrant_pinning::Size;

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason that ARMCI could not do something. Nothing was changed unless [`Error::Hydrant`] says
/// so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pointer that must not be null is null.
    #[error("{what} is null")]
    Null {
        /// The name of the pointer.
        what: &'static str,
    },

    /// A number is below its least value, or larger than any memory.
    #[error("{what} is {value}, and must be at least {least} and no more than memory has")]
    Number {
        /// The name of the number.
        what: &'static str,
        /// The number given.
        value: i64,
        /// The least value.
        least: i64,
    },

    /// An argument is longer than allowed.
    #[error("{what} has {}, and can have {}", Size(bytes.unsigned_abs()), Size(most.unsigned_abs()))]
    TooLong {
        /// The name of the argument.
        what: &'static str,
        /// Its length in bytes.
        bytes: i64,
        /// The greatest length in bytes.
        most: i64,
    },

    /// The number of stride levels is out of range.
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
        /// The number of processes.
        processes: usize,
    },

    /// The address is in no allocation of the process.
    #[error("ARMCI allocated no memory of process {proc} at {addr:#x}")]
    UnknownAddress {
        /// The process.
        proc: i32,
        /// The address.
        addr: usize,
    },

    /// The bytes reach past the allocation in which the first byte lies.
    #[error(
        "{} at {addr:#x} of process {proc} reach past their allocation, which has {} from there on",
        Size(*bytes as u64), Size(*left as u64)
    )]
    PastAllocation {
        /// The process.
        proc: i32,
        /// The address of the first byte.
        addr: usize,
        /// The number of bytes from the first to the last one.
        bytes: usize,
        /// The number of bytes from the first one to the end of the allocation.
        left: usize,
    },

    /// The code of an operation is unknown.
    #[error("{code} is no code of {what}")]
    Code {
        /// The kind of operation.
        what: &'static str,
        /// The code given.
        code: i32,
    },

    /// The name means no reduction of such elements.
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

    /// A process is not among the processes that take part.
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

    /// ARMCI did not make the handle.
    #[error(
        "the handle is none that ARMCI made: prepare it by ARMCI_INIT_HANDLE, and begin an operation with it"
    )]
    Handle,

    /// ARMCI did not make the handle of mutexes, or it was destroyed.
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

    /// An address is not aligned.
    #[error("the address {addr:#x} is not a multiple of {align}")]
    Misaligned {
        /// The address.
        addr: usize,
        /// The alignment.
        align: usize,
    },

    /// ARMCI is not initialized, or is already finalized.
    #[error("ARMCI is not initialized, or is finalized already")]
    NotInitialized,

    /// The mutexes exist already.
    #[error("there are mutexes already: destroy them first")]
    MutexesExist,

    /// There are no mutexes.
    #[error("there are no mutexes: create them first")]
    NoMutexes,

    /// The process has no such mutex in the set.
    #[error("mutex {mutex} of process {proc} is out of range: it made {mutexes}")]
    NoMutex {
        /// The number given.
        mutex: i32,
        /// The process of the mutex.
        proc: i32,
        /// The number of mutexes of that process.
        mutexes: u64,
    },

    /// A mutex to be unlocked is not locked.
    #[error("mutex {mutex} of process {proc} is not locked")]
    NotLocked {
        /// The number given.
        mutex: i32,
        /// The process of the mutex.
        proc: i32,
    },

    /// The handle names no group.
    #[error("{group} is no group, or was freed")]
    NoGroup {
        /// The handle given.
        group: i32,
    },

    /// This process is no member of the group, or the list of members is wrong.
    #[error("a group of {members} processes: {why}")]
    Group {
        /// The number of members.
        members: i32,
        /// The fault.
        why: &'static str,
    },

    /// A process has too little memory.
    #[error(
        "no memory for {} on process {proc}: raise HYDRANT_HEAP, or ARMCI_DEFAULT_SHMMAX if it is set",
        Size(*bytes as u64)
    )]
    OutOfMemory {
        /// The process.
        proc: usize,
        /// The number of bytes that were asked for.
        bytes: usize,
    },

    /// A message does not fit the receive buffer.
    #[error("a message of {} from process {from} does not fit a buffer of {}", Size(*bytes as u64), Size(*room as u64))]
    Truncated {
        /// The sender.
        from: usize,
        /// Bytes of the message.
        bytes: usize,
        /// Bytes of the buffer.
        room: usize,
    },

    /// Another process failed in a collective call.
    #[error("process {proc} could not do its part; it says why")]
    Elsewhere {
        /// The process that failed.
        proc: usize,
    },

    /// An error of Hydrant.
    #[error(transparent)]
    Hydrant(#[from] hydrant::Error),
}

impl Error {
    /// ARMCI's number for the error: a value from `FAIL` to `FAIL8`.
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

/// Checks that a pointer is not null.
pub(crate) fn not_null<T>(pointer: *const T, what: &'static str) -> Result<()> {
    if pointer.is_null() {
        return Err(Error::Null { what });
    }
    Ok(())
}

/// Checks a number of bytes or elements, which must be at least `least`.
pub(crate) fn count(value: i64, least: i64, what: &'static str) -> Result<usize> {
    if value < least {
        return Err(Error::Number { what, value, least });
    }
    usize::try_from(value).map_err(|_| Error::Number { what, value, least })
}
