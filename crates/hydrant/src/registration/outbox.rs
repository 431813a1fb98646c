//! The queues of messages to peers, in the order in which they were decided.

use std::collections::VecDeque;

use hydrant_pinning::{Data, EngineMessage};
use rustc_hash::FxHashMap;

use crate::Rank;

/// An entry of the queue of a peer.
pub(super) enum OutboxEntry {
    /// A message from engine to engine, and the data that follows it.
    Engine(EngineMessage, Data),
    /// A message about an exposed buffer. `is_answer`: the peer asked for it.
    Loan { tag: u16, key: u64, is_answer: bool },
    /// No message. The data of this put's buffer was all in earlier messages, so the put is locally
    /// complete.
    LocallyComplete(u64),
}

/// The most answers to one peer that may wait before the peer is expelled. A correct peer takes
/// answers after every few operations that it begins (`Transfer::take_answers`).
const MOST_ANSWERS: usize = 1 << 16;

/// The most granted and the most refused runs in a message that takes another along, and the most
/// bytes of such a message.
const FEW: usize = 1;
const FEW_BYTES: usize = 256;

/// The most bytes of data behind the second message, so that both fit: a conduit carries at least
/// twice [`EngineMessage::MAX_BYTES`].
const MOST_DATA: u64 = (EngineMessage::MAX_BYTES - FEW_BYTES) as u64;

/// Messages that wait to be sent. Their number is bounded by the own operations in flight, by the
/// exposed buffers, and by [`MOST_ANSWERS`].
///
/// The lock is held to add and to take messages, never while one is sent. The engine waits for this
/// lock while it holds its own.
#[derive(Default)]
pub(super) struct Outbox {
    /// The queues by peer. The queue of a peer stays once it was used.
    queues: FxHashMap<u32, PeerQueue>,
    /// Peers for which messages wait or are being sent.
    waiting: Vec<u32>,
    /// A peer that keeps asking and takes no answers.
    greedy: Option<u32>,
    /// The number of passes that threads have begun. A pass sends whatever there is room for.
    passes: u64,
    /// Buffers for encoded messages, for reuse.
    spare: Vec<Vec<u8>>,
}

impl OutboxEntry {
    /// Returns whether the peer asked for this.
    fn is_answer(&self) -> bool {
        use EngineMessage::{Fetched, Granted, Pulled, Revoked, Stored};
        match self {
            OutboxEntry::Engine(message, _) => matches!(
                message,
                Granted(_) | Stored { .. } | Fetched { .. } | Pulled { .. } | Revoked { .. }
            ),
            OutboxEntry::Loan { is_answer, .. } => *is_answer,
            OutboxEntry::LocallyComplete(_) => false,
        }
    }

    /// Returns whether the next message for the same peer can share one message of the conduit with
    /// this one. This one must be short and without data.
    fn takes_along(&self, next: &OutboxEntry) -> bool {
        match (self, next) {
            (
                OutboxEntry::Engine(EngineMessage::Granted(granted), Data::None),
                OutboxEntry::Engine(next, _),
            ) => {
                let is_short = granted.grants.len() <= FEW && granted.refused.len() <= FEW;
                is_short && next.data() <= MOST_DATA
            }
            _ => false,
        }
    }
}

/// The content of one message of the conduit.
pub(super) struct OutboxPacket {
    /// The first of two messages, which has no data.
    pub(super) leading: Option<OutboxEntry>,
    pub(super) last: OutboxEntry,
}

impl OutboxPacket {
    /// Returns the number of answers in it.
    fn answers(&self) -> usize {
        let leading = self.leading.as_ref().is_some_and(OutboxEntry::is_answer);
        usize::from(leading) + usize::from(self.last.is_answer())
    }
}

/// Messages that wait to be sent to one peer, in the order decided.
#[derive(Default)]
struct PeerQueue {
    messages: VecDeque<OutboxEntry>,
    /// The number of answers among the messages, those being sent included.
    answers: usize,
    /// True while a thread sends the message before these. No other thread sends to the peer
    /// meanwhile.
    sending: bool,
    /// The last [pass](Outbox::passes) in which the peer had no room.
    full: u64,
    /// True once the peer has ended or counts this rank as lost. Nothing is sent to it any more.
    ended: bool,
}

impl Outbox {
    pub(super) fn push(&mut self, to: u32, entry: OutboxEntry) {
        let queue = self.queues.entry(to).or_default();
        if queue.ended {
            return;
        }
        if entry.is_answer() {
            queue.answers += 1;
            if queue.answers > MOST_ANSWERS {
                self.greedy = Some(to);
            }
        }
        if queue.messages.is_empty() && !queue.sending {
            self.waiting.push(to);
        }
        queue.messages.push_back(entry);
    }

