//! The status of a call: its numbers, their texts, and the sentence of a thread's last error.

#![allow(unsafe_code)] // names of C

mod classes;

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
};

use hydrant::Error;

/// The call succeeded.
pub const HYDRANT_SUCCESS: c_int = 0;
/// A pointer that must not be null is null.
pub const HYDRANT_ERROR_NULL: c_int = -1;
/// A handle is not one of this kind: it was freed, its job is over, or the library did not make it.
pub const HYDRANT_ERROR_HANDLE: c_int = -2;
/// An argument has none of the values that it may have, such as an unknown type or operation.
pub const HYDRANT_ERROR_ARGUMENT: c_int = -3;
/// A bug of the library was caught at its edge. Please report it.
pub const HYDRANT_ERROR_PANIC: c_int = -4;
/// The time of a wait is over.
pub const HYDRANT_ERROR_TIMEOUT: c_int = -5;
/// There is no such rank in the job or in the team.
pub const HYDRANT_ERROR_RANK: c_int = -6;
/// Bytes lie outside the memory or the buffer.
pub const HYDRANT_ERROR_BOUNDS: c_int = -7;
/// An address or an offset is not aligned as its type needs.
pub const HYDRANT_ERROR_ALIGNMENT: c_int = -8;
/// Memory that must be apart shares bytes.
pub const HYDRANT_ERROR_OVERLAP: c_int = -9;
/// A size is larger than any memory.
pub const HYDRANT_ERROR_OVERFLOW: c_int = -10;
/// Two lengths differ that must be equal.
pub const HYDRANT_ERROR_LENGTH: c_int = -11;
/// A message is longer than the limit, or than the room for it.
pub const HYDRANT_ERROR_TOO_LONG: c_int = -12;
/// The tag is reserved.
pub const HYDRANT_ERROR_TAG: c_int = -13;
/// There is no such handler, it failed, or there is no room for another.
pub const HYDRANT_ERROR_HANDLER: c_int = -14;
/// A handler may reply once, and only to a request.
pub const HYDRANT_ERROR_REPLY: c_int = -15;
/// A handler called a function that waits.
pub const HYDRANT_ERROR_IN_HANDLER: c_int = -16;
/// Handlers sent more than their peers have room for.
pub const HYDRANT_ERROR_BACKLOG: c_int = -17;
/// The ranks called a collective with different arguments.
pub const HYDRANT_ERROR_MISMATCH: c_int = -18;
/// A call came out of turn, as a second collective of a team in another thread.
pub const HYDRANT_ERROR_TURN: c_int = -19;
/// Elements of this type have no such operation.
pub const HYDRANT_ERROR_OPERATION: c_int = -20;
/// The symmetric memory was freed.
pub const HYDRANT_ERROR_FREED: c_int = -21;
/// The owner took its exposed memory back.
pub const HYDRANT_ERROR_REVOKED: c_int = -22;
/// A pointer for peers names nothing: no job of this process made it, or it does not fit.
pub const HYDRANT_ERROR_POINTER: c_int = -23;
/// Memory that was named by its address is not mapped, or does not permit the access.
pub const HYDRANT_ERROR_ADDRESS: c_int = -24;
/// A rank does not let peers name its memory by address.
pub const HYDRANT_ERROR_REFUSED: c_int = -25;
/// The job is over.
pub const HYDRANT_ERROR_JOB_OVER: c_int = -26;
/// This process was forked from a rank, and takes no part in the job.
pub const HYDRANT_ERROR_FORKED: c_int = -27;
/// A rank died or cannot be reached.
pub const HYDRANT_ERROR_PEER_LOST: c_int = -28;
/// A rank came to the end of the job, so that the awaited event cannot happen any more.
pub const HYDRANT_ERROR_PEER_ENDED: c_int = -29;
/// All other ranks came to the end of the job, so that the awaited event cannot happen any more.
pub const HYDRANT_ERROR_OTHERS_ENDED: c_int = -30;
/// This rank takes no part in the job any more, because it aborted or broke a rule.
pub const HYDRANT_ERROR_EXPELLED: c_int = -31;
/// There is not enough memory.
pub const HYDRANT_ERROR_MEMORY: c_int = -32;
/// Memory could not be registered with the network.
pub const HYDRANT_ERROR_REGISTRATION: c_int = -33;
/// A lock is held that must not be, or is not held that must be.
pub const HYDRANT_ERROR_LOCK: c_int = -34;
/// An atomic operation was done once, and its result was lost with the connection.
pub const HYDRANT_ERROR_RESULT_LOST: c_int = -35;
/// A HYDRANT_* variable has an invalid value.
pub const HYDRANT_ERROR_SETTING: c_int = -36;
/// The job could not be joined.
pub const HYDRANT_ERROR_LAUNCH: c_int = -37;
/// The network failed.
pub const HYDRANT_ERROR_NETWORK: c_int = -38;
/// Any other failure; hydrant_last_error tells it.
pub const HYDRANT_ERROR_OTHER: c_int = -39;
/// A peer has closed its endpoint.
pub const HYDRANT_ERROR_LEFT: c_int = -40;
/// An endpoint cannot be reached, or does not want to be.
pub const HYDRANT_ERROR_UNREACHABLE: c_int = -41;
/// The endpoint is closed.
pub const HYDRANT_ERROR_CLOSED: c_int = -42;
/// The time for which memory was lent is over.
pub const HYDRANT_ERROR_EXPIRED: c_int = -43;
/// An address or a descriptor is malformed, was changed, or is of another endpoint.
pub const HYDRANT_ERROR_DESCRIPTOR: c_int = -44;
/// A descriptor, or the system, does not permit the access.
pub const HYDRANT_ERROR_PERMISSION: c_int = -45;
/// The operation was cancelled. Nothing of it lands any more.
pub const HYDRANT_ERROR_CANCELLED: c_int = -46;
/// A peer uses the memory, or has not read its messages.
pub const HYDRANT_ERROR_BUSY: c_int = -47;
/// A table is full.
pub const HYDRANT_ERROR_FULL: c_int = -48;

