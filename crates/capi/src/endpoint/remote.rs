//! Regions of peers.

use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
};

use hydrant::endpoint::Descriptor;

use super::{
    objects::{PEERS, REMOTES},
    types::{hydrant_peer, hydrant_remote},
};
use crate::edge::{edge, input, output, room};

/// Opens what a descriptor names at its owner, which answers even if its program computes. The handle holds for this
/// connection, and is freed by hydrant_remote_close.
///
/// Errors: HYDRANT_ERROR_DESCRIPTOR, HYDRANT_ERROR_REVOKED, HYDRANT_ERROR_EXPIRED, HYDRANT_ERROR_FULL,
/// HYDRANT_ERROR_TIMEOUT, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_LEFT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_remote_open(
    peer: *mut hydrant_peer,
    descriptor: *const c_void,
    bytes: usize,
    remote: *mut *mut hydrant_remote,
) -> c_int {
    edge("hydrant_remote_open", || {
        let found = PEERS.get(peer)?;
        // SAFETY: 1. and 2. C1 and C2.
        let remote = unsafe { room(remote, "the place of the region")? };
        // SAFETY: 1. and 2. C1 and C2.
        let descriptor = unsafe { input(descriptor.cast::<u8>(), bytes, "the descriptor")? };
        let descriptor = Descriptor::from_bytes(descriptor)?;
        remote.write(REMOTES.insert(found.open(&descriptor)?)?);
        Ok(())
    })
}

/// As hydrant_remote_open, for many descriptors, and in a fraction of the time. Either all are opened or none.
///
/// Errors: as hydrant_remote_open, the first one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_remote_open_many(
    peer: *mut hydrant_peer,
    descriptors: *const *const c_void,
    bytes: *const usize,
    count: usize,
    remotes: *mut *mut hydrant_remote,
) -> c_int {
    edge("hydrant_remote_open_many", || {
        let found = PEERS.get(peer)?;
        // SAFETY: 1. and 2. C1 and C2.
        let starts = unsafe { input(descriptors, count, "the list of descriptors")? };
        // SAFETY: 1. and 2. C1 and C2.
        let lengths = unsafe { input(bytes, count, "the list of their bytes")? };
        let to = remotes.cast::<MaybeUninit<*mut hydrant_remote>>();
        // SAFETY: 1. and 2. C1 and C2; the handles are only written.
        let to = unsafe { output(to, count, "the places of the regions")? };
        let mut parsed = Vec::with_capacity(count);
        for (start, &length) in starts.iter().zip(lengths) {
            // SAFETY: 1. and 2. C1 and C2.
            let descriptor = unsafe { input(start.cast::<u8>(), length, "a descriptor")? };
            parsed.push(Descriptor::from_bytes(descriptor)?);
        }
        let mut handles = Vec::with_capacity(count);
        for opened in found.open_all(&parsed)? {
            match REMOTES.insert(opened) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    for handle in handles {
                        REMOTES.remove(handle)?;
                    }
                    return Err(error);
                }
            }
        }
        for (place, handle) in to.iter_mut().zip(handles) {
            place.write(handle);
        }
        Ok(())
    })
}

/// Frees the handle of a peer's region.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_remote_close(remote: *mut hydrant_remote) -> c_int {
    edge("hydrant_remote_close", || REMOTES.remove(remote).map(drop))
}

/// Stores the number of bytes of a peer's region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_remote_bytes(
    remote: *mut hydrant_remote,
    bytes: *mut u64,
) -> c_int {
    edge("hydrant_remote_bytes", || {
        let found = REMOTES.get(remote)?;
        // SAFETY: 1. and 2. C1 and C2.
        unsafe { room(bytes, "the place of the number")? }.write(found.len());
        Ok(())
    })
}

/// Writes bytes into a peer's region. When this returns, they are there.
///
/// Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_PERMISSION, HYDRANT_ERROR_REVOKED, HYDRANT_ERROR_EXPIRED,
/// HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_LEFT, HYDRANT_ERROR_ADDRESS. Some bytes may have been written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_remote_write(
    remote: *mut hydrant_remote,
    offset: u64,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_remote_write", || {
        let found = REMOTES.get(remote)?;
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { input(from.cast::<u8>(), bytes, "the source")? };
        Ok(found.write(offset, from)?)
    })
}

/// Reads bytes of a peer's region.
///
/// Errors: as hydrant_remote_write. Some bytes may have been read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_remote_read(
    remote: *mut hydrant_remote,
    offset: u64,
    into: *mut c_void,
    bytes: usize,
) -> c_int {
    edge("hydrant_remote_read", || {
        let found = REMOTES.get(remote)?;
        // SAFETY: 1. and 2. C1 and C2.
        let into = unsafe { output(into.cast::<u8>(), bytes, "the destination")? };
        Ok(found.read(offset, into)?)
    })
}
