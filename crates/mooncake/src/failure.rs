//! Failures of calls: their numbers, and the sentence of a thread's last one.

#![allow(unsafe_code)] // names of C

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
};

/// An argument cannot be used.
pub(crate) const INVALID_ARGUMENT: c_int = -1;
/// There are too many tasks.
pub(crate) const TOO_MANY: c_int = -2;
/// The memory is not registered.
pub(crate) const NOT_REGISTERED: c_int = -3;
/// Something is in use.
pub(crate) const BUSY: c_int = -4;
/// Memory of a device.
pub(crate) const DEVICE: c_int = -6;
/// Memory overlaps with registered memory.
pub(crate) const OVERLAPPED: c_int = -7;
/// The engine has no transport.
pub(crate) const NO_TRANSPORT: c_int = -8;
/// A name has no address.
pub(crate) const DNS: c_int = -101;
/// The network failed.
pub(crate) const SOCKET: c_int = -102;
/// A peer answers otherwise than an engine does.
pub(crate) const HANDSHAKE: c_int = -104;
/// There is no such segment, or it refuses.
pub(crate) const METADATA: c_int = -200;
/// The endpoint failed.
pub(crate) const ENDPOINT: c_int = -201;
/// There is not enough memory.
pub(crate) const MEMORY: c_int = -302;
/// A bug of the library was caught.
pub(crate) const PANIC: c_int = -999;

/// The failure of a call: its number, and the sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EngineFailure {
    pub(crate) code: c_int,
    pub(crate) text: String,
}

pub(crate) type Result<T, E = EngineFailure> = std::result::Result<T, E>;

impl EngineFailure {
    #[cold]
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// An error of an argument.
    #[cold]
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(INVALID_ARGUMENT, text)
    }
}

impl From<hydrant_endpoint::Error> for EngineFailure {
    fn from(cause: hydrant_endpoint::Error) -> Self {
        Self::new(ENDPOINT, cause.to_string())
    }
}

thread_local! {
    /// The sentence of this thread's last failure.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps the sentence of a failure for this thread.
#[cold]
pub(crate) fn keep(function: &str, failure: &EngineFailure) {
    let mut text = format!("{function}: {}", failure.text).into_bytes();
    text.retain(|byte| *byte != 0);
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending keeps nothing.
    let _ = LAST.try_with(|last| last.replace(Some(text)));
}

/// Returns the sentence of the last failure of a call by this thread, with the function's name. It is an empty text if
/// there was none. The text may be used until the next call of this thread that fails. It is never null. Only
/// Hydrant's library has this function.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_transfer_engine_last_error() -> *const c_char {
    let last = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    last.ok().flatten().unwrap_or(c"".as_ptr())
}