/// The numbers, with the name and the text of each.
const ALL: [(c_int, &CStr, &CStr); 49] = [
    (HYDRANT_SUCCESS, c"HYDRANT_SUCCESS", c"success"),
    (
        HYDRANT_ERROR_NULL,
        c"HYDRANT_ERROR_NULL",
        c"a pointer is null that must not be",
    ),
    (
        HYDRANT_ERROR_HANDLE,
        c"HYDRANT_ERROR_HANDLE",
        c"the handle was freed or never made, or is of another kind",
    ),
    (
        HYDRANT_ERROR_ARGUMENT,
        c"HYDRANT_ERROR_ARGUMENT",
        c"an argument has none of the values that it may have",
    ),
    (
        HYDRANT_ERROR_PANIC,
        c"HYDRANT_ERROR_PANIC",
        c"the library panicked: a bug of Hydrant",
    ),
    (
        HYDRANT_ERROR_TIMEOUT,
        c"HYDRANT_ERROR_TIMEOUT",
        c"the time of a wait is over",
    ),
    (
        HYDRANT_ERROR_RANK,
        c"HYDRANT_ERROR_RANK",
        c"there is no such rank",
    ),
    (
        HYDRANT_ERROR_BOUNDS,
        c"HYDRANT_ERROR_BOUNDS",
        c"bytes lie outside the memory",
    ),
    (
        HYDRANT_ERROR_ALIGNMENT,
        c"HYDRANT_ERROR_ALIGNMENT",
        c"an address or an offset is not aligned",
    ),
    (
        HYDRANT_ERROR_OVERLAP,
        c"HYDRANT_ERROR_OVERLAP",
        c"memory overlaps that must be apart",
    ),
    (
        HYDRANT_ERROR_OVERFLOW,
        c"HYDRANT_ERROR_OVERFLOW",
        c"a size is larger than any memory",
    ),
    (
        HYDRANT_ERROR_LENGTH,
        c"HYDRANT_ERROR_LENGTH",
        c"two lengths differ that must be equal",
    ),
    (
        HYDRANT_ERROR_TOO_LONG,
        c"HYDRANT_ERROR_TOO_LONG",
        c"a message is too long",
    ),
    (
        HYDRANT_ERROR_TAG,
        c"HYDRANT_ERROR_TAG",
        c"the tag is reserved",
    ),
    (
        HYDRANT_ERROR_HANDLER,
        c"HYDRANT_ERROR_HANDLER",
        c"a handler is unknown or failed, or there are too many",
    ),
    (
        HYDRANT_ERROR_REPLY,
        c"HYDRANT_ERROR_REPLY",
        c"a handler may reply once, and only to a request",
    ),
    (
        HYDRANT_ERROR_IN_HANDLER,
        c"HYDRANT_ERROR_IN_HANDLER",
        c"a handler may not wait",
    ),
    (
        HYDRANT_ERROR_BACKLOG,
        c"HYDRANT_ERROR_BACKLOG",
        c"handlers sent more than peers have room for",
    ),
    (
        HYDRANT_ERROR_MISMATCH,
        c"HYDRANT_ERROR_MISMATCH",
        c"ranks disagree in a collective",
    ),
    (
        HYDRANT_ERROR_TURN,
        c"HYDRANT_ERROR_TURN",
        c"a call came out of turn",
    ),
    (
        HYDRANT_ERROR_OPERATION,
        c"HYDRANT_ERROR_OPERATION",
        c"elements of this type have no such operation",
    ),
    (
        HYDRANT_ERROR_FREED,
        c"HYDRANT_ERROR_FREED",
        c"the memory was freed",
    ),
    (
        HYDRANT_ERROR_REVOKED,
        c"HYDRANT_ERROR_REVOKED",
        c"the owner took the exposed memory back",
    ),
    (
        HYDRANT_ERROR_POINTER,
        c"HYDRANT_ERROR_POINTER",
        c"a pointer for peers names nothing",
    ),
    (
        HYDRANT_ERROR_ADDRESS,
        c"HYDRANT_ERROR_ADDRESS",
        c"memory at an address is not mapped or not permitted",
    ),
    (
        HYDRANT_ERROR_REFUSED,
        c"HYDRANT_ERROR_REFUSED",
        c"a rank does not offer its address space",
    ),
    (
        HYDRANT_ERROR_JOB_OVER,
        c"HYDRANT_ERROR_JOB_OVER",
        c"the job is over",
    ),
    (
        HYDRANT_ERROR_FORKED,
        c"HYDRANT_ERROR_FORKED",
        c"this process was forked from a rank",
    ),
    (
        HYDRANT_ERROR_PEER_LOST,
        c"HYDRANT_ERROR_PEER_LOST",
        c"a rank is lost",
    ),
    (
        HYDRANT_ERROR_PEER_ENDED,
        c"HYDRANT_ERROR_PEER_ENDED",
        c"a rank came to the end of the job",
    ),
    (
        HYDRANT_ERROR_OTHERS_ENDED,
        c"HYDRANT_ERROR_OTHERS_ENDED",
        c"all other ranks came to the end of the job",
    ),
    (
        HYDRANT_ERROR_EXPELLED,
        c"HYDRANT_ERROR_EXPELLED",
        c"this rank takes no part in the job any more",
    ),
    (
        HYDRANT_ERROR_MEMORY,
        c"HYDRANT_ERROR_MEMORY",
        c"there is not enough memory",
    ),
    (
        HYDRANT_ERROR_REGISTRATION,
        c"HYDRANT_ERROR_REGISTRATION",
        c"memory could not be registered",
    ),
    (
        HYDRANT_ERROR_LOCK,
        c"HYDRANT_ERROR_LOCK",
        c"a lock is held that must not be, or is not held",
    ),
    (
        HYDRANT_ERROR_RESULT_LOST,
        c"HYDRANT_ERROR_RESULT_LOST",
        c"the result of an atomic operation was lost",
    ),
    (
        HYDRANT_ERROR_SETTING,
        c"HYDRANT_ERROR_SETTING",
        c"a setting has an invalid value",
    ),
    (
        HYDRANT_ERROR_LAUNCH,
        c"HYDRANT_ERROR_LAUNCH",
        c"the job could not be joined",
    ),
    (
        HYDRANT_ERROR_NETWORK,
        c"HYDRANT_ERROR_NETWORK",
        c"the network failed",
    ),
    (
        HYDRANT_ERROR_OTHER,
        c"HYDRANT_ERROR_OTHER",
        c"a failure of another kind",
    ),
    (
        HYDRANT_ERROR_LEFT,
        c"HYDRANT_ERROR_LEFT",
        c"a peer has left",
    ),
    (
        HYDRANT_ERROR_UNREACHABLE,
        c"HYDRANT_ERROR_UNREACHABLE",
        c"an endpoint is not reached",
    ),
    (
        HYDRANT_ERROR_CLOSED,
        c"HYDRANT_ERROR_CLOSED",
        c"the endpoint is closed",
    ),
    (
        HYDRANT_ERROR_EXPIRED,
        c"HYDRANT_ERROR_EXPIRED",
        c"the time of a descriptor is over",
    ),
    (
        HYDRANT_ERROR_DESCRIPTOR,
        c"HYDRANT_ERROR_DESCRIPTOR",
        c"an address or a descriptor is of no use",
    ),
    (
        HYDRANT_ERROR_PERMISSION,
        c"HYDRANT_ERROR_PERMISSION",
        c"the access is not permitted",
    ),
    (
        HYDRANT_ERROR_CANCELLED,
        c"HYDRANT_ERROR_CANCELLED",
        c"the operation was cancelled",
    ),
    (HYDRANT_ERROR_BUSY, c"HYDRANT_ERROR_BUSY", c"a peer is busy"),
    (
        HYDRANT_ERROR_FULL,
        c"HYDRANT_ERROR_FULL",
        c"a table is full",
    ),
];

