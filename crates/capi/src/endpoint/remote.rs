//! Regions of peers.

use std::ffi::{c_int, c_void};

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
