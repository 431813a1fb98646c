//! What a NIC has of the shared file: an area of its own, which the job's ranks read.

use hydrant_smp::upon::Extra;

use crate::queue;

/// Where its [`Invitation`](hydrant_smp::upon::Invitation) lies: how it is called. Before that lies
/// the wake word of its thread.
pub(crate) const INVITATION: usize = 64;
/// What rank 0 found that registration costs, and how much may be registered.
pub(crate) const COSTS: usize = 128;
/// Bytes of the area.
pub(crate) const BYTES: usize = 192;

/// An area for each NIC, and a queue of what it is asked for each of its peers.
pub(crate) const EXTRA: Extra = Extra {
    rank_bytes: BYTES as u32,
    pair_bytes: queue::BYTES as u32,
};

/// Descriptors for each peer: the pipes there and back for what is asked of the peer, and those for
/// what it asks.
pub(crate) const DESCRIPTORS: u64 = 4;
