//! The inbox: delivers the messages and ended operations that were collected.
//!
//! Every message carries the count of handled requests. A message that carries nothing else is sent only if no other
//! goes.

use std::collections::VecDeque;

use hydrant_conduit::{Delivery, Error, Message, Rank, ReplyPort, Sink, Standing};
use rustc_hash::FxHashMap;

use crate::{
    arrivals::{EndedAccess, MessageBytes, WaitingMessage},
    events::PeerEvent,
    message::{self, StreamRole},
    peers::OfiPeer,
    shared::OfiShared,
    slots::SendBuffer,
};

/// Polls in a row that find nothing before a peer is sent the counts. Usually another message carries them earlier.
const IDLE: u32 = 64;
/// The most messages that one poll delivers.
const MOST: usize = 64;

/// State of the thread that polls.
pub(crate) struct OfiInbox {
    /// Ended operations while they are handed up.
    ended: Vec<EndedAccess>,
    /// Peers that do not know yet how many of their requests were handled.
    owing: Vec<u32>,
    /// Requests that wait until their peer takes the replies that it has, by peer.
    held: FxHashMap<u32, VecDeque<WaitingMessage>>,
    /// Polls in a row that found nothing. A thread about to sleep raises it.
    idle: u32,
}

impl OfiInbox {
    pub(crate) fn new() -> Self {
        Self {
            ended: Vec::new(),
            owing: Vec::new(),
            held: FxHashMap::default(),
            idle: 0,
        }
    }

    /// Delivers messages and ended operations. Returns how many.
    pub(crate) fn poll(&mut self, shared: &OfiShared, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        let mut read = 0;
        {
            let mut collector = shared.collector.lock();
            if !collector.has_news() {
                read = collector.collect(shared, false);
            }
            std::mem::swap(&mut self.ended, &mut collector.ended);
        }
        for (ticket, outcome) in self.ended.drain(..) {
            count += 1;
            sink.complete(ticket, outcome);
        }
        let mut delivered = 0;
        while delivered < MOST {
            let next = shared.collector.lock().messages.pop_front();
            let Some(waiting) = next else {
                break;
            };
            if self.holds_back(shared, &waiting) {
                let waiting = waiting.copied(shared);
                self.held
                    .entry(waiting.from)
                    .or_default()
                    .push_back(waiting);
                continue;
            }
            delivered += 1;
            self.deliver(shared, waiting, sink);
        }
        if !self.held.is_empty() {
            delivered += self.deliver_held(shared, sink);
        }
        count += delivered;
        if !shared.loopback.is_empty() {
            count += shared.loopback.deliver(shared.rank, &shared.caps, sink);
        }
        self.idle = if delivered == 0 {
            self.idle.saturating_add(1)
        } else {
            0
        };
        if !self.owing.is_empty() {
            self.send_counts(shared);
        }
        if count > 0 || read > 0 {
            shared.sleepers.wake_listening();
        }
        count
    }

    /// Returns true if peers wait for counts. The next poll sends them.
    pub(crate) fn has_debts(&mut self) -> bool {
        self.idle = IDLE;
        !self.owing.is_empty()
    }

    /// Returns true if a message is a request, and must wait: behind another, or because its peer takes no replies.
    fn holds_back(&self, shared: &OfiShared, waiting: &WaitingMessage) -> bool {
        waiting.is_request
            && (self.held.contains_key(&waiting.from)
                || shared
                    .peers
                    .known(waiting.from)
                    .is_some_and(|peer| is_choked(shared, peer)))
    }

    #[cold]
    fn deliver_held(&mut self, shared: &OfiShared, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        let ranks: Vec<u32> = self.held.keys().copied().collect();
        for rank in ranks {
            let Some(peer) = shared.peers.known(rank) else {
                continue;
            };
            while !is_choked(shared, peer)
                && let Some(waiting) = self.held.get_mut(&rank).and_then(VecDeque::pop_front)
            {
                count += 1;
                self.deliver(shared, waiting, sink);
            }
            if self.held.get(&rank).is_some_and(VecDeque::is_empty) {
                self.held.remove(&rank);
            }
        }
        count
    }

