//! The layout of a NIC's area in the shared file, which all ranks of the job read.

use hydrant_smp::upon::Extra;

use crate::queue;

/// The offset of the NIC's [`Invitation`](hydrant_smp::upon::Invitation). The wake word of its
/// thread lies before it.
pub(crate) const INVITATION: usize = 64;
/// The offset of the costs and limits of registration, which rank 0 measured.
pub(crate) const COSTS: usize = 128;
/// The offset of the [`HeldPins`](crate::limits::HeldPins) of the rank's process.
pub(crate) const PINS: usize = 168;
/// Bytes of the area.
pub(crate) const BYTES: usize = 192;

/// The memory to add to the shared file: an area for each NIC, and a queue of requests for each
/// pair.
pub(crate) const EXTRA: Extra = Extra {
    rank_bytes: BYTES as u32,
    pair_bytes: queue::BYTES as u32,
};

/// Descriptors for each peer: two pipes for operations on the peer, and two for the peer's
/// operations.
pub(crate) const DESCRIPTORS: u64 = 4;
