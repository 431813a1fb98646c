//! Exposed buffers of a rank, and pointers that have the same meaning on every rank.

use std::{
    ffi::{c_int, c_void},
    ptr::NonNull,
    sync::Arc,
};

use hydrant::{PackedPtr, Rank};

use super::{
    objects::{EXPOSED, ExposedObject, JOBS, with_memory},
    types::{hydrant_exposed, hydrant_job, hydrant_memory, hydrant_pointer},
};
use crate::edge::{edge, given, lent, room};

/// Lends a buffer of this rank to all ranks, which reach it by pointers of hydrant_exposed_pointer. The buffer must stay
/// allocated until hydrant_unexpose has returned, and peers may change it at any time. Not collective.
///
/// Errors: HYDRANT_ERROR_NULL, HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_NETWORK if there are too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_expose(
    job: *mut hydrant_job,
    buffer: *mut c_void,
    bytes: usize,
    exposed: *mut *mut hydrant_exposed,
) -> c_int {
    edge("hydrant_expose", || {
        // SAFETY: 1. and 2. C1 and C2.
        let exposed = unsafe { room(exposed, "the place of the exposed memory")? };
        let start = lent(buffer, bytes, "the buffer")?;
        let start = NonNull::new(start.cast_mut()).unwrap_or(NonNull::dangling());
        let job = JOBS.get(job)?;
        // SAFETY: 1. and 2. C1 and C2, until hydrant_unexpose.
        let lent = unsafe { job.job.expose_raw(start, bytes)? };
        exposed.write(EXPOSED.insert(ExposedObject { job, exposed: lent })?);
        Ok(())
    })
}

/// Takes an exposed buffer back. When this returns, no peer touches it any more. Later uses of its pointers are
/// HYDRANT_ERROR_REVOKED.
///
/// Errors: HYDRANT_ERROR_HANDLE; HYDRANT_ERROR_IN_HANDLER, and then the buffer stays exposed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_unexpose(exposed: *mut hydrant_exposed) -> c_int {
    edge("hydrant_unexpose", || {
        hydrant::may_wait("the end of exposed memory")?;
        let mut taken = EXPOSED.remove(exposed)?;
        // Another thread may be about to make a pointer, which takes a moment.
        loop {
            match Arc::try_unwrap(taken) {
                Ok(last) => break drop(last),
                Err(shared) => taken = shared,
            }
            std::thread::yield_now();
        }
        Ok(())
    })
}

/// Makes a pointer to a byte of an exposed buffer, for peers. One past the end is allowed.
///
/// Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_exposed_pointer(
    exposed: *const hydrant_exposed,
    offset: usize,
    pointer: *mut hydrant_pointer,
) -> c_int {
    edge("hydrant_exposed_pointer", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { room(pointer, "the place of the pointer")? };
        let made = EXPOSED.get(exposed)?.exposed.pointer(offset)?;
        pointer.write(hydrant_pointer::of(made));
        Ok(())
    })
}

/// Makes a pointer to a byte of a rank's part of symmetric memory, which any rank of the job may use. One past the end
/// is allowed.
///
/// Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_memory_pointer(
    memory: *const hydrant_memory,
    rank: u32,
    offset: usize,
    pointer: *mut hydrant_pointer,
) -> c_int {
    edge("hydrant_memory_pointer", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { room(pointer, "the place of the pointer")? };
        with_memory(memory, |it| {
            let made = it.bytes.pointer(Rank(rank), offset)?;
            pointer.write(hydrant_pointer::of(made));
            Ok(())
        })
    })
}

/// Stores the rank whose memory a pointer leads to. The pointer is not checked.
///
/// Errors: HYDRANT_ERROR_NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_pointer_rank(
    pointer: *const hydrant_pointer,
    rank: *mut u32,
) -> c_int {
    edge("hydrant_pointer_rank", || {
        // SAFETY: 1. and 2. C1 and C2.
        let rank = unsafe { room(rank, "the place of the rank")? };
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { given(pointer, "the pointer")? };
        rank.write(pointer.global::<u8>().rank().0);
        Ok(())
    })
}

/// Moves a pointer by a number of bytes, forward or back. It is checked when it is used.
///
/// Errors: HYDRANT_ERROR_NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_pointer_add(
    pointer: *const hydrant_pointer,
    bytes: isize,
    moved: *mut hydrant_pointer,
) -> c_int {
    edge("hydrant_pointer_add", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = *unsafe { given(pointer, "the pointer")? };
        // SAFETY: 1. and 2. C1 and C2. The pointer was copied, so both may be the same.
        let moved = unsafe { room(moved, "the place of the pointer")? };
        moved.write(hydrant_pointer::of(pointer.global::<u8>().offset(bytes)));
        Ok(())
    })
}

/// Packs a pointer into eight bytes, which one atomic operation publishes.
///
/// Errors: HYDRANT_ERROR_POINTER if it does not fit or was never made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_pointer_pack(
    job: *const hydrant_job,
    pointer: *const hydrant_pointer,
    packed: *mut u64,
) -> c_int {
    edge("hydrant_pointer_pack", || {
        // SAFETY: 1. and 2. C1 and C2.
        let packed = unsafe { room(packed, "the place of the packed pointer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { given(pointer, "the pointer")? };
        let word = JOBS.get(job)?.job.pack(pointer.global::<u8>())?;
        packed.write(word.to_bits());
        Ok(())
    })
}

/// Unpacks a pointer that a rank of the job has packed.
///
/// Errors: HYDRANT_ERROR_POINTER for 0 and for bits that no pointer has, HYDRANT_ERROR_RANK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_pointer_unpack(
    job: *const hydrant_job,
    packed: u64,
    pointer: *mut hydrant_pointer,
) -> c_int {
    edge("hydrant_pointer_unpack", || {
        // SAFETY: 1. and 2. C1 and C2.
        let pointer = unsafe { room(pointer, "the place of the pointer")? };
        let word: PackedPtr<u8> = PackedPtr::of_bits(packed);
        pointer.write(hydrant_pointer::of(JOBS.get(job)?.job.unpack(word)?));
        Ok(())
    })
}

const _: () = assert!(size_of::<hydrant_pointer>() == size_of::<hydrant::GlobalPtr<u8>>());
