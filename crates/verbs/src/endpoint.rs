//! The own end of the network: the device, where it and all others are, and what the device keeps
//! for receiving. Nothing of it changes once the job is joined, but for the receive slots, which
//! grow with the peers.

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

/// The own end of the network.
pub(crate) struct Endpoint {
    rank: Rank,
    caps: Caps,
    footprint: Footprint,
    /// The open device with its protection domain.
    nic: Arc<Nic>,
    /// How long a packet waits to be acknowledged: 4.096 µs × 2 to this power.
    ack_timeout: u8,
    /// Where each rank is, by rank.
    addresses: Box<[EndpointAddress]>,
    /// Drawn for the job by rank 0: each datagram shows it.
    secret: [u8; 16],
    /// Requests that a peer may have unhandled here, and this rank at a peer.
    window: u32,
    /// Where the queue pairs of all peers take their receive buffers from.
    shared_queue: Arc<SharedQueue>,
    /// Those buffers. They grow by a chunk when a peer first connects.
    receives: ReceiveSlots,
    segment: Segment,
    /// When this rank joined: the zero of its clock.
    started: Instant,
}

/// What an [`Endpoint`] is made of, named.
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

    /// Room for the messages of one peer more.
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
