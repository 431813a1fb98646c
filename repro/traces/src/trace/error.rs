//! Errors in traces, with their places.

use std::fmt;

use super::format::{MAX_RANKS, RECORD_BYTES};

/// An error in a trace, with its place.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// The file, as the caller named it.
    pub file: String,
    /// The rank whose file it is, once that is known.
    pub rank: Option<u32>,
    /// The index of the record in the file, from 0 on.
    pub record: Option<u64>,
    /// The byte of the file where the record begins.
    pub position: Option<u64>,
    /// The error.
    pub fault: TraceFault,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(rank) = self.rank {
            write!(f, ", rank {rank}")?;
        }
        if let Some(record) = self.record {
            write!(f, ", record {record}")?;
        }
        if let Some(position) = self.position {
            write!(f, " at byte {position}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// Prints the sentence as well, because `main` and `unwrap` print errors by `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// The kind of error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The file ends within its header.
    #[error("the file has {bytes} bytes, which is less than its header of 64")]
    NoHeader {
        /// The bytes of the file.
        bytes: u64,
    },
    /// The file is not a trace.
    #[error("it begins with {found:#x} and not with the magic number of a trace, 0x32544d50")]
    Magic {
        /// The first word of the file.
        found: u64,
    },
    /// The records have another size.
    #[error("its records have {found} bytes, and those of this format {RECORD_BYTES}")]
    RecordSize {
        /// The size in the header.
        found: u64,
    },
    /// The number of ranks is zero, or too large.
    #[error("a job of {ranks} ranks; there are between 1 and {MAX_RANKS}")]
    Ranks {
        /// The number in the header.
        ranks: u64,
    },
    /// The rank does not belong to the job.
    #[error("rank {rank} is not of a job of {ranks} ranks")]
    Rank {
        /// The rank in the header.
        rank: u64,
        /// The ranks of the job.
        ranks: u64,
    },
    /// The executable ends before it begins.
    #[error("the executable is mapped from {low:#x} to {high:#x}, which is backward")]
    Executable {
        /// Its lowest address.
        low: u64,
        /// Its highest.
        high: u64,
    },
    /// The last record is cut off.
    #[error("the file ends {bytes} bytes into a record of {RECORD_BYTES}; it was cut off")]
    Truncated {
        /// The bytes of the incomplete record.
        bytes: u64,
    },
    /// The file has a header and nothing else.
    #[error("there is no record")]
    Empty,
    /// The kind of call is unknown.
    #[error("a call of kind {kind}; kinds are 1 to 20")]
    Kind {
        /// The number.
        kind: u16,
    },
    /// The rank's first call is not MPI_Init, or another one is.
    #[error("MPI_Init is to be the first call and no other")]
    Init,
    /// The rank's last call is not MPI_Finalize, or another one is.
    #[error("MPI_Finalize is to be the last call and no other; was the program ended early?")]
    Finalize,
    /// A clock was set back between two calls.
    #[error("{clock} goes back from {before} ns to {now} ns")]
    TimeBack {
        /// The field.
        clock: &'static str,
        /// Its value at the call before.
        before: u64,
        /// Its value at this one.
        now: u64,
    },
    /// A call ends past the last moment of the clock.
    #[error("the call ends past the end of the clock")]
    TimeOverflow,
    /// Calls are missing.
    #[error("call {now} follows call {before}: a record is missing")]
    MissingCall {
        /// The number of the call before.
        before: u32,
        /// The number of this one.
        now: u32,
    },
    /// Records of one call contradict each other.
    #[error("it differs from the record before, of the same call {call}, in {field}")]
    Contradiction {
        /// The call.
        call: u32,
        /// The field that differs.
        field: &'static str,
    },
    /// A buffer ends past the last address.
    #[error("a buffer of {bytes} bytes at {addr:#x} ends past the last address")]
    Buffer {
        /// Its first byte.
        addr: u64,
        /// Its length.
        bytes: u64,
    },
    /// The peer of the call is not a rank of the job.
    #[error(
        "its peer is {peer}, and the job has {ranks} ranks; record the actual sender of a wildcard receive"
    )]
    Peer {
        /// The peer.
        peer: i32,
        /// The ranks of the job.
        ranks: u32,
    },
    /// A request has no number, or one that was given before.
    #[error("request {request} was begun before, or has no number")]
    RequestAgain {
        /// The number.
        request: u64,
    },
    /// A request is completed that was not begun, or was completed before.
    #[error("request {request} is completed and is not in flight")]
    RequestUnknown {
        /// The number.
        request: u64,
    },
    /// A request is never completed.
    #[error("request {request} is begun and never completed")]
    RequestLeft {
        /// The number.
        request: u64,
    },
    /// A rank has no file.
    #[error("there is no file of rank {missing}, of {ranks} ranks")]
    RankMissing {
        /// The rank.
        missing: u32,
        /// The ranks of the job.
        ranks: u32,
    },
    /// A rank has two files.
    #[error("{other} is of the same rank")]
    RankTwice {
        /// The other file.
        other: String,
    },
    /// The files are of different jobs.
    #[error("it is of a job of {ranks} ranks, and {other} of one of {others}")]
    OtherJob {
        /// The ranks of its job.
        ranks: u32,
        /// Another file.
        other: String,
        /// The ranks of the other's job.
        others: u32,
    },
    /// A message is sent and never received.
    #[error("{bytes} bytes are sent to rank {to} with tag {tag}, which never receives them")]
    SendWithoutReceive {
        /// The receiver.
        to: u32,
        /// The tag.
        tag: i32,
        /// The bytes of the message.
        bytes: u64,
    },
    /// A message is received and was never sent.
    #[error("a message of rank {from} with tag {tag} is received, which never sends it")]
    ReceiveWithoutSend {
        /// The sender.
        from: u32,
        /// The tag.
        tag: i32,
    },
    /// A message is longer than the buffer that receives it.
    #[error("{sent} bytes are sent to rank {to} with tag {tag}, which receives {received} at most")]
    Length {
        /// The receiver.
        to: u32,
        /// The tag.
        tag: i32,
        /// The bytes of the message.
        sent: u64,
        /// The bytes of the receiver's buffer.
        received: u64,
    },
    /// Ranks disagree about a collective call of all ranks.
    #[error("its collective call {number} on all ranks is {here}, and that of rank 0 {there}")]
    Collective {
        /// The number of the call, from 0 on.
        number: u64,
        /// The call on this rank.
        here: String,
        /// The call on rank 0.
        there: String,
    },
}
