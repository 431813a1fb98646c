//! Conversion of C's arguments to Rust.

use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
};

use super::armci::{ARMCI_Group, armci_giov_t, armci_hdl_t};
use crate::{
    Error, Group, Handle, Result, Strides, Vector,
    error::{count, not_null},
};

/// The treatment of a handle that ARMCI did not make, as in uninitialized memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// A fresh handle, for calls that begin operations. Some programs do not initialize their
    /// handles.
    Fresh,
    /// An error.
    Refused,
}

/// Runs `act` with the handle that C passes, and stores the changed handle.
///
/// # Safety
/// 1. `handle` is null or points to a handle that no other code uses meanwhile.
pub(super) unsafe fn handle<R>(
    handle: *mut armci_hdl_t,
    unknown: Unknown,
    act: impl FnOnce(Option<&mut Handle>) -> Result<R>,
) -> Result<R> {
    // SAFETY: `handle` is null or points to a handle, by the caller's condition 1.
    let Some(known) = (unsafe { handle.as_mut() }) else {
        return act(None);
    };
    let mut inner = Handle {
        number: known.data[0],
        is_aggregate: known.data[2],
    };
    if known.data[1] != seal(&inner) {
        match unknown {
            Unknown::Fresh => inner = Handle::default(),
            Unknown::Refused => return Err(Error::Handle),
        }
    }
    let done = act(Some(&mut inner));
    known.data[0] = inner.number;
    known.data[1] = seal(&inner);
    known.data[2] = inner.is_aggregate;
    done
}

/// The check word beside a handle's number, which shows that ARMCI made the handle; 0 for an empty
/// handle.
fn seal(handle: &Handle) -> i32 {
    let Handle {
        number,
        is_aggregate,
    } = *handle;
    match (number, is_aggregate) {
        (0, 0) => 0,
        _ => (number ^ is_aggregate.rotate_left(16) ^ 0x4864_7221).wrapping_mul(0x2545_f491) | 1,
    }
}

/// The strides and counts for a number of levels. Without levels the strides are not read.
///
/// # Safety
/// 1. `src` and `dst` are null or have a stride for each level.
/// 2. `count` is null or has one entry more than levels.
/// 3. No other code writes to the lists while the result lives.
#[inline(always)] // the most common strides take four comparisons
pub(super) unsafe fn strides<'a>(
    src: *mut c_int,
    dst: *mut c_int,
    count: *mut c_int,
    levels: c_int,
) -> Result<Strides<'a>> {
    if levels != 1 || src.is_null() || dst.is_null() || count.is_null() {
        // SAFETY: 1. to 3. The caller's conditions 1 to 3.
        return unsafe { strides_of_any(src, dst, count, levels) };
    }
    // SAFETY: the list has a stride for the only level, by the caller's condition 1. No other code
    // writes to it, by condition 3.
    let list = |list: *mut c_int| unsafe { std::slice::from_raw_parts(list, 1) };
    Ok(Strides {
        src: list(src),
        dst: list(dst),
        // SAFETY: `count` has two entries, by the caller's condition 2. No other code writes to
        // them, by condition 3.
        count: unsafe { std::slice::from_raw_parts(count, 2) },
    })
}

/// As [`strides`], for any number of levels.
///
/// # Safety
/// 1. to 3. as [`strides`].
#[inline(never)]
unsafe fn strides_of_any<'a>(
    src: *mut c_int,
    dst: *mut c_int,
    count: *mut c_int,
    levels: c_int,
) -> Result<Strides<'a>> {
    let number = usize::try_from(levels).ok();
    let number = number.filter(|number| *number <= crate::MAX_STRIDE_LEVEL);
    let number = number.ok_or(Error::StrideLevels { levels })?;
    not_null(count, "the list of counts")?;
    let list = |list: *mut c_int, what| -> Result<&'a [c_int]> {
        if number == 0 {
            return Ok(&[]);
        }
        not_null(list, what)?;
        // SAFETY: the list has a stride for each level, by the caller's condition 1. No other code
        // writes to it, by condition 3.
        Ok(unsafe { std::slice::from_raw_parts(list, number) })
    };
    Ok(Strides {
        src: list(src, "the list of strides of the source")?,
        dst: list(dst, "the list of strides of the destination")?,
        // SAFETY: `count` has one entry more than levels, by the caller's condition 2. No other
        // code writes to it, by condition 3.
        count: unsafe { std::slice::from_raw_parts(count, number + 1) },
    })
}

