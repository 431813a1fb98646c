//! What all threads of a rank share, composed of what owns it.

use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use hydrant_conduit::Error;

use crate::{
    completions::Completions,
    connection::SendPool,
    datagrams::Datagrams,
    endpoint::Endpoint,
    loopback::Loopback,
    peers::{IncomingPairs, Peers},
    table::ExtentTable,
};

/// What all threads of a rank share. Each part owns its state; this has none but how the rank
/// itself stands to its peers.
pub(crate) struct VerbsShared {
    /// The connections to peers, and how each stands to the job.
    pub(crate) peers: Peers,
    /// The queue pairs by which peers reach this rank.
    pub(crate) incoming: IncomingPairs,
    /// The completion queues, and who sleeps until they tell something.
    pub(crate) completions: Completions,
    /// Messages of the rank to itself.
    pub(crate) loopback: Loopback,
    /// What ranks say to each other beside their connections.
    pub(crate) datagrams: Datagrams,
    /// Whether this rank has ended. Set once, by who leaves first.
    left: AtomicBool,
    /// Counts the wakes sent to peers, from 1.
    wakes: AtomicU32,
    /// What is registered here.
    pub(crate) table: ExtentTable,
    /// Last, as queue pairs receive into its buffers: they go before.
    pub(crate) endpoint: Endpoint,
}

impl VerbsShared {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new(
        endpoint: Endpoint,
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

    /// This rank ends: whether it had not before.
    pub(crate) fn begin_to_leave(&self) -> bool {
        !self.left.swap(true, SeqCst)
    }

    /// The number of the next wake sent to a peer.
    pub(crate) fn next_wake(&self) -> u32 {
        self.wakes.fetch_add(1, Relaxed)
    }

    /// Whether the own port is down, and a peer has nothing to do that was asked by way of it.
    pub(crate) fn is_cut_off_from(&self, rank: u32) -> bool {
        self.peers.is_idle(rank) && !self.endpoint.nic().is_up()
    }
}
