//! Transfers in flight between the NICs of two ranks, and the state of a NIC.

use std::collections::VecDeque;

use hydrant_conduit::{Error, Key, OwnedMessage, Remote};

use crate::{memory::Place, time::VirtualTime};

/// The stages of a rank's NIC and link, and when each is free.
#[derive(Default)]
pub(crate) struct NicStages {
    /// Transfers to send, one queue for each receiver; the first queue is next.
    pub(crate) queues: VecDeque<SendQueue>,
    pub(crate) sending: VirtualTime,
    pub(crate) outward: VirtualTime,
    pub(crate) inward: VirtualTime,
    pub(crate) receiving: VirtualTime,
}

/// The transfers to one rank, in order, as in the send queue of a queue pair.
pub(crate) struct SendQueue {
    pub(crate) to: usize,
    /// The transfers; `sent` counts the bytes of the first that were sent, if it has begun.
    pub(crate) transfers: VecDeque<u64>,
    pub(crate) sent: Option<usize>,
}

/// A transfer from one rank to another.
pub(crate) struct NicTransfer {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: usize,
    pub(crate) payload: Payload,
}

pub(crate) enum Payload {
    Request(OwnedMessage),
    Reply(OwnedMessage),
    /// The data of a write.
    Write(OneSided),
    /// The request of a read.
    ReadRequest(OneSided),
    /// The data of a read.
    ReadResponse(OneSided),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) transfer: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u32,
    pub(crate) last: bool,
    /// The packet was lost once, or came after a lost packet.
    pub(crate) retry: bool,
}

/// Go-back-N recovery on the way from one rank to another.
#[derive(Default)]
pub(crate) struct Retransmission {
    /// True while a lost packet is missing; no later packet is accepted.
    pub(crate) gap: bool,
    /// Later packets, to be sent again.
    pub(crate) again: VecDeque<Packet>,
    /// The arrival time of the last head, because delays do not change the order.
    pub(crate) last: VirtualTime,
}

/// A one-sided operation in flight.
pub(crate) struct OneSided {
    pub(crate) remote: Remote,
    /// The peer's memory, if the key is [`Key::ANY`].
    pub(crate) anywhere: Option<Place>,
    /// The local memory, and the key that covers it.
    pub(crate) local: Place,
    pub(crate) local_key: Key,
    pub(crate) data: Box<[u8]>,
    pub(crate) outcome: Result<(), Error>,
    /// True once the pages of the destination are in the NIC.
    pub(crate) paged: bool,
}

impl Payload {
    /// True if a NIC translates addresses for the payload.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Payload::Write(_) | Payload::ReadResponse(_))
    }
}
