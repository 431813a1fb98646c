//! The state that all threads of a rank share, composed of its owners.

use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use hydrant_conduit::{Error, Loopback};

use crate::{
    completions::Completions,
    connection::SendPool,
    datagrams::Datagrams,
    endpoint::VerbsEndpoint,
    peers::{IncomingPairs, Peers},
    table::ExtentTable,
};

/// The state that all threads of a rank share. Each part owns its own state. This struct adds only
/// whether the rank has left, and the number of its next wake.
pub(crate) struct VerbsShared {
    /// The connections to peers, and the standing of each.
    pub(crate) peers: Peers,
    /// The queue pairs by which peers reach this rank.
    pub(crate) incoming: IncomingPairs,
    /// The completion queues, and the threads that sleep on them.
    pub(crate) completions: Completions,
    /// Messages of the rank to itself.
    pub(crate) loopback: Loopback,
    /// The queue pair for datagrams.
    pub(crate) datagrams: Datagrams,
    /// True if this rank has left. Set once, by the first thread that leaves.
    left: AtomicBool,
    /// The number of the next wake sent to a peer, from 1.
    wakes: AtomicU32,
    /// The registered extents of this rank.
    pub(crate) table: ExtentTable,
    /// The last field: queue pairs receive into its buffers, so they are dropped first.
    pub(crate) endpoint: VerbsEndpoint,
}

impl VerbsShared {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new(
        endpoint: VerbsEndpoint,
        table: ExtentTable,
        pool: SendPool,
        completions: Completions,
        datagrams: Datagrams,
    ) -> Result<Self, Error> {
        Ok(Self {
            peers: Peers::new(endpoint.size(), pool)?,
            endpoint,
            table,
            incoming: IncomingPairs::default(),
            completions,
            loopback: Loopback::default(),
            datagrams,
            left: AtomicBool::new(false),
            wakes: AtomicU32::new(1),
        })
    }

    /// Marks this rank as having left. Returns `false` if it had left before.
    pub(crate) fn begin_to_leave(&self) -> bool {
        !self.left.swap(true, SeqCst)
    }

    /// Returns the number of the next wake sent to a peer.
    pub(crate) fn next_wake(&self) -> u32 {
        self.wakes.fetch_add(1, Relaxed)
    }

    /// Returns whether the local port is down and no request to this peer is outstanding.
    pub(crate) fn is_cut_off_from(&self, rank: u32) -> bool {
        self.peers.is_idle(rank) && !self.endpoint.nic().is_up()
    }
}
