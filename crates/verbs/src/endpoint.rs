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
pub(crate) struct Endpoint {
    rank: Rank,
    caps: Caps,
    footprint: Footprint,
    /// The open device with its protection domain.
    nic: Arc<Nic>,
    /// How long a packet waits for its acknowledgement: 4.096 µs × 2 to this power.
    ack_timeout: u8,
    /// The address of each rank, by rank.
    addresses: Box<[EndpointAddress]>,
    /// The job's secret, drawn by rank 0. Every datagram carries it.
    secret: [u8; 16],
    /// Most unhandled requests, of a peer here and of this rank at a peer.
    window: u32,
    /// The queue from which the queue pairs of all peers take their receive buffers.
    shared_queue: Arc<SharedQueue>,
    /// The receive buffers. A chunk is added when a peer first connects.
    receives: ReceiveSlots,
    segment: Segment,
    /// The time of joining, the zero of this rank's clock.
    started: Instant,
}

/// The named parts of an [`Endpoint`].
pub(crate) struct EndpointParts {
    pub(crate) rank: Rank,
    pub(crate) caps: Caps,
    pub(crate) footprint: Footprint,
    pub(crate) nic: Arc<Nic>,
    pub(crate) ack_timeout: u8,
    pub(crate) addresses: Box<[EndpointAddress]>,
    pub(crate) secret: [u8; 16],
    pub(crate) window: u32,
    pub(crate) shared_queue: Arc<SharedQueue>,
    pub(crate) receives: ReceiveSlots,
    pub(crate) segment: Segment,
}

impl Endpoint {
    pub(crate) fn new(parts: EndpointParts) -> Self {
        let EndpointParts {
            rank,
            caps,
            footprint,
            nic,
            ack_timeout,
            addresses,
            secret,
            window,
            shared_queue,
            receives,
            segment,
        } = parts;
        Self {
            rank,
            caps,
            footprint,
            nic,
            ack_timeout,
            addresses,
            secret,
            window,
            shared_queue,
            receives,
            segment,
            started: Instant::now(),
        }
    }

    #[inline]
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.addresses.len() as u32
    }

    #[inline]
    pub(crate) fn caps(&self) -> &Caps {
        &self.caps
    }

    pub(crate) fn footprint(&self) -> Footprint {
        self.footprint
    }

    pub(crate) fn nic(&self) -> &Arc<Nic> {
        &self.nic
    }

    pub(crate) fn ack_timeout(&self) -> u8 {
        self.ack_timeout
    }

    #[inline]
    pub(crate) fn addresses(&self) -> &[EndpointAddress] {
        &self.addresses
    }

    pub(crate) fn secret(&self) -> [u8; 16] {
        self.secret
    }

    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    pub(crate) fn shared_queue(&self) -> &Arc<SharedQueue> {
        &self.shared_queue
    }

    #[inline]
    pub(crate) fn receives(&self) -> &ReceiveSlots {
        &self.receives
    }

    /// Makes receive slots for the messages of one more peer.
    pub(crate) fn grow_receives(&self) -> io::Result<()> {
        self.receives.grow()
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }
}
