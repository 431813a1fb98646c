//! Messages to peers, sent in the order in which they were decided.

#![allow(unsafe_code)] // reads memory of operations that wait, and moves what the engine asked for

use std::collections::VecDeque;

use hydrant_conduit::{Access, Key, Local, Posted, Remote, Sent, Window};
use hydrant_pinning::{Data, EngineMessage};
use rustc_hash::FxHashMap;

use super::Registration;
use crate::{
    Rank,
    counters::Count,
    progress::{Backlog, kind},
};

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
    leading: Option<OutboxEntry>,
    last: OutboxEntry,
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
    fn begin(&mut self) -> u64 {
        self.passes += 1;
        self.passes
    }

    /// Takes the next messages for a peer to which nobody sends and which was not found full in
    /// this pass. Also returns a buffer to encode them.
    fn take(&mut self, pass: u64) -> Option<(u32, OutboxPacket, Vec<u8>)> {
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
    fn sent(&mut self, peer: u32, packet: &OutboxPacket, room: Vec<u8>) {
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
    fn put_back(&mut self, pass: u64, peer: u32, packet: OutboxPacket, room: Vec<u8>) {
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
    fn is_stuck(&self) -> bool {
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

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Registration {
    /// Sends the messages for which there is room. A caller that finds no room need not retry:
    /// another thread of the rank does, by
    /// [`Progress::wake_for_backlog`](crate::progress::Progress).
    pub(crate) fn flush(&self) {
        if self.send_waiting() {
            self.progress.tally.one(Count::RegistrationStalls);
            self.progress.wake_for_backlog();
        }
    }

    /// Sends the messages for which there is room. Returns whether messages wait for room now and
    /// none did before.
    fn send_waiting(&self) -> bool {
        let mut outbox = self.outbox.lock();
        if self.progress.has_backlog_of(Backlog::Along) {
            self.progress.set_backlog(Backlog::Along, false);
        }
        let pass = outbox.begin();
        while let Some((peer, mut packet, mut room)) = outbox.take(pass) {
            room.clear();
            if let Some(OutboxEntry::Engine(message, _)) = &packet.leading {
                message.encode(&mut room);
            }
            let leading = room.len();
            if let OutboxEntry::Engine(message, Data::Own { addr, len }) = &packet.last {
                message.encode(&mut room);
                // SAFETY: the buffer belongs to an operation in flight. The caller of `begin` keeps it
                //         readable until the operation is done or locally complete. Local completion
                //         comes after this message, because its entry stands behind it in the queue.
                //         Remote completion comes later still, or when the peer is lost. In that case
                //         the message was dropped before, under this lock.
                unsafe { append(&mut room, *addr, *len as usize) };
            }
            drop(outbox);
            let sent = self.send_queued(Rank(peer), &mut packet.last, leading, &mut room);
            outbox = self.outbox.lock();
            match sent {
                Sent::Yes => outbox.sent(peer, &packet, room),
                Sent::Full => outbox.put_back(pass, peer, packet, room),
            }
        }
        // Set with the lock held, so that the bit matches the queues.
        (self.progress).set_backlog(Backlog::Registration, outbox.is_stuck())
    }

    /// Sends one message behind `leading` bytes of another that are in `room` already. If own data
    /// follows the message, both are there too; otherwise the message is encoded here.
    fn send_queued(
        &self,
        to: Rank,
        entry: &mut OutboxEntry,
        leading: usize,
        room: &mut Vec<u8>,
    ) -> Sent {
        let (kind, tag, key) = match entry {
            OutboxEntry::Engine(message, data) => {
                self.write_message(to, message, data, room);
                (kind::REGISTRATION, leading as u16, None)
            }
            OutboxEntry::Loan { tag, key, .. } => (kind::LOAN, *tag, Some(*key)),
            OutboxEntry::LocallyComplete(op) => {
                self.report_local_completion(*op);
                return Sent::Yes;
            }
        };
        let message = hydrant_conduit::Message {
            kind,
            tag,
            args: key.as_slice(),
            payload: room,
        };
        match self.progress.conduit().send(to, &message) {
            Ok(Sent::Full) => return Sent::Full,
            Ok(Sent::Yes) => self.progress.tally.one(Count::RegistrationMessages),
            // The peer is gone. Waiters see its standing.
            Err(_) => {}
        }
        Sent::Yes
    }

    /// Encodes a message without own data, and appends the data that the peer asked for. If the
    /// data is refused now, it stays refused, even if the answer is sent later.
    fn write_message(
        &self,
        to: Rank,
        message: &mut EngineMessage,
        data: &mut Data,
        bytes: &mut Vec<u8>,
    ) {
        let (region, addr, len) = match *data {
            Data::Own { .. } => return,
            Data::None => return message.encode(bytes),
            Data::Asked { region, addr, len } => (region, addr, len as usize),
        };
        let before = bytes.len();
        message.encode(bytes);
        let start = bytes.len();
        bytes.resize(start + len, 0);
        let (lent, place) = (&self.lent, (addr, len as u64));
        let into = &mut bytes[start..];
        if !lent.while_lent(to, region, place, || self.load(addr, into)) {
            bytes.truncate(before);
            message.refuse(lent.why_not(to, region, place));
            *data = Data::None;
            message.encode(bytes);
        }
    }

    /// Copies own memory that a peer asked for. Returns `false` if the memory is not mapped.
    pub(super) fn load(&self, addr: u64, into: &mut [u8]) -> bool {
        if let Some((own, offset)) = self.in_own_segment(addr)
            && own.read(offset, into).is_ok()
        {
            return true;
        }
        let from = Remote {
            key: Key::ANY,
            offset: addr,
        };
        let to = Local::unregistered(into.as_mut_ptr());
        let access = Access::get(self.progress.rank, from, to, into.len());
        // SAFETY: `into` is borrowed, and the copy is done on return.
        let read = unsafe { self.progress.conduit().post(&access) };
        matches!(read, Ok(Posted::Done))
    }

    /// Copies data of a peer into own memory. Returns `false` if the memory is not mapped or not
    /// writable.
    pub(super) fn store(&self, addr: u64, data: &[u8]) -> bool {
        if let Some((own, offset)) = self.in_own_segment(addr)
            && own.write(offset, data).is_ok()
        {
            return true;
        }
        let to = Remote {
            key: Key::ANY,
            offset: addr,
        };
        let from = Local::unregistered(data.as_ptr().cast_mut());
        let access = Access::put(self.progress.rank, to, from, data.len());
        // SAFETY: `data` is borrowed, and the copy is done on return. The memory is lent to peers, so
        // others may write to it at any time.
        let written = unsafe { self.progress.conduit().post(&access) };
        matches!(written, Ok(Posted::Done))
    }

    /// Returns the offset of an address in the own segment. The segment is mapped and writable as a
    /// whole, so no system call is needed.
    fn in_own_segment(&self, addr: u64) -> Option<(&Window, usize)> {
        let base = self.segments.of(self.progress.rank).ok()?;
        let window = self.progress.conduit().window(self.progress.rank)?;
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        Some((window, offset))
    }
}

/// Appends a copy of memory.
///
/// # Safety
/// 1. `len` bytes at `addr` are readable.
unsafe fn append(bytes: &mut Vec<u8>, addr: u64, len: usize) {
    let from = std::ptr::with_exposed_provenance::<u8>(addr as usize);
    bytes.reserve(len);
    let end = bytes.len();
    let spare = bytes.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    // SAFETY: the caller's condition 1 for `from`. `spare` has room for `len` bytes, reserved above,
    //         and nothing else refers to them.
    unsafe { spare.copy_from_nonoverlapping(from, len) };
    // SAFETY: the `len` bytes behind the end are within the capacity, and were initialized above.
    unsafe { bytes.set_len(end + len) };
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
