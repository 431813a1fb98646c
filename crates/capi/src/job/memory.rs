//! Symmetric memory.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use hydrant::{AllocOptions, HugePages, Rank};

use super::{
    objects::{JOBS, MEMORIES, MemoryObject, with_memory},
    types::{
        HYDRANT_HUGE_PAGES_NO, HYDRANT_HUGE_PAGES_REQUIRE, HYDRANT_HUGE_PAGES_TRY,
        hydrant_alloc_options, hydrant_job, hydrant_memory,
    },
};
use crate::{
    edge::{argument, edge, room},
    status::Result,
};

/// Allocates symmetric memory: every rank owns as many bytes, all zero. Collective.
///
/// Errors: HYDRANT_ERROR_MISMATCH if ranks ask for different amounts, HYDRANT_ERROR_MEMORY if a rank has not so much,
/// HYDRANT_ERROR_REGISTRATION. Every rank then gets an error, and nothing is allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_alloc(
    job: *mut hydrant_job,
    bytes: usize,
    memory: *mut *mut hydrant_memory,
) -> c_int {
    edge("hydrant_alloc", || {
        // SAFETY: 1. and 2. C1 and C2.
        unsafe { alloc(job, bytes, AllocOptions::default(), memory) }
    })
}

/// As hydrant_alloc, with options. Null stands for the default. Collective.
///
/// Errors: as hydrant_alloc; HYDRANT_ERROR_ALIGNMENT if the alignment is no power of two, HYDRANT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_alloc_with(
    job: *mut hydrant_job,
    bytes: usize,
    options: *const hydrant_alloc_options,
    memory: *mut *mut hydrant_memory,
) -> c_int {
    edge("hydrant_alloc_with", || {
        // SAFETY: C1 and C2.
        let options = match unsafe { options.as_ref() } {
            None => AllocOptions::default(),
            Some(given) => options_of(given)?,
        };
        // SAFETY: 1. and 2. C1 and C2.
        unsafe { alloc(job, bytes, options, memory) }
    })
}

fn options_of(given: &hydrant_alloc_options) -> Result<AllocOptions> {
    let huge = match given.huge_pages {
        HYDRANT_HUGE_PAGES_NO => HugePages::No,
        HYDRANT_HUGE_PAGES_TRY => HugePages::Try,
        HYDRANT_HUGE_PAGES_REQUIRE => HugePages::Require,
        other => return Err(argument(format!("{other} is no use of huge pages"))),
    };
    Ok(AllocOptions {
        align: given.align,
        huge,
        reserve: given.reserve != 0,
    })
}

/// Allocates, and stores the handle.
///
/// # Safety
/// If `memory` is not null:
/// 1. It is aligned and writable.
/// 2. No other code uses it meanwhile.
unsafe fn alloc(
    job: *mut hydrant_job,
    bytes: usize,
    options: AllocOptions,
    memory: *mut *mut hydrant_memory,
) -> Result<()> {
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    let memory = unsafe { room(memory, "the place of the memory")? };
    let job = JOBS.get(job)?;
    let allocated = job.job.alloc_with::<u8>(bytes, options)?;
    memory.write(MEMORIES.insert(MemoryObject::new(&job, allocated))?);
    Ok(())
}

/// Frees symmetric memory when every rank has called this. Completes the operations of this rank first. The handle is
/// useless from then on. Null is an error, because ranks must agree. Collective.
///
/// Errors: HYDRANT_ERROR_HANDLE if it was freed before, HYDRANT_ERROR_MISMATCH if ranks free different memory,
/// HYDRANT_ERROR_PEER_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_free(memory: *mut hydrant_memory) -> c_int {
    edge("hydrant_free", || {
        let found = MEMORIES.get(memory)?;
        let job = Arc::clone(&found.job);
        hydrant::may_wait("free")?;
        let completed = job.finish_implicit();
        job.job.free(found.bytes.clone())?;
        drop(found);
        drop(MEMORIES.remove(memory)?);
        completed
    })
}

/// Commits memory to bytes of this rank's part of an allocation that was reserved. They keep their values. Not
/// collective.
///
/// Errors: HYDRANT_ERROR_MEMORY, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_commit(
    memory: *mut hydrant_memory,
    offset: usize,
    bytes: usize,
) -> c_int {
    edge("hydrant_commit", || {
        with_memory(memory, |it| {
            Ok(it.job.job.commit(&it.bytes, offset, bytes)?)
        })
    })
}

/// Stores the address in this process of the first byte of a rank's part, or null if it is not mapped here, as on
/// another host. This rank's own part always is. Loads and stores there bypass all checks, and a store wakes no waiter.
///
/// Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_address(
    memory: *const hydrant_memory,
    rank: u32,
    address: *mut *mut c_void,
) -> c_int {
    edge("hydrant_address", || {
        // SAFETY: 1. and 2. C1 and C2.
        let address = unsafe { room(address, "the place of the address")? };
        with_memory(memory, |it| {
            let found = it.bytes.as_ptr(Rank(rank))?;
            address.write(found.map_or(std::ptr::null_mut(), |found| found.cast()));
            Ok(())
        })
    })
}

/// Stores the number of bytes that each rank owns.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_memory_bytes(
    memory: *const hydrant_memory,
    bytes: *mut usize,
) -> c_int {
    edge("hydrant_memory_bytes", || {
        // SAFETY: 1. and 2. C1 and C2.
        let bytes = unsafe { room(bytes, "the place of the size")? };
        with_memory(memory, |it| {
            bytes.write(it.bytes.len());
            Ok(())
        })
    })
}

/// Begins to register this rank's part with the network, before it is used. Memory that is not registered yet may be
/// used meanwhile. It does nothing where memory is not kept registered. Not collective.
///
/// Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_JOB_OVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_register_in_background(memory: *mut hydrant_memory) -> c_int {
    edge("hydrant_register_in_background", || {
        with_memory(memory, |it| {
            // The registration goes on without the handle.
            drop(it.job.job.register_in_background(&it.bytes)?);
            Ok(())
        })
    })
}