    /// Begins a pass of a thread, and returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.passes += 1;
        self.passes
    }

    /// Takes the next messages for a peer to which nobody sends and which was not found full in
    /// this pass. Also returns a buffer to encode them.
    pub(super) fn take(&mut self, pass: u64) -> Option<(u32, OutboxPacket, Vec<u8>)> {
        let Self {
            queues, waiting, ..
        } = self;
        for peer in waiting.iter() {
            if let Some(queue) = queues.get_mut(peer)
                && !queue.sending
                && queue.full < pass
                && let Some(first) = queue.messages.pop_front()
            {
                queue.sending = true;
                let next = queue.messages.front();
                let second = if next.is_some_and(|next| first.takes_along(next)) {
                    queue.messages.pop_front()
                } else {
                    None
                };
                let packet = match second {
                    Some(last) => OutboxPacket {
                        leading: Some(first),
                        last,
                    },
                    None => OutboxPacket {
                        leading: None,
                        last: first,
                    },
                };
                return Some((*peer, packet, self.spare.pop().unwrap_or_default()));
            }
        }
        None
    }

    /// Notes that a packet was sent, or that the peer is gone.
    pub(super) fn sent(&mut self, peer: u32, packet: &OutboxPacket, room: Vec<u8>) {
        self.spare.push(room);
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.sending = false;
            queue.answers -= packet.answers();
            if queue.messages.is_empty() {
                self.waiting.retain(|other| *other != peer);
            }
        }
    }

    /// Puts back a packet for which the peer had no room in this pass. It is the next again.
    pub(super) fn put_back(&mut self, pass: u64, peer: u32, packet: OutboxPacket, room: Vec<u8>) {
        if self.queues.get(&peer).is_some_and(|queue| queue.ended) {
            return self.sent(peer, &packet, room);
        }
        self.spare.push(room);
        if let Some(queue) = self.queues.get_mut(&peer) {
            queue.sending = false;
            queue.full = pass;
            queue.messages.push_front(packet.last);
            if let Some(leading) = packet.leading {
                queue.messages.push_front(leading);
            }
        }
    }

    /// Drops the messages for a peer that has ended or counts this rank as lost. Called before the
    /// operations with the peer end, because the messages may name their buffers.
    pub(super) fn forget(&mut self, peer: u32) {
        let queue = self.queues.entry(peer).or_default();
        queue.ended = true;
        let answers = queue.messages.iter().filter(|entry| entry.is_answer());
        queue.answers -= answers.count();
        queue.messages.clear();
        if !queue.sending {
            self.waiting.retain(|other| *other != peer);
        }
    }

    /// Returns whether messages wait for room. Messages for a peer to which a thread is sending do
    /// not: that thread sends them too.
    pub(super) fn is_stuck(&self) -> bool {
        let waits = |peer| {
            self.queues
                .get(peer)
                .is_some_and(|queue: &PeerQueue| !queue.sending)
        };
        self.waiting.iter().any(waits)
    }

    /// Takes the peer that keeps asking and takes no answers.
    pub(super) fn take_greedy(&mut self) -> Option<Rank> {
        self.greedy.take().map(Rank)
    }

    /// Returns whether messages wait for a peer or are being sent to it.
    pub(super) fn has_for(&self, peer: u32) -> bool {
        self.waiting.contains(&peer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use hydrant_pinning::{
        Refusal, RegionNumber, Run,
        wire::{Grant, Granted, MAX_LIST},
    };

    use super::*;

    fn question() -> OutboxEntry {
        OutboxEntry::Engine(EngineMessage::Recall { count: 1 }, Data::None)
    }

    fn answer() -> OutboxEntry {
        let (id, refused) = (1, None);
        OutboxEntry::Engine(EngineMessage::Stored { id, refused }, Data::None)
    }

    fn loan(key: u64) -> OutboxEntry {
        OutboxEntry::Loan {
            tag: 0,
            key,
            is_answer: false,
        }
    }

    fn key((_, packet, _): &(u32, OutboxPacket, Vec<u8>)) -> u64 {
        match &packet.last {
            OutboxEntry::Loan { key, .. } => *key,
            OutboxEntry::Engine(..) | OutboxEntry::LocallyComplete(_) => panic!("not about a loan"),
        }
    }

    fn granted(id: u64, runs: usize) -> OutboxEntry {
        let grant = Grant {
            run: Run {
                first: id,
                count: 1,
            },
            key: u64::MAX,
            writable: true,
        };
        let granted = Granted {
            id,
            last: true,
            grants: vec![grant; runs],
            refused: vec![(grant.run, Refusal::Limit); runs.min(1)],
            ..Granted::default()
        };
        OutboxEntry::Engine(EngineMessage::Granted(granted), Data::None)
    }

    fn fetched(len: u32) -> OutboxEntry {
        let (id, refused, room) = (1, None, 0);
        let message = EngineMessage::Fetched {
            id,
            refused,
            len,
            room,
        };
        let (region, addr) = (RegionNumber(0), 0);
        OutboxEntry::Engine(message, Data::Asked { region, addr, len })
    }

    #[test]
    fn a_short_grant_shares_a_message_with_the_next_and_both_fit() {
        let take = |first: OutboxEntry, next: OutboxEntry| {
            let mut outbox = Outbox::default();
            outbox.push(1, first);
            outbox.push(1, next);
            outbox.push(2, answer());
            let pass = outbox.begin();
            let (peer, packet, room) = outbox.take(pass).expect("for rank 1");
            let both = packet.leading.is_some();
            outbox.put_back(pass, peer, packet, room);
            assert_eq!(outbox.queues[&1].messages.len(), 2, "both are next again");
            let pass = outbox.begin();
            let mut count = 0;
            while let Some((peer, packet, room)) = outbox.take(pass) {
                outbox.sent(peer, &packet, room);
                count += 1;
            }
            assert_eq!(count, if both { 2 } else { 3 });
            assert!(outbox.is_empty() && outbox.queues[&1].answers == 0);
            both
        };
        let most = MOST_DATA as u32;
        assert!(take(granted(1, 1), answer()));
        assert!(take(granted(1, 1), granted(2, MAX_LIST)));
        assert!(take(granted(1, 1), fetched(most)));
        assert!(!take(granted(1, 1), fetched(most + 1)));
        assert!(!take(granted(1, 2), answer()));
        assert!(!take(granted(1, 1), loan(10)));
        assert!(!take(answer(), answer()));
        let encoded = |entry| {
            let mut bytes = Vec::new();
            match entry {
                OutboxEntry::Engine(message, _) => message.encode(&mut bytes),
                OutboxEntry::Loan { .. } | OutboxEntry::LocallyComplete(_) => {
                    panic!("not a message of the engine")
                }
            }
            bytes.len()
        };
        let leading = encoded(granted(1, 1));
        assert!(leading <= FEW_BYTES);
        assert!(leading + encoded(fetched(most)) + most as usize <= 2 * EngineMessage::MAX_BYTES);
    }

    #[test]
    fn a_peer_that_takes_no_answers_is_found_by_its_answers_alone() {
        let mut outbox = Outbox::default();
        for _ in 0..2 * MOST_ANSWERS {
            outbox.push(3, question());
        }
        for _ in 0..MOST_ANSWERS {
            outbox.push(3, answer());
        }
        assert_eq!(outbox.take_greedy(), None);
        outbox.push(4, answer());
        outbox.push(3, answer());
        assert_eq!(outbox.take_greedy(), Some(Rank(3)));
        assert_eq!(outbox.take_greedy(), None);
        assert!(outbox.queues[&4].answers == 1);
        let pass = outbox.begin();
        let mut count = 0;
        while let Some((peer, packet, room)) = outbox.take(pass) {
            outbox.sent(peer, &packet, room);
            count += 1;
        }
        assert_eq!(count, 3 * MOST_ANSWERS + 2);
        assert!(outbox.is_empty() && !outbox.is_stuck());
        assert!(outbox.queues.values().all(|queue| queue.answers == 0));
    }

    #[test]
    fn one_thread_at_a_time_sends_to_a_peer_and_in_order() {
        let mut outbox = Outbox::default();
        outbox.push(1, loan(10));
        outbox.push(2, loan(20));
        let (one, two) = (outbox.begin(), outbox.begin());
        let first = outbox.take(one).expect("for rank 1");
        let second = outbox.take(two).expect("for rank 2");
        assert_eq!((key(&first), key(&second)), (10, 20));
        // A message that is added meanwhile is sent by the thread that is sending.
        outbox.push(1, loan(11));
        assert!(outbox.take(two).is_none() && !outbox.is_stuck());
        outbox.put_back(one, first.0, first.1, first.2);
        assert!(outbox.is_stuck(), "there is no room at rank 1");
        assert!(outbox.take(one).is_none(), "the peer was full in this pass");
        outbox.sent(second.0, &second.1, second.2);
        let later = outbox.begin();
        for wanted in [10, 11] {
            let next = outbox.take(later).expect("there is room again");
            assert_eq!(key(&next), wanted);
            outbox.sent(next.0, &next.1, next.2);
        }
        assert!(outbox.is_empty() && !outbox.is_stuck());
    }

    #[test]
    fn nothing_for_a_peer_that_ended_is_sent_or_kept() {
        let mut outbox = Outbox::default();
        outbox.push(1, answer());
        outbox.push(1, loan(11));
        outbox.push(2, loan(20));
        let pass = outbox.begin();
        let (peer, packet, room) = outbox.take(pass).expect("for rank 1");
        outbox.forget(1);
        outbox.push(1, loan(12));
        outbox.put_back(pass, peer, packet, room);
        let pass = outbox.begin();
        let next = outbox.take(pass).expect("for rank 2");
        assert_eq!(key(&next), 20);
        assert!(outbox.take(pass).is_none(), "nothing is left for rank 1");
        outbox.sent(next.0, &next.1, next.2);
        assert!(outbox.is_empty() && !outbox.is_stuck());
        assert_eq!(outbox.queues[&1].answers, 0);
    }

    #[test]
    fn a_later_pass_tries_again_where_an_earlier_one_found_no_room() {
        let mut outbox = Outbox::default();
        outbox.push(1, loan(10));
        let earlier = outbox.begin();
        let (peer, packet, room) = outbox.take(earlier).expect("for rank 1");
        let later = outbox.begin();
        outbox.put_back(earlier, peer, packet, room);
        assert!(outbox.take(earlier).is_none());
        assert!(outbox.take(later).is_some(), "there may be room by now");
    }
}
