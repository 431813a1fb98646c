//! This rank's end of the network: the device, the addresses of all ranks, and the receive slots.
//! Only the receive slots change once the job is joined: they grow with the connected peers.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use hydrant_conduit::{Caps, Footprint, Rank, memory::Segment};

use crate::{
    address::EndpointAddress,
    nic::{Nic, SharedQueue},
    slots::ReceiveSlots,
};

/// This rank's end of the network.
pub(crate) struct VerbsEndpoint {
    parts: EndpointParts,
    /// The time of joining, the zero of this rank's clock.
    started: Instant,
}

/// The parts of a [`VerbsEndpoint`].
pub(crate) struct EndpointParts {
    pub(crate) rank: Rank,
    pub(crate) caps: Caps,
    pub(crate) footprint: Footprint,
    /// The open device with its protection domain.
    pub(crate) nic: Arc<Nic>,
    /// How long a packet waits for its acknowledgement: 4.096 µs × 2 to this power.
    pub(crate) ack_timeout: u8,
    /// The address of each rank, by rank.
    pub(crate) addresses: Box<[EndpointAddress]>,
    /// The job's secret, drawn by rank 0. Every datagram carries it.
    pub(crate) secret: [u8; 16],
    /// Most unhandled requests, of a peer here and of this rank at a peer.
    pub(crate) window: u32,
    /// The queue from which the queue pairs of all peers take their receive buffers.
    pub(crate) shared_queue: Arc<SharedQueue>,
    /// The receive buffers. A chunk is added when a peer first connects.
    pub(crate) receives: ReceiveSlots,
    pub(crate) segment: Segment,
}

impl VerbsEndpoint {
    pub(crate) fn new(parts: EndpointParts) -> Self {
        let started = Instant::now();
        Self { parts, started }
    }

    #[inline]
    pub(crate) fn rank(&self) -> Rank {
        self.parts.rank
    }

    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.parts.addresses.len() as u32
    }

    #[inline]
    pub(crate) fn caps(&self) -> &Caps {
        &self.parts.caps
    }

    pub(crate) fn footprint(&self) -> Footprint {
        self.parts.footprint
    }

    pub(crate) fn nic(&self) -> &Arc<Nic> {
        &self.parts.nic
    }

    pub(crate) fn ack_timeout(&self) -> u8 {
        self.parts.ack_timeout
    }

    #[inline]
    pub(crate) fn addresses(&self) -> &[EndpointAddress] {
        &self.parts.addresses
    }

    pub(crate) fn secret(&self) -> [u8; 16] {
        self.parts.secret
    }

    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.parts.window
    }

    pub(crate) fn shared_queue(&self) -> &Arc<SharedQueue> {
        &self.parts.shared_queue
    }

    #[inline]
    pub(crate) fn receives(&self) -> &ReceiveSlots {
        &self.parts.receives
    }

    /// Makes receive slots for the messages of one more peer.
    pub(crate) fn grow_receives(&self) -> io::Result<()> {
        self.parts.receives.grow()
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.parts.segment
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }
}
