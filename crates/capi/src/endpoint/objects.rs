//! The objects that the handles of endpoints lead to.

use std::{mem::MaybeUninit, time::Duration};

use hydrant::endpoint::{BatchFailure, BatchHandle, Endpoint, Peer, Region, RemoteRegion, Rights};
use parking_lot::Mutex;

use super::types::{
    HYDRANT_READ, HYDRANT_WRITE, hydrant_batch, hydrant_endpoint, hydrant_peer, hydrant_region,
    hydrant_remote,
};
use crate::{
    edge::argument,
    status::{CallFailure, HYDRANT_ERROR_TOO_LONG, Result},
    table::CHandles,
};

pub(super) static ENDPOINTS: CHandles<hydrant_endpoint, Endpoint> = CHandles::new(9);
pub(super) static PEERS: CHandles<hydrant_peer, Peer> = CHandles::new(10);
pub(super) static REGIONS: CHandles<hydrant_region, Region> = CHandles::new(11);
pub(super) static REMOTES: CHandles<hydrant_remote, RemoteRegion> = CHandles::new(12);
pub(super) static BATCHES: CHandles<hydrant_batch, BatchObject> = CHandles::new(13);

/// A batch, until somebody has waited for it; then its result.
pub(super) struct BatchObject {
    pub(super) handle: Mutex<Option<BatchHandle>>,
    pub(super) failure: Mutex<Option<BatchFailure>>,
}

/// The rights that a number names.
pub(super) fn rights(number: u32) -> Result<Rights> {
    match number {
        HYDRANT_READ => Ok(Rights::READ),
        HYDRANT_WRITE => Ok(Rights::WRITE),
        3 => Ok(Rights::READ_WRITE),
        other => Err(argument(format!("{other} names no rights"))),
    }
}

/// The time of a lease: 0 is none.
pub(super) fn lease(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
}

/// Writes bytes where there is room for all, and their number in any case.
pub(super) fn write_bytes(
    bytes: &[u8],
    room: &mut [MaybeUninit<u8>],
    len: &mut MaybeUninit<usize>,
) -> Result<()> {
    len.write(bytes.len());
    if bytes.len() > room.len() {
        let text = format!("{} bytes do not fit into {}", bytes.len(), room.len());
        return Err(CallFailure::new(HYDRANT_ERROR_TOO_LONG, text));
    }
    for (place, byte) in room.iter_mut().zip(bytes) {
        place.write(*byte);
    }
    Ok(())
}
