//! Memory that an endpoint lends.

use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    time::Duration,
};

use hydrant::endpoint::Descriptor;

use super::{
    objects::{ENDPOINTS, REGIONS, lease, rights, write_bytes},
    types::{hydrant_endpoint, hydrant_region},
};
use crate::edge::{edge, input, lent, optional, output, overflow, room};

/// Lends new memory, all zero, and stores its address. Peers of this host map it, so that their copies need no system
/// call. It is freed with the region. The address may be null.
///
/// Errors: HYDRANT_ERROR_NETWORK if there is not so much memory, HYDRANT_ERROR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_region_alloc(
    endpoint: *mut hydrant_endpoint,
    bytes: usize,
    region: *mut *mut hydrant_region,
    start: *mut *mut c_void,
) -> c_int {
    edge("hydrant_region_alloc", || {
        let found = ENDPOINTS.get(endpoint)?;
        // SAFETY: 1. and 2. C1 and C2.
        let region = unsafe { room(region, "the place of the region")? };
        // SAFETY: 1. and 2. C1 and C2.
        let start = unsafe { optional(start) };
        let made = found.alloc(bytes)?;
        if let Some(start) = start {
            start.write(made.as_ptr().cast());
        }
        region.write(REGIONS.insert(made)?);
        Ok(())
    })
}

/// Lends memory of the program, of any size, without touching it. It must stay allocated until the region is revoked. Peers
/// may change it at any time by descriptors with that right.
///
/// Errors: HYDRANT_ERROR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_region_expose(
    endpoint: *mut hydrant_endpoint,
    start: *mut c_void,
    bytes: usize,
    region: *mut *mut hydrant_region,
) -> c_int {
    edge("hydrant_region_expose", || {
        let found = ENDPOINTS.get(endpoint)?;
        // SAFETY: 1. and 2. C1 and C2.
        let region = unsafe { room(region, "the place of the region")? };
        let start = lent(start, bytes, "the memory")?.cast_mut();
        // SAFETY: 1. to 3. the caller of C lends the memory until the region is revoked (C1, C2), and is told that it
        // changes. The library does not read it.
        let made = unsafe { found.expose_raw(start, bytes)? };
        region.write(REGIONS.insert(made)?);
        Ok(())
    })
}

/// Revokes a region, and frees its handle. When this returns, no peer touches the memory any more, and each later use of a
/// descriptor fails.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_region_revoke(region: *mut hydrant_region) -> c_int {
    edge("hydrant_region_revoke", || {
        let found = REGIONS.get(region)?;
        found.revoke()?;
        drop(REGIONS.remove(region)?);
        Ok(())
    })
}

/// As hydrant_region_revoke, but waits at most so many nanoseconds for uses under way. No use begins after the call. After
/// an error the handle is kept, and the next call goes on to wait.
///
/// Errors: HYDRANT_ERROR_BUSY if a peer still uses the memory: it is stopped, or copies much.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_region_revoke_within(
    region: *mut hydrant_region,
    timeout: u64,
) -> c_int {
    edge("hydrant_region_revoke_within", || {
        let found = REGIONS.get(region)?;
        found.revoke_within(Duration::from_nanos(timeout))?;
        drop(REGIONS.remove(region)?);
        Ok(())
    })
}

/// Writes a descriptor of bytes of a region, for those who may use them, and stores its length: at most a few hundred
/// bytes. A lease is in nanoseconds from now on; 0 is until the region is revoked.
///
/// Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_ARGUMENT for the rights, HYDRANT_ERROR_TOO_LONG if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_region_describe(
    region: *mut hydrant_region,
    offset: u64,
    bytes: u64,
    rights_given: u32,
    lease_given: u64,
    descriptor: *mut c_void,
    descriptor_bytes: usize,
    length: *mut usize,
) -> c_int {
    edge("hydrant_region_describe", || {
        let found = REGIONS.get(region)?;
        let end = (offset.checked_add(bytes)).ok_or_else(|| overflow("the part"))?;
        let part = found.lend(offset..end, rights(rights_given)?, lease(lease_given))?;
        // SAFETY: 1. and 2. C1 and C2.
        let length = unsafe { room(length, "the place of the length")? };
        let to = descriptor.cast::<MaybeUninit<u8>>();
        // SAFETY: 1. and 2. C1 and C2; the bytes are only written.
        let to = unsafe { output(to, descriptor_bytes, "the descriptor")? };
        write_bytes(&part.to_bytes(), to, length)
    })
}

/// Writes a descriptor of a part of what another descriptor names, with no more rights and for no longer a time. Anybody
/// who has a descriptor can narrow it, and nobody can widen it.
///
/// Errors: HYDRANT_ERROR_DESCRIPTOR, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_ARGUMENT, HYDRANT_ERROR_FULL if it was narrowed too
/// often, HYDRANT_ERROR_TOO_LONG if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_descriptor_narrow(
    descriptor: *const c_void,
    descriptor_bytes: usize,
    offset: u64,
    bytes: u64,
    rights_given: u32,
    lease_given: u64,
    narrowed: *mut c_void,
    narrowed_bytes: usize,
    length: *mut usize,
) -> c_int {
    edge("hydrant_descriptor_narrow", || {
        let from = descriptor.cast::<u8>();
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { input(from, descriptor_bytes, "the descriptor")? };
        let end = (offset.checked_add(bytes)).ok_or_else(|| overflow("the part"))?;
        let whole = Descriptor::from_bytes(from)?;
        let part = whole.narrow(offset..end, rights(rights_given)?, lease(lease_given))?;
        // SAFETY: 1. and 2. C1 and C2.
        let length = unsafe { room(length, "the place of the length")? };
        let to = narrowed.cast::<MaybeUninit<u8>>();
        // SAFETY: 1. and 2. C1 and C2; the bytes are only written.
        let to = unsafe { output(to, narrowed_bytes, "the narrowed descriptor")? };
        write_bytes(&part.to_bytes(), to, length)
    })
}
