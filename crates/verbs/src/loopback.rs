//! Messages of a rank to itself.

use std::{
    collections::VecDeque,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use hydrant_conduit::{Error, Message, OwnedMessage, ReplyPort, Sent, Sink};
use parking_lot::Mutex;

use crate::{
    endpoint::Endpoint,
    peers::{Credits, Peers},
};

/// Most deliveries of one poll.
const MAX_DELIVERIES: usize = 64;

#[derive(Default)]
pub(crate) struct Loopback {
    /// Filled by any thread, delivered by the thread that polls, in order. True marks a request.
    queue: Mutex<VecDeque<(bool, OwnedMessage)>>,
    /// The length of the queue. Stored while the queue is locked.
    count: AtomicUsize,
}

impl Loopback {
    /// Sends a message to this rank. The caller has checked the message.
    pub(crate) fn send(&self, own: &Credits, window: u32, message: &Message<'_>) -> Sent {
        let mut queue = self.queue.lock();
        if own.is_full(window) {
            return Sent::Full;
        }
        own.note_sent();
        queue.push_back((true, OwnedMessage::new(message)));
        self.count.store(queue.len(), Release);
        Sent::Yes
    }

    #[inline]
    fn take(&self) -> Option<(bool, OwnedMessage)> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.queue.lock();
        let message = queue.pop_front();
        self.count.store(queue.len(), Release);
        message
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Delivers the queued messages. Returns how many.
    #[inline]
    pub(crate) fn deliver(&self, endpoint: &Endpoint, peers: &Peers, sink: &mut dyn Sink) -> usize {
        let rank = endpoint.rank();
        let mut count = 0;
        while count < MAX_DELIVERIES
            && let Some((is_request, message)) = self.take()
        {
            let delivery = message.delivery(rank);
            count += 1;
            if message.kind >= Message::KINDS {
                let what = "its kind is unknown";
                sink.malformed(Error::Malformed { peer: rank, what });
            } else if is_request {
                sink.request(
                    delivery,
                    &mut LoopbackReplyPort {
                        endpoint,
                        loopback: self,
                    },
                );
            } else {
                sink.reply(delivery);
            }
            if is_request {
                peers.get(rank).credits().note_own_handled();
            }
        }
        count
    }
}

struct LoopbackReplyPort<'a> {
    endpoint: &'a Endpoint,
    loopback: &'a Loopback,
}

impl ReplyPort for LoopbackReplyPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.endpoint.caps().check(message)?;
        let Loopback { queue, count } = self.loopback;
        let mut queue = queue.lock();
        queue.push_back((false, OwnedMessage::new(message)));
        count.store(queue.len(), Release);
        Ok(())
    }
}
