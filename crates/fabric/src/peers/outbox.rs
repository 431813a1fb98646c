//! Messages that wait for room at their peers.

use std::collections::VecDeque;

use hydrant_conduit::{Conduit, OwnedMessage, Rank, Sent};
use rustc_hash::FxHashMap;

use super::{
    EndpointRoom, FabricState,
    wire::{self, EndpointMessage},
};

/// The bytes that wait for a peer, above which no message of the layer above is taken. Only a peer that does not read
/// reaches this.
const MOST_WAITING: usize = 8 << 20;
/// The bytes that wait for a peer, above which it is given up if it asks for more.
const MOST_ANSWERS: usize = 4 * MOST_WAITING;

/// Messages that were not sent yet, in order for each peer.
#[derive(Default)]
pub(super) struct WireOutbox {
    queues: FxHashMap<Rank, WireQueue>,
}

#[derive(Default)]
struct WireQueue {
    messages: VecDeque<OwnedMessage>,
    /// The bytes that they take.
    bytes: usize,
    /// True if the session is left after the last message.
    closes: bool,
}

impl WireOutbox {
    pub(super) fn push(&mut self, to: Rank, message: OwnedMessage) {
        let queue = self.queues.entry(to).or_default();
        queue.bytes += size_of_message(&message);
        queue.messages.push_back(message);
    }

    pub(super) fn tell(&mut self, to: Rank, message: EndpointMessage<'_>) {
        self.push(to, wire::encode(message));
    }

    /// Leaves a session after its last message. Returns false if there is none.
    pub(super) fn close_after_last(&mut self, rank: Rank) -> bool {
        let queue = self.queues.get_mut(&rank);
        queue.map(|queue| queue.closes = true).is_some()
    }

    /// Drops what waits for a peer that ended.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.queues.remove(&rank);
    }

    /// Returns true if no more is taken for a peer.
    pub(super) fn is_full(&self, to: Rank) -> bool {
        (self.queues.get(&to)).is_some_and(|queue| queue.bytes >= MOST_WAITING)
    }

    /// Returns true if a peer asks, and does not read the answers.
    pub(super) fn is_flooded(&self, to: Rank) -> bool {
        (self.queues.get(&to)).is_some_and(|queue| queue.bytes >= MOST_ANSWERS)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

/// Returns the bytes that a message takes here.
fn size_of_message(message: &OwnedMessage) -> usize {
    size_of::<OwnedMessage>() + size_of_val(&*message.args) + message.payload.len()
}

impl EndpointRoom {
    /// Sends what waits, as far as peers have room.
    pub(super) fn flush(&self, state: &mut FabricState) {
        state.outbox.queues.retain(|rank, queue| {
            while let Some(message) = queue.messages.front() {
                match self.conduit.send(*rank, &message.message()) {
                    Ok(Sent::Yes) => {
                        queue.bytes -= size_of_message(message);
                        queue.messages.pop_front();
                    }
                    Ok(Sent::Full) => return true,
                    // Its end is an event.
                    Err(_) => return false,
                }
            }
            if queue.closes {
                self.control.disconnect(*rank);
            }
            false
        });
    }
}