/// A failed call. It is as small as a pointer, because every result is moved.
#[derive(Debug)]
pub(crate) struct CallFailure(Box<(c_int, String)>);

pub(crate) type Result<T, E = CallFailure> = std::result::Result<T, E>;

impl CallFailure {
    #[cold]
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Self(Box::new((code, text.into())))
    }

    pub(crate) fn code(&self) -> c_int {
        self.0.0
    }
}

impl From<Error> for CallFailure {
    #[cold]
    fn from(cause: Error) -> Self {
        Self::new(classes::code_of(&cause), cause.to_string())
    }
}

impl From<hydrant::endpoint::Error> for CallFailure {
    #[cold]
    fn from(cause: hydrant::endpoint::Error) -> Self {
        Self::new(classes::endpoint_code_of(&cause), cause.to_string())
    }
}

thread_local! {
    /// The sentence of this thread's last error.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps the sentence of an error for this thread.
#[cold]
pub(crate) fn keep(function: &str, failure: &CallFailure) {
    let mut text = format!("{function}: {}", failure.0.1).into_bytes();
    text.retain(|byte| *byte != 0);
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending keeps nothing.
    let _ = LAST.try_with(|last| last.replace(Some(text)));
}

/// Returns the text of a status: a few words for its class of errors. The text is never freed, and is the
/// same for each unknown number. It is never null.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_strerror(status: c_int) -> *const c_char {
    let known = ALL.iter().find(|(code, ..)| *code == status);
    known
        .map_or(c"no status of Hydrant", |(.., text)| text)
        .as_ptr()
}

/// Returns the name of a status, such as "HYDRANT_ERROR_RANK", or "unknown". The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_error_name(status: c_int) -> *const c_char {
    let known = ALL.iter().find(|(code, ..)| *code == status);
    known.map_or(c"unknown", |(_, name, _)| name).as_ptr()
}

/// Returns the whole sentence of the last error of a call by this thread, with the function's name, the ranks,
/// sizes and limits. It is an empty text if there was none. Another thread does not see it. The text may be used
/// until the next call of this thread that fails. It is never null.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_last_error() -> *const c_char {
    let last = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    last.ok().flatten().unwrap_or(c"".as_ptr())
}
