//! Messages of a rank to itself, for conduits over networks.

use std::{
    collections::VecDeque,
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use parking_lot::Mutex;

use crate::{Caps, Error, Message, OwnedMessage, Rank, ReplyPort, Sent, Sink};

/// Most deliveries of one poll.
const MAX_DELIVERIES: usize = 64;

/// The messages of a rank to itself that were not delivered yet.
#[derive(Debug, Default)]
pub struct Loopback {
    /// Filled by any thread, delivered by the thread that polls, in order. True for requests.
    queue: Mutex<VecDeque<(bool, OwnedMessage)>>,
    /// The length of the queue. Stored while the queue is locked.
    count: AtomicUsize,
    /// Requests sent.
    sent: AtomicU64,
    /// Requests handled.
    handled: AtomicU64,
}

impl Loopback {
    /// Sends a message to this rank. The caller has checked the message.
    pub fn send(&self, window: u32, message: &Message<'_>) -> Sent {
        let mut queue = self.queue.lock();
        let (handled, sent) = self.progress();
        if sent - handled >= u64::from(window) {
            return Sent::Full;
        }
        self.sent.fetch_add(1, AcqRel);
        queue.push_back((true, OwnedMessage::new(message)));
        self.count.store(queue.len(), Release);
        Sent::Yes
    }

    fn take(&self) -> Option<(bool, OwnedMessage)> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.queue.lock();
        let message = queue.pop_front();
        self.count.store(queue.len(), Release);
        message
    }

    /// Returns true if no message waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Returns how many requests were handled, and how many were sent.
    pub fn progress(&self) -> (u64, u64) {
        (self.handled.load(Acquire), self.sent.load(Acquire))
    }

    /// Delivers the queued messages. Returns how many.
    #[inline]
    pub fn deliver(&self, rank: Rank, caps: &Caps, sink: &mut dyn Sink) -> usize {
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
                let loopback = self;
                sink.request(delivery, &mut LoopbackReplyPort { caps, loopback });
            } else {
                sink.reply(delivery);
            }
            if is_request {
                self.handled.fetch_add(1, AcqRel);
            }
        }
        count
    }
}

struct LoopbackReplyPort<'a> {
    caps: &'a Caps,
    loopback: &'a Loopback,
}

impl ReplyPort for LoopbackReplyPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.caps.check(message)?;
        let mut queue = self.loopback.queue.lock();
        queue.push_back((false, OwnedMessage::new(message)));
        self.loopback.count.store(queue.len(), Release);
        Ok(())
    }
}
