//! Messages and ended operations that were collected, and wait for a poll.

use std::collections::VecDeque;

use hydrant_conduit::{Error, Ticket};

use crate::{
    events::PeerEvent,
    fabric::{Arrival, QueueBatch},
    slots::ArrivalSlot,
};

/// An operation that ended, to be handed up.
pub(crate) type EndedAccess = (Ticket, Result<(), Error>);

/// The bytes of a message that waits.
pub(crate) enum MessageBytes {
    /// They are in the buffer where they arrived.
    InSlot(ArrivalSlot, usize),
    /// They were copied, to free the buffer. The words hold this many bytes.
    Copied(Box<[u64]>, usize),
    /// An event of a peer stands in the place of a message.
    Event(Box<PeerEvent>),
}

/// A message that waits for its delivery.
pub(crate) struct WaitingMessage {
    pub(crate) from: u32,
    pub(crate) is_request: bool,
    pub(crate) bytes: MessageBytes,
}

/// The state of the thread that collects, and its news for polls.
pub(crate) struct Collector {
    pub(crate) batch: QueueBatch,
    /// Entries of the current read.
    pub(crate) arrivals: Vec<Arrival>,
    /// Messages of the layer above, in the order of arrival.
    pub(crate) messages: VecDeque<WaitingMessage>,
    /// Ended operations.
    pub(crate) ended: Vec<EndedAccess>,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self {
            batch: QueueBatch::new(),
            arrivals: Vec::with_capacity(16),
            messages: VecDeque::new(),
            ended: Vec::new(),
        }
    }

    /// Adds an event of a peer behind the messages that were collected.
    pub(crate) fn push_event(&mut self, event: PeerEvent) {
        self.messages.push_back(WaitingMessage {
            from: event.peer().0,
            is_request: false,
            bytes: MessageBytes::Event(Box::new(event)),
        });
    }

    /// Returns true if a poll has something to deliver.
    pub(crate) fn has_news(&self) -> bool {
        !self.messages.is_empty() || !self.ended.is_empty()
    }
}
