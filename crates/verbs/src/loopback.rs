//! Messages of a rank to itself.

use std::{
    collections::VecDeque,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use hydrant_conduit::{Delivery, Error, Message, ReplyPort, Sent, Sink};
use parking_lot::Mutex;

use crate::{
    endpoint::Endpoint,
    peers::{Credits, Peers},
};

/// Most deliveries of one poll.
const MAX_DELIVERIES: usize = 64;

#[derive(Default)]
pub(crate) struct Loopback {
    /// Filled by any thread, delivered by the thread that polls, in order.
    queue: Mutex<VecDeque<LoopbackMessage>>,
    /// The length of the queue. Stored while the queue is locked.
    count: AtomicUsize,
}

struct LoopbackMessage {
    request: bool,
    kind: u8,
    tag: u16,
    args: Vec<u64>,
    payload: Vec<u8>,
}

impl LoopbackMessage {
    fn new(request: bool, message: &Message<'_>) -> Self {
        Self {
            request,
            kind: message.kind,
            tag: message.tag,
            args: message.args.to_vec(),
            payload: message.payload.to_vec(),
        }
    }
}

impl Loopback {
    /// Sends a message to this rank. The caller has checked the message.
    pub(crate) fn send(&self, own: &Credits, window: u32, message: &Message<'_>) -> Sent {
        let mut queue = self.queue.lock();
        if own.is_full(window) {
            return Sent::Full;
        }
        own.note_sent();
        queue.push_back(LoopbackMessage::new(true, message));
        self.count.store(queue.len(), Release);
        Sent::Yes
    }

    #[inline]
    fn take(&self) -> Option<LoopbackMessage> {
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
            && let Some(message) = self.take()
        {
            let delivery = Delivery {
                from: rank,
                kind: message.kind,
                tag: message.tag,
                args: &message.args,
                payload: &message.payload,
            };
            count += 1;
            if message.kind >= Message::KINDS {
                let what = "its kind is unknown";
                sink.malformed(Error::Malformed { peer: rank, what });
            } else if message.request {
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
            if message.request {
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
        queue.push_back(LoopbackMessage::new(false, message));
        count.store(queue.len(), Release);
        Ok(())
    }
}
