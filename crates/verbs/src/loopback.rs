//! Messages of a rank to itself.

use std::{
    collections::VecDeque,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hydrant_conduit::{Delivery, Error, Message, ReplyPort, Sent, Sink};
use parking_lot::Mutex;

use crate::shared::Shared;

/// Deliveries of one poll, at most.
const MOST: usize = 64;

#[derive(Default)]
pub(crate) struct Loopback {
    queue: Mutex<VecDeque<Parcel>>,
    /// How many are in it.
    count: AtomicUsize,
}

struct Parcel {
    request: bool,
    kind: u8,
    tag: u16,
    args: Vec<u64>,
    payload: Vec<u8>,
}

impl Parcel {
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
    /// Sends to oneself; the message was checked.
    pub(crate) fn send(&self, shared: &Shared, message: &Message<'_>) -> Sent {
        let peer = shared.peer(shared.rank);
        let mut queue = self.queue.lock();
        let (sent, handled) = (peer.sent.load(Relaxed), peer.handled.load(Relaxed));
        if sent - handled >= u64::from(shared.window) {
            return Sent::Full;
        }
        peer.sent.store(sent + 1, Relaxed);
        queue.push_back(Parcel::new(true, message));
        self.count.store(queue.len(), Release);
        drop(queue);
        shared.sleepers.arrived();
        Sent::Yes
    }

    #[inline]
    fn take(&self) -> Option<Parcel> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.queue.lock();
        let parcel = queue.pop_front();
        self.count.store(queue.len(), Release);
        parcel
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// Delivers what is there: how many things.
    #[inline]
    pub(crate) fn deliver(&self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        while count < MOST
            && let Some(parcel) = self.take()
        {
            let delivery = Delivery {
                from: shared.rank,
                kind: parcel.kind,
                tag: parcel.tag,
                args: &parcel.args,
                payload: &parcel.payload,
            };
            count += 1;
            if parcel.kind >= Message::KINDS {
                let what = "it is of a kind that there is not";
                let peer = shared.rank;
                sink.malformed(Error::Malformed { peer, what });
            } else if parcel.request {
                sink.request(delivery, &mut Port { shared });
            } else {
                sink.reply(delivery);
            }
            if parcel.request {
                shared.peer(shared.rank).handled.fetch_add(1, Relaxed);
            }
        }
        count
    }
}

struct Port<'a> {
    shared: &'a Shared,
}

impl ReplyPort for Port<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.shared.caps.check(message)?;
        let Loopback { queue, count } = &self.shared.loopback;
        let mut queue = queue.lock();
        queue.push_back(Parcel::new(false, message));
        count.store(queue.len(), Release);
        Ok(())
    }
}
