//! What C's arguments say, as Rust has it.

use std::ffi::{c_int, c_void};

use super::armci::{ARMCI_Group, armci_giov_t, armci_hdl_t};
use crate::{
    Error, Group, Handle, Result, Strides, Vector,
    error::{count, not_null},
};

/// The treatment of a handle that ARMCI did not make: memory that was not initialized.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// A fresh handle, for calls that begin operations: some programs do not initialize their handles.
    Fresh,
    /// An error.
    Refused,
}

/// The handle in what C has.
pub(super) unsafe fn handle<R>(
    handle: *mut armci_hdl_t,
    unknown: Unknown,
    act: impl FnOnce(Option<&mut Handle>) -> Result<R>,
) -> Result<R> {
    // SAFETY: null or a handle, says the caller.
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

/// The check word beside a handle's number, by which other memory is recognized; 0 for an empty handle.
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

/// The strides and counts of so many levels. Without levels nobody looks at strides.
#[inline(always)] // the most usual ones take four comparisons
pub(super) unsafe fn strides<'a>(
    src: *mut c_int,
    dst: *mut c_int,
    count: *mut c_int,
    levels: c_int,
) -> Result<Strides<'a>> {
    if levels != 1 || src.is_null() || dst.is_null() || count.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { strides_of_any(src, dst, count, levels) };
    }
    // SAFETY: a stride for the one level, says the caller.
    let list = |list: *mut c_int| unsafe { std::slice::from_raw_parts(list, 1) };
    Ok(Strides {
        src: list(src),
        dst: list(dst),
        // SAFETY: one more, says the caller.
        count: unsafe { std::slice::from_raw_parts(count, 2) },
    })
}

/// As [`strides`], of however many levels.
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
        // SAFETY: a stride for each level, says the caller.
        Ok(unsafe { std::slice::from_raw_parts(list, number) })
    };
    Ok(Strides {
        src: list(src, "the list of strides of the source")?,
        dst: list(dst, "the list of strides of the destination")?,
        // SAFETY: one more, says the caller.
        count: unsafe { std::slice::from_raw_parts(count, number + 1) },
    })
}

/// The vectors of descriptors.
pub(super) unsafe fn vectors<'a>(
    descriptors: *mut armci_giov_t,
    len: c_int,
) -> Result<Vec<Vector<'a>>> {
    let len = count(len.into(), 1, "the number of descriptors")?;
    not_null(descriptors, "the list of descriptors")?;
    // SAFETY: so many, says the caller.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, len) };
    let vector = |it: &armci_giov_t| {
        not_null(it.src_ptr_array, "a list of sources")?;
        not_null(it.dst_ptr_array, "a list of destinations")?;
        let runs = count(
            it.ptr_array_len.into(),
            1,
            "the number of runs of a descriptor",
        )?;
        // SAFETY: as many as it says, says the caller.
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
pub(super) unsafe fn group_at(group: *mut ARMCI_Group) -> Result<Group> {
    not_null(group, "a group")?;
    // SAFETY: what C's caller promises.
    Ok(Group(unsafe { *group }))
}
