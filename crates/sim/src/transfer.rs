//! What is under way between the NICs of two ranks, and the state of a NIC.

use std::collections::VecDeque;

use hydrant_conduit::{Error, Key, OwnedMessage, Remote};

use crate::{memory::Place, time::Time};

/// The stages of a rank's NIC and link: when each is free.
#[derive(Default)]
pub(crate) struct Nic {
    /// What is to be sent, by who gets it: whose turn it is first.
    pub(crate) queues: VecDeque<Queue>,
    pub(crate) sending: Time,
    pub(crate) outward: Time,
    pub(crate) inward: Time,
    pub(crate) receiving: Time,
}

/// The transfers to one rank, in order, as in the send queue of a queue pair.
pub(crate) struct Queue {
    pub(crate) to: usize,
    /// The transfers, and the bytes of the first one that were sent, if it has begun.
    pub(crate) transfers: VecDeque<u64>,
    pub(crate) sent: Option<usize>,
}

/// A transfer from one rank to another.
pub(crate) struct Transfer {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: usize,
    pub(crate) payload: Payload,
}

pub(crate) enum Payload {
    Request(OwnedMessage),
    Reply(OwnedMessage),
    /// Data for the target of a write.
    Write(OneSided),
    /// The question of a read.
    ReadRequest(OneSided),
    /// Its data.
    ReadResponse(OneSided),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) transfer: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u32,
    pub(crate) last: bool,
    /// It was lost once, or came after one that was.
    pub(crate) retry: bool,
}

/// The state of the way from one rank to another: go back to what was lost.
#[derive(Default)]
pub(crate) struct Way {
    /// A packet was lost; none after it is taken before it came.
    pub(crate) gap: bool,
    /// Those after it, to be sent again.
    pub(crate) again: VecDeque<Packet>,
    /// When the last head arrives: delays do not change the order.
    pub(crate) last: Time,
}

/// A one-sided operation under way.
pub(crate) struct OneSided {
    pub(crate) remote: Remote,
    /// The peer's memory, where the key is [`Key::ANY`].
    pub(crate) anywhere: Option<Place>,
    /// Own memory, and the key that covers it.
    pub(crate) local: Place,
    pub(crate) local_key: Key,
    pub(crate) data: Box<[u8]>,
    pub(crate) outcome: Result<(), Error>,
    /// The pages of the remote memory were brought in.
    pub(crate) paged: bool,
}

impl Payload {
    /// Whether a NIC translates addresses for it.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Payload::Write(_) | Payload::ReadResponse(_))
    }
}
