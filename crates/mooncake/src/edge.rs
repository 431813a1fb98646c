//! The edge between C and Rust: panics stop here, and arguments of C become values of Rust.

#![allow(unsafe_code)] // pointers of C

use std::{
    any::Any,
    ffi::{CStr, c_char, c_int},
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::failure::{self, EngineFailure, Result};

/// Runs the body of a function of C that returns 0 or a negative number.
pub(crate) fn edge(function: &'static str, body: impl FnOnce() -> Result<c_int>) -> c_int {
    run(function, body).unwrap_or_else(|failure| failure.code)
}

/// Runs the body of a function of C that returns 0 or a positive number, as those of batches do.
pub(crate) fn batch_edge(function: &'static str, body: impl FnOnce() -> Result<c_int>) -> c_int {
    run(function, body).unwrap_or_else(|failure| failure.code.saturating_abs())
}

/// Runs the body of a function of C that returns `otherwise` if it fails.
pub(crate) fn edge_or<T>(
    function: &'static str,
    otherwise: T,
    body: impl FnOnce() -> Result<T>,
) -> T {
    run(function, body).unwrap_or(otherwise)
}

fn run<T>(function: &'static str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => Err(caught(panic)),
    };
    if let Err(failure) = &result {
        failure::keep(function, failure);
    }
    result
}

#[cold]
fn caught(panic: Box<dyn Any + Send>) -> EngineFailure {
    let text = match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            // The drop of a panic's value may panic itself.
            Err(panic) => {
                std::mem::forget(panic);
                "a value that is no text".to_owned()
            }
        },
    };
    EngineFailure::new(failure::PANIC, format!("the library panicked: {text}"))
}

pub(crate) fn not_null<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(EngineFailure::argument(format!("{what} is null")));
    }
    if !pointer.is_aligned() {
        let text = format!("{what} at {pointer:p} is not aligned");
        return Err(EngineFailure::argument(text));
    }
    Ok(())
}

/// A string of C.
///
/// # Safety
/// 1. If `text` is not null, it is a string of C, which nobody changes while the result lives.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr> {
    not_null(text, what)?;
    // SAFETY: 1. the caller's condition.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A name: a string of C that is UTF-8.
///
/// # Safety
/// 1. as [`text`].
pub(crate) unsafe fn name<'a>(name: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: 1. the caller's condition.
    let name = unsafe { text(name, what)? };
    let utf8 = name.to_str();
    utf8.map_err(|_| EngineFailure::argument(format!("{what} is not UTF-8")))
}

/// Elements that C only reads.
///
/// # Safety
/// If `count` is not 0 and `start` is neither null nor misaligned, while the result lives:
/// 1. `start` is readable for `count` elements, of which any bytes are valid.
/// 2. No code writes to them.
pub(crate) unsafe fn input<'a, T>(start: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    not_null(start, what)?;
    if count > isize::MAX as usize / size_of::<T>() {
        let text = format!("{what}: {count} elements are more than any memory has");
        return Err(EngineFailure::argument(text));
    }
    // SAFETY: the caller's conditions 1 and 2, and the checks above.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Writes as much of a text as there is room for, and the 0 behind it.
///
/// # Safety
/// 1. If `room` is not null, it is writable for `bytes` bytes, which nobody else uses.
pub(crate) unsafe fn write_text(text: &str, room: *mut c_char, bytes: usize) -> Result<()> {
    not_null(room, "the room for the text")?;
    let Some(most) = bytes.checked_sub(1) else {
        let text = "the room for the text has no byte";
        return Err(EngineFailure::argument(text));
    };
    let len = text.find('\0').unwrap_or(text.len()).min(most);
    let room = room.cast::<MaybeUninit<u8>>();
    // SAFETY: 1. the caller's condition, and `len` is below `bytes`.
    let room = unsafe { std::slice::from_raw_parts_mut(room, len + 1) };
    let bytes = text.as_bytes()[..len].iter().chain(&[0]);
    for (place, byte) in room.iter_mut().zip(bytes) {
        place.write(*byte);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_passes() {
        assert_eq!(edge("here", || panic!("a {}", "text")), failure::PANIC);
        // SAFETY: the text of this thread's last failure.
        let text = unsafe { CStr::from_ptr(failure::hydrant_transfer_engine_last_error()) };
        assert_eq!(text.to_str(), Ok("here: the library panicked: a text"));
        let code = batch_edge("here", || std::panic::panic_any(7));
        assert_eq!(code, -failure::PANIC);
    }

    #[test]
    fn texts_are_cut_to_their_room() {
        for (bytes, wanted) in [(6, "hello"), (5, "hell"), (1, "")] {
            let mut room = [7; 8];
            // SAFETY: 1. the room has more bytes.
            unsafe { write_text("hello", room.as_mut_ptr(), bytes) }.unwrap();
            // SAFETY: 1. the text was just written.
            let seen = unsafe { text(room.as_ptr(), "it") }.unwrap();
            assert_eq!(seen.to_str(), Ok(wanted));
            assert_eq!(room[bytes], 7);
        }
        for (room, bytes) in [(std::ptr::null_mut(), 5), ([0; 1].as_mut_ptr(), 0)] {
            // SAFETY: 1. it is null or has no byte.
            assert!(unsafe { write_text("", room, bytes) }.is_err());
        }
    }
}
