//! Puts and gets of contiguous bytes.

use std::ffi::{c_int, c_void};

use hydrant::Rank;

use super::{
    objects::{JOBS, with_memory},
    types::{hydrant_job, hydrant_memory, hydrant_pointer},
};
use crate::{
    edge::{edge, given, input, lent, output, room},
    operations::{OwnerOfOperations, hydrant_operation, keep_transfer},
};

/// Puts bytes into the part of a rank, from an offset on. The put is remotely complete on return.
///
/// Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_OVERLAP if the source is the target's memory,
/// HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_REGISTRATION,
/// HYDRANT_ERROR_IN_HANDLER if the memory is not mapped here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_put", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(source.cast(), bytes, "the source")? };
        with_memory(memory, |it| Ok(it.bytes.put(Rank(rank), offset, data)?))
    })
}

/// Gets bytes from the part of a rank, from an offset on.
///
/// Errors: as hydrant_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get(
    memory: *const hydrant_memory,
    rank: u32,
    offset: usize,
    target: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_get", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { output(target.cast(), bytes, "the target")? };
        with_memory(memory, |it| Ok(it.bytes.get(Rank(rank), offset, data)?))
    })
}

/// Begins to put bytes into the part of a rank. The source must stay as it is until the operation is locally complete.
/// A null operation is stored if the put is complete at once, as where the memory is mapped here.
///
/// Errors: as hydrant_put, for errors found at once. hydrant_wait and hydrant_test report the others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_nb(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    source: *const c_void,
    bytes: usize,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_put_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let source = lent(source, bytes, "the source")?;
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, until the operation is locally complete.
            let begun = unsafe { it.bytes.put_raw_nb(Rank(rank), offset, source, bytes)? };
            operation.write(keep_transfer(&it.job, begun)?);
            Ok(())
        })
    })
}

/// Begins to get bytes from the part of a rank. The target must not be used until the operation is complete. A null
/// operation is stored if the get is complete at once.
///
/// Errors: as hydrant_put_nb.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_nb(
    memory: *const hydrant_memory,
    rank: u32,
    offset: usize,
    target: *mut c_void,
    bytes: usize,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_get_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let target = lent(target, bytes, "the target")?.cast_mut();
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, until the operation is complete.
            let begun = unsafe { it.bytes.get_raw_nb(Rank(rank), offset, target, bytes)? };
            operation.write(keep_transfer(&it.job, begun)?);
            Ok(())
        })
    })
}

/// Begins to put bytes into the part of a rank, without a handle. The source must stay as it is until hydrant_quiet or
/// hydrant_fence has returned.
///
/// Errors: as hydrant_put, for errors found at once. hydrant_quiet and hydrant_fence report the others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_nbi(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_put_nbi", || {
        let source = lent(source, bytes, "the source")?;
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, until hydrant_quiet or hydrant_fence.
            let begun = unsafe { it.bytes.put_raw_nb(Rank(rank), offset, source, bytes)? };
            it.job.keep_implicit(begun);
            Ok(())
        })
    })
}

/// Begins to get bytes from the part of a rank, without a handle. The target must not be used until hydrant_quiet or
/// hydrant_fence has returned.
///
/// Errors: as hydrant_put_nbi.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_nbi(
    memory: *const hydrant_memory,
    rank: u32,
    offset: usize,
    target: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_get_nbi", || {
        let target = lent(target, bytes, "the target")?.cast_mut();
        with_memory(memory, |it| {
            // SAFETY: 1. and 2. C1 and C2, until hydrant_quiet or hydrant_fence.
            let begun = unsafe { it.bytes.get_raw_nb(Rank(rank), offset, target, bytes)? };
            it.job.keep_implicit(begun);
            Ok(())
        })
    })
}

/// Puts bytes to the memory that a pointer leads to. The put is remotely complete on return.
///
/// Errors: as hydrant_put; HYDRANT_ERROR_POINTER, HYDRANT_ERROR_REVOKED if the exposed memory was taken back,
/// HYDRANT_ERROR_FREED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_to(
    job: *mut hydrant_job,
    to: *const hydrant_pointer,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_put_to", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(source.cast(), bytes, "the source")? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { given(to, "the pointer")? };
        Ok(JOBS.get(job)?.job.put_to(to.global(), data)?)
    })
}