/// The vectors of C's descriptors.
///
/// # Safety
/// 1. `descriptors` is null or has `len` entries.
/// 2. The lists of each descriptor are null or as long as it says.
/// 3. No other code writes to the descriptors and lists while the result lives.
pub(super) unsafe fn vectors<'a>(
    descriptors: *mut armci_giov_t,
    len: c_int,
) -> Result<Vec<Vector<'a>>> {
    let len = count(len.into(), 1, "the number of descriptors")?;
    not_null(descriptors, "the list of descriptors")?;
    // SAFETY: the list has `len` descriptors, by the caller's condition 1. No other code writes to
    // it, by condition 3.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, len) };
    let vector = |it: &armci_giov_t| {
        not_null(it.src_ptr_array, "a list of sources")?;
        not_null(it.dst_ptr_array, "a list of destinations")?;
        let runs = count(
            it.ptr_array_len.into(),
            1,
            "the number of runs of a descriptor",
        )?;
        // SAFETY: each list is as long as the descriptor says, by the caller's condition 2. No
        // other code writes to it, by condition 3.
        let list =
            |list: *mut *mut c_void| unsafe { std::slice::from_raw_parts(list.cast(), runs) };
        Ok(Vector {
            src: list(it.src_ptr_array),
            dst: list(it.dst_ptr_array),
            bytes: count(it.bytes.into(), 1, "the number of bytes of a run")?,
        })
    };
    descriptors.iter().map(vector).collect()
}

/// The group that C names.
///
/// # Safety
/// If `group` is not null:
/// 1. It points to a group.
/// 2. No other code writes to the group meanwhile.
pub(super) unsafe fn group_at(group: *mut ARMCI_Group) -> Result<Group> {
    not_null(group, "a group")?;
    // SAFETY: `group` is not null. It points to a group that no other code writes to, by the
    // caller's conditions 1 and 2.
    Ok(Group(unsafe { *group }))
}

/// The room for a result, which C passes.
///
/// # Safety
/// If `at` is not null:
/// 1. It is aligned and writable for a `T`.
/// 2. No other code uses it while the result lives.
#[inline]
pub(super) unsafe fn room<'a, T>(at: *mut T, what: &'static str) -> Result<&'a mut MaybeUninit<T>> {
    not_null(at, what)?;
    // SAFETY: `at` is not null. It is writable for a `T`, and no other code uses it, by the
    // caller's conditions 1 and 2.
    Ok(unsafe { &mut *at.cast::<MaybeUninit<T>>() })
}

/// Bytes of C that may be changed.
///
/// # Safety
/// If `len` is not 0:
/// 1. `at` is null, or readable and writable for `len` bytes.
/// 2. No other code uses the bytes while the result lives.
pub(super) unsafe fn bytes<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    not_null(at, "a buffer")?;
    // SAFETY: `at` has `len` bytes that no other code uses, by the caller's conditions 1 and 2.
    Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len) })
}

/// Bytes of C that are only read. Other threads may read them too.
///
/// # Safety
/// If `len` is not 0:
/// 1. `at` is null, or readable for `len` bytes.
/// 2. No other code writes to the bytes while the result lives.
pub(super) unsafe fn read_bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    not_null(at, "a buffer")?;
    // SAFETY: `at` has `len` bytes that no other code writes to, by the caller's conditions 1 and 2.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), len) })
}