    fn deliver(&mut self, shared: &OfiShared, waiting: WaitingMessage, sink: &mut dyn Sink) {
        let Some(peer) = shared.peers.known(waiting.from) else {
            return;
        };
        let bytes = match &waiting.bytes {
            MessageBytes::Event(event) => return self.tell(shared, event, sink),
            MessageBytes::InSlot(slot, len) => shared.receives.bytes(slot, *len),
            MessageBytes::Copied(words, len) => &bytemuck::cast_slice(words)[..*len],
        };
        // The message was decoded before, so this cannot fail.
        if let Some(message) = message::decode(bytes) {
            let from = peer.rank;
            let is_request = message.role == StreamRole::Request;
            let delivery = Delivery {
                from,
                kind: message.header.kind,
                tag: message.header.tag,
                args: message.args,
                payload: message.payload,
            };
            let mut port = StreamReplyPort {
                shared,
                reply: None,
                others: Vec::new(),
            };
            if message.header.kind >= Message::KINDS {
                let what = "its kind is unknown";
                sink.malformed(Error::Malformed { peer: from, what });
            } else if is_request {
                sink.request(delivery, &mut port);
            } else {
                sink.reply(delivery);
            }
            let StreamReplyPort { reply, others, .. } = port;
            if is_request {
                peer.counts.note_served();
            }
            for slot in reply.into_iter().chain(others) {
                // A peer that ended needs no reply.
                let _ = shared.push(peer, slot, StreamRole::Reply);
            }
            peer.counts.note_taken();
            let owes = is_request && peer.counts.owed() != 0
                || peer.counts.untold() > shared.limits.window / 2;
            if owes && !self.owing.contains(&waiting.from) {
                self.owing.push(waiting.from);
            }
        }
        if let MessageBytes::InSlot(slot, _) = waiting.bytes {
            shared.receives.give_back(slot);
        }
    }

    /// Tells the layer above an event of a peer, after all messages that came before.
    #[cold]
    fn tell(&mut self, shared: &OfiShared, event: &PeerEvent, sink: &mut dyn Sink) {
        for waiting in self.held.remove(&event.peer().0).unwrap_or_default() {
            self.deliver(shared, waiting, sink);
        }
        if let Some(listening) = &shared.listening {
            listening.handler.event(event.clone());
        }
    }

    /// Sends the counts to peers: once the inbox was idle for a while, or once a peer may be blocked without them.
    fn send_counts(&mut self, shared: &OfiShared) {
        let many = (shared.limits.window / 2).max(1);
        let idle = self.idle;
        self.owing.retain(|rank| {
            let Some(peer) = shared.peers.known(*rank) else {
                return false;
            };
            let owed = peer.counts.owed().max(peer.counts.untold());
            if owed == 0 || shared.peers.standings.of(Rank(*rank)) != Standing::Present {
                return false;
            }
            if idle < IDLE && owed < many {
                return true;
            }
            report(shared, peer)
        });
    }
}

/// Returns true if a peer has not taken so many messages that its requests have to wait, because they may bring more.
fn is_choked(shared: &OfiShared, peer: &OfiPeer) -> bool {
    let sent = peer.link.lock().sent_above;
    let most = 2 * shared.limits.window + 2;
    sent.wrapping_sub(peer.counts.taken_there()) > most
        && shared.peers.standings.of(peer.rank) == Standing::Present
}

/// Sends the counts to a peer. Returns true if they have to be sent later.
fn report(shared: &OfiShared, peer: &OfiPeer) -> bool {
    let link = peer.link.lock();
    shared.send_counts(peer, &link) != crate::fabric::PostResult::Taken
}

/// The reply port of a handler. Replies are sent once the handler has returned.
struct StreamReplyPort<'a> {
    shared: &'a OfiShared,
    reply: Option<SendBuffer>,
    /// Replies after the first; few handlers send several.
    others: Vec<SendBuffer>,
}

impl ReplyPort for StreamReplyPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        let shared = self.shared;
        shared.caps.check(message)?;
        let Some(mut slot) = shared.sends.take() else {
            // The window of each peer bounds its replies, and there are buffers for all.
            return Err(Error::Exhausted {
                what: "buffers for replies",
                limit: u64::from(u16::MAX),
                remedy: "lower HYDRANT_OFI_WINDOW",
            });
        };
        let bytes = shared.sends.bytes(&mut slot);
        slot.len = message::encode(StreamRole::Reply, message, bytes);
        match self.reply {
            None => self.reply = Some(slot),
            Some(_) => self.others.push(slot),
        }
        Ok(())
    }
}