/// Gets bytes from the memory that a pointer leads to.
///
/// Errors: as hydrant_put_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_from(
    job: *mut hydrant_job,
    from: *const hydrant_pointer,
    target: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_get_from", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data: &mut [u8] = unsafe { output(target.cast(), bytes, "the target")? };
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { given(from, "the pointer")? };
        Ok(JOBS.get(job)?.job.get_from(from.global(), data)?)
    })
}

/// Begins to put bytes to the memory that a pointer leads to. Source and operation are as in hydrant_put_nb.
///
/// Errors: as hydrant_put_to, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_to_nb(
    job: *mut hydrant_job,
    to: *const hydrant_pointer,
    source: *const c_void,
    bytes: usize,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_put_to_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { given(to, "the pointer")? };
        let source = lent(source, bytes, "the source")?;
        let job = JOBS.get(job)?;
        // SAFETY: 1. and 2. C1 and C2, until the operation is locally complete.
        let begun = unsafe { job.job.put_to_raw_nb(to.global(), source, bytes)? };
        operation.write(keep_transfer(&job, begun)?);
        Ok(())
    })
}

/// Begins to get bytes from the memory that a pointer leads to. ResultPlace and operation are as in hydrant_get_nb.
///
/// Errors: as hydrant_put_to, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_from_nb(
    job: *mut hydrant_job,
    from: *const hydrant_pointer,
    target: *mut c_void,
    bytes: usize,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_get_from_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { given(from, "the pointer")? };
        let target = lent(target, bytes, "the target")?.cast_mut();
        let job = JOBS.get(job)?;
        // SAFETY: 1. and 2. C1 and C2, until the operation is complete.
        let begun = unsafe { job.job.get_from_raw_nb(from.global(), target, bytes)? };
        operation.write(keep_transfer(&job, begun)?);
        Ok(())
    })
}

/// As hydrant_put_to_nb, without a handle, until hydrant_quiet or hydrant_fence has returned.
///
/// Errors: as hydrant_put_to, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_to_nbi(
    job: *mut hydrant_job,
    to: *const hydrant_pointer,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_put_to_nbi", || {
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { given(to, "the pointer")? };
        let source = lent(source, bytes, "the source")?;
        let job = JOBS.get(job)?;
        // SAFETY: 1. and 2. C1 and C2, until hydrant_quiet or hydrant_fence.
        job.keep_implicit(unsafe { job.job.put_to_raw_nb(to.global(), source, bytes)? });
        Ok(())
    })
}

/// As hydrant_get_from_nb, without a handle, until hydrant_quiet or hydrant_fence has returned.
///
/// Errors: as hydrant_put_to, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_get_from_nbi(
    job: *mut hydrant_job,
    from: *const hydrant_pointer,
    target: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_get_from_nbi", || {
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { given(from, "the pointer")? };
        let target = lent(target, bytes, "the target")?.cast_mut();
        let job = JOBS.get(job)?;
        // SAFETY: 1. and 2. C1 and C2, until hydrant_quiet or hydrant_fence.
        job.keep_implicit(unsafe { job.job.get_from_raw_nb(from.global(), target, bytes)? });
        Ok(())
    })
}

/// Waits until all puts and gets of this rank so far are remotely complete, and all atomic operations and signals.
///
/// Errors: HYDRANT_ERROR_PEER_LOST if any rank is lost, HYDRANT_ERROR_IN_HANDLER. The first error of an operation without
/// a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_quiet(job: *mut hydrant_job) -> c_int {
    edge("hydrant_quiet", || {
        let job = JOBS.get(job)?;
        let completed = job.finish_implicit();
        completed.and(Ok(job.job.quiet()?))
    })
}

/// Orders this rank's puts: each peer sees those before the fence no later than those after it.
///
/// Errors: as hydrant_quiet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_fence(job: *mut hydrant_job) -> c_int {
    edge("hydrant_fence", || {
        let job = JOBS.get(job)?;
        let completed = job.finish_implicit();
        completed.and(Ok(job.job.fence()?))
    })
}
