//! Memory that peers may use.

#![allow(unsafe_code)] // names and pointers of C

use std::ffi::{c_char, c_int, c_void};

use crate::{
    edge::{edge, input, name},
    engine::TransferEngine,
    failure::{DEVICE, EngineFailure, Result},
    memory::{MemoryAccess, MemoryRange},
    types::{buffer_entry, transfer_engine_t},
};

/// Lets peers read and write memory of any size, without touching or pinning it. It must be mapped while peers use it.
/// `location` is "*", "cpu:0" and so on; null is "*". If `remote_accessible` is 0, peers get no access. Returns 0;
/// -1 for no memory; -6 for memory of a device; -7 if it overlaps with registered memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn registerLocalMemory(
    engine: transfer_engine_t,
    addr: *mut c_void,
    length: usize,
    location: *const c_char,
    remote_accessible: c_int,
) -> c_int {
    edge("registerLocalMemory", || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        unsafe { check_location(location)? };
        let range = MemoryRange::new(addr.expose_provenance(), length)?;
        let access = match remote_accessible {
            0 => MemoryAccess::Local,
            _ => MemoryAccess::Remote,
        };
        let core = &engine.core;
        // SAFETY: 1. C3.
        unsafe { core.memory.register(&core.endpoint, &[range], access)? };
        Ok(0)
    })
}

/// Gives up memory that begins at `addr`. When this returns 0, no peer touches it any more. Returns -3 if none is
/// registered that begins there; -4 if a peer that is stopped has been using it for 10 seconds: call it again then.
#[unsafe(no_mangle)]
pub extern "C" fn unregisterLocalMemory(engine: transfer_engine_t, addr: *mut c_void) -> c_int {
    edge("unregisterLocalMemory", || {
        TransferEngine::get(engine)?
            .core
            .memory
            .unregister(addr.addr())?;
        Ok(0)
    })
}

/// As registerLocalMemory for each of `buffer_len` ranges, with access for peers: all or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn registerLocalMemoryBatch(
    engine: transfer_engine_t,
    buffer_list: *mut buffer_entry,
    buffer_len: usize,
    location: *const c_char,
) -> c_int {
    edge("registerLocalMemoryBatch", || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        unsafe { check_location(location)? };
        // SAFETY: 1. and 2. C1 and C2.
        let buffers = unsafe { input(buffer_list.cast_const(), buffer_len, "the list")? };
        let ranges = (buffers.iter())
            .map(|buffer| MemoryRange::new(buffer.addr.expose_provenance(), buffer.length))
            .collect::<Result<Vec<_>>>()?;
        let core = &engine.core;
        // SAFETY: 1. C3.
        unsafe { (core.memory).register(&core.endpoint, &ranges, MemoryAccess::Remote)? };
        Ok(0)
    })
}

/// As unregisterLocalMemory for each of `addr_len` addresses. All are tried; the first error is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unregisterLocalMemoryBatch(
    engine: transfer_engine_t,
    addr_list: *mut *mut c_void,
    addr_len: usize,
) -> c_int {
    edge("unregisterLocalMemoryBatch", || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. and 2. C1 and C2.
        let addrs = unsafe { input(addr_list.cast_const(), addr_len, "the list")? };
        let mut first = Ok(0);
        for addr in addrs {
            let result = engine.core.memory.unregister(addr.addr());
            first = first.and_then(|_| result.map(|()| 0));
        }
        first
    })
}

/// Checks that memory is of processors.
///
/// # Safety
/// 1. as [`name`].
unsafe fn check_location(location: *const c_char) -> Result<()> {
    if location.is_null() {
        return Ok(());
    }
    // SAFETY: 1. the caller's condition.
    let location = unsafe { name(location, "the location")? };
    if location == "*" || location.is_empty() || location.starts_with("cpu") {
        return Ok(());
    }
    let text = format!("memory at \"{location}\" cannot be used: only memory of processors can");
    Err(EngineFailure::new(DEVICE, text))
}
