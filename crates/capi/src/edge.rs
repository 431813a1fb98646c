//! The edge between C and Rust: panics stop here, and arguments of C become values of Rust.

#![allow(unsafe_code)] // pointers of C

use std::{
    any::Any,
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::status::{self, CallFailure, HYDRANT_SUCCESS, Result};

/// Runs the body of a function of C. Returns its status, and keeps the sentence of an error. No panic passes.
#[inline(always)]
pub(crate) fn edge(function: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => HYDRANT_SUCCESS,
        Ok(Err(failure)) => fail(function, &failure),
        Err(panic) => fail(function, &caught(panic)),
    }
}

#[cold]
fn fail(function: &'static str, failure: &CallFailure) -> c_int {
    status::keep(function, failure);
    failure.code()
}

#[cold]
fn caught(panic: Box<dyn Any + Send>) -> CallFailure {
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
    CallFailure::new(
        status::HYDRANT_ERROR_PANIC,
        format!("the library panicked: {text}"),
    )
}

/// An error of an argument.
#[cold]
pub(crate) fn argument(text: impl Into<String>) -> CallFailure {
    CallFailure::new(status::HYDRANT_ERROR_ARGUMENT, text)
}

/// The error of a size that no memory has.
#[cold]
pub(crate) fn overflow(what: &str) -> CallFailure {
    let text = format!("{what} has more bytes than any memory");
    CallFailure::new(status::HYDRANT_ERROR_OVERFLOW, text)
}

/// Multiplies a count by a size.
#[inline]
pub(crate) fn times(count: usize, size: usize, what: &str) -> Result<usize> {
    count.checked_mul(size).ok_or_else(|| overflow(what))
}

#[inline]
pub(crate) fn not_null<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(null(what));
    }
    Ok(())
}

#[cold]
fn null(what: &str) -> CallFailure {
    CallFailure::new(status::HYDRANT_ERROR_NULL, format!("{what} is null"))
}

/// Checks that `count` elements at `start` may be a slice. Returns whether there are any.
#[inline]
fn check<T>(start: *const T, count: usize, what: &str) -> Result<bool> {
    if count == 0 {
        return Ok(false);
    }
    not_null(start, what)?;
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(overflow(what));
    }
    if !start.is_aligned() {
        let text = format!(
            "{what} at {start:p} is not aligned to {} bytes",
            align_of::<T>()
        );
        return Err(CallFailure::new(status::HYDRANT_ERROR_ALIGNMENT, text));
    }
    Ok(true)
}

/// Elements that C only reads.
///
/// # Safety
/// If `count` is not 0 and `start` is neither null nor misaligned, while the result lives:
/// 1. `start` is readable for `count` elements, of which any bytes are valid.
/// 2. No code writes to them.
#[inline]
pub(crate) unsafe fn input<'a, T>(start: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if !check(start, count, what)? {
        return Ok(&[]);
    }
    // SAFETY: the caller's conditions 1 and 2, and `check`.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Elements that are written.
///
/// # Safety
/// If `count` is not 0 and `start` is neither null nor misaligned, while the result lives:
/// 1. `start` is readable and writable for `count` elements, of which any bytes are valid.
/// 2. No other code uses them.
#[inline]
pub(crate) unsafe fn output<'a, T>(start: *mut T, count: usize, what: &str) -> Result<&'a mut [T]> {
    if !check(start, count, what)? {
        return Ok(&mut []);
    }
    // SAFETY: the caller's conditions 1 and 2, and `check`.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, count) })
}

/// The address and the number of bytes that an operation uses after the call, checked as those of a slice.
#[inline]
pub(crate) fn lent<T>(start: *const T, bytes: usize, what: &str) -> Result<*const u8> {
    if check(start.cast::<u8>(), bytes, what)? {
        return Ok(start.cast());
    }
    Ok(std::ptr::NonNull::<u8>::dangling().as_ptr())
}

/// Checks that a section or a list that is counted from `start` has an address.
#[inline]
pub(crate) fn base(start: *const c_void, bytes: usize, what: &str) -> Result<*const u8> {
    lent(start, bytes, what)
}

/// The room for a result.
///
/// # Safety
/// If `at` is not null, while the result lives:
/// 1. It is aligned and writable for a `T`.
/// 2. No other code uses it.
#[inline]
pub(crate) unsafe fn room<'a, T>(at: *mut T, what: &str) -> Result<&'a mut MaybeUninit<T>> {
    not_null(at, what)?;
    // SAFETY: the caller's conditions 1 and 2.
    Ok(unsafe { &mut *at.cast::<MaybeUninit<T>>() })
}

/// The room for a result that C may leave out.
///
/// # Safety
/// 1. and 2. as [`room`].
#[inline]
pub(crate) unsafe fn optional<'a, T>(at: *mut T) -> Option<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller's conditions 1 and 2.
    unsafe { at.cast::<MaybeUninit<T>>().as_mut() }
}

/// A structure that C passes by its address.
///
/// # Safety
/// If `at` is not null, while the result lives:
/// 1. It points to a `T`.
/// 2. No code writes to it.
#[inline]
pub(crate) unsafe fn given<'a, T>(at: *const T, what: &str) -> Result<&'a T> {
    not_null(at, what)?;
    // SAFETY: the caller's conditions 1 and 2.
    Ok(unsafe { &*at })
}

/// Writes as much of a list as there is room for, and the number of its entries.
pub(crate) fn fill<T: Copy>(
    list: impl ExactSizeIterator<Item = T>,
    room: &mut [MaybeUninit<T>],
    count: Option<&mut MaybeUninit<usize>>,
) {
    if let Some(count) = count {
        count.write(list.len());
    }
    for (place, entry) in room.iter_mut().zip(list) {
        place.write(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_passes() {
        assert_eq!(
            edge("here", || panic!("a {}", "text")),
            status::HYDRANT_ERROR_PANIC
        );
        // SAFETY: the text of this thread's last error.
        let text = unsafe { std::ffi::CStr::from_ptr(status::hydrant_last_error()) };
        assert_eq!(text.to_str(), Ok("here: the library panicked: a text"));
        let code = edge("here", || std::panic::panic_any(7));
        assert_eq!(code, status::HYDRANT_ERROR_PANIC);
    }

    #[test]
    fn unfit_slices_are_errors() {
        let two = [1_u64; 2];
        let odd = two.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>();
        for (start, count, code) in [
            (std::ptr::null(), 1, status::HYDRANT_ERROR_NULL),
            (two.as_ptr(), usize::MAX / 8, status::HYDRANT_ERROR_OVERFLOW),
            (odd, 1, status::HYDRANT_ERROR_ALIGNMENT),
        ] {
            // SAFETY: 1., 2. The slices are refused.
            let failed = unsafe { input(start, count, "it") };
            assert_eq!(failed.map_err(|it| it.code()), Err(code));
        }
    }
}
