//! The inbox: handles arriving requests, replies and credits.
//!
//! A message always finds a receive buffer. A rank has at most `window` requests unhandled at a
//! peer. The peer answers each request with at most one message: a reply, or a credit that stands
//! for several. So a peer has at most twice `window` messages on its way. One more slot is needed
//! for a request that is being handled while its reply has already arrived.
//!
//! Every message carries the count of handled requests. A message that carries nothing else is sent only
//! if no other goes.

use std::collections::VecDeque;

use hydrant_conduit::{Delivery, Error, Message, Rank, ReplyPort, Sink, Standing};
use rustc_hash::FxHashMap;

use crate::{
    connection::EndedOperation,
    ffi,
    message::{self, Immediate, MessageRole},
    nic::{QueuePair, blank},
    peers::PeerLink,
    shared::VerbsShared,
    slots::{ReceiveSlot, SendSlot},
};

/// Messages taken by one poll.
const BATCH: usize = 16;
/// Polls in a row that find nothing before a peer is sent a credit message. Usually another message
/// carries the count earlier.
const IDLE: u32 = 64;
/// The same while the peer has a request to handle that may bring a reply. Usually that reply is
/// answered at once, and the answer carries the count. A thread about to sleep does not wait for
/// it.
const IDLE_EXPECTING_REPLY: u32 = 16 * IDLE;

/// The sender for no queue pair: no pair has this number.
const NOBODY: (u32, u32) = (u32::MAX, u32::MAX);

/// State of the thread that polls.
pub(crate) struct VerbsInbox {
    /// Ended operations while they are handed up.
    ended: Vec<EndedOperation>,
    /// The completions of the current poll.
    completions: [ffi::ibv_wc; BATCH],
    /// Completions that a thread took before it went to sleep.
    stash: VecDeque<ffi::ibv_wc>,
    /// The queue pair of the last message, and its rank.
    last_sender: (u32, u32),
    /// The backlog of each peer, by rank.
    backlogs: FxHashMap<u32, PeerBacklog>,
    /// Peers whose backlog has entries.
    stuck: Vec<u32>,
    /// Peers that do not know yet how many of their requests were handled.
    owing: Vec<u32>,
    /// Polls in a row that found nothing. A thread about to sleep raises it.
    idle: u32,
}

/// Replies and requests of a peer that wait.
#[derive(Default)]
struct PeerBacklog {
    /// Replies that found no slot to be sent from.
    kept: VecDeque<(Immediate, Vec<u8>)>,
    /// Requests that wait until those replies are sent.
    waiting: VecDeque<Received>,
}

/// A message as it was received.
struct Received {
    /// The slot that holds it, until it is handled.
    slot: ReceiveSlot,
    /// Its length in bytes.
    len: usize,
    /// Its immediate data.
    immediate: Immediate,
}

impl VerbsInbox {
    pub(crate) fn new() -> Self {
        Self {
            ended: Vec::new(),
            completions: [blank(); BATCH],
            stash: VecDeque::new(),
            last_sender: NOBODY,
            backlogs: FxHashMap::default(),
            stuck: Vec::new(),
            owing: Vec::new(),
            idle: 0,
        }
    }

    /// Delivers messages and ended operations. Returns how many.
    pub(crate) fn poll(&mut self, shared: &VerbsShared, sink: &mut dyn Sink) -> usize {
        let retired = shared.incoming.take_retired();
        // Messages first: their senders may wait for the reply.
        let arrived = self.take_arrivals(shared);
        for index in 0..arrived {
            let completion = self.completions[index];
            self.receive(shared, &completion, sink);
        }
        let sent_some = shared.completions.poll_sent(&shared.peers);
        shared.completions.take_ended(&mut self.ended);
        let mut count = arrived + self.ended.len();
        for ended in self.ended.drain(..) {
            if let Some((ticket, outcome)) = shared.completions.keep_own(ended) {
                sink.complete(ticket, outcome);
            }
        }
        count += (shared.loopback).deliver(shared.endpoint.rank(), shared.endpoint.caps(), sink);
        if let Some(retired) = retired {
            self.release_retired(shared, retired, arrived == 0);
        }
        if !self.stuck.is_empty() {
            count += self.resume_stuck(shared, sink);
        }
        self.idle = if arrived == 0 {
            self.idle.saturating_add(1)
        } else {
            0
        };
        if !self.owing.is_empty() {
            self.send_credits(shared);
        }
        shared.peers.flush();
        if count > 0 || sent_some {
            shared.completions.sleepers().wake_listening();
        }
        count
    }

    /// Stashes arrived messages without delivering them. Returns whether there is work for a poll:
    /// a message to deliver, or a credit to send.
    pub(crate) fn check_arrivals(&mut self, shared: &VerbsShared) -> bool {
        if self.stash.is_empty() {
            let count = shared.completions.poll_received(&mut self.completions);
            self.stash.extend(&self.completions[..count]);
        }
        if self.owing.is_empty() || !shared.peers.pool().slots().any_free() {
            return !self.stash.is_empty();
        }
        self.idle = IDLE_EXPECTING_REPLY;
        true
    }

    /// Releases the queue pairs that had retired before this poll, if it found no message.
    fn release_retired(
        &mut self,
        shared: &VerbsShared,
        retired: Vec<QueuePair>,
        found_nothing: bool,
    ) {
        if !found_nothing || !self.stash.is_empty() {
            return shared.incoming.put_back_retired(retired);
        }
        shared.incoming.forget(&retired);
        self.last_sender = NOBODY;
    }

    /// Sends kept replies as far as slots are free. Returns whether some are left.
    pub(crate) fn send_kept(&mut self, shared: &VerbsShared) -> bool {
        for (rank, backlog) in &mut self.backlogs {
            if !backlog.send_kept(shared, Rank(*rank)) {
                return true;
            }
        }
        false
    }

    /// Takes the completions of arrived messages. Returns how many.
    #[inline]
    fn take_arrivals(&mut self, shared: &VerbsShared) -> usize {
        if self.stash.is_empty() {
            return shared.completions.poll_received(&mut self.completions);
        }
        let count = self.stash.len().min(BATCH);
        for (into, completion) in self.completions.iter_mut().zip(self.stash.drain(..count)) {
            *into = completion;
        }
        count
    }

    fn receive(&mut self, shared: &VerbsShared, completion: &ffi::ibv_wc, sink: &mut dyn Sink) {
        let slot = ReceiveSlot(completion.wr_id as u32);
        let from = self.sender(shared, completion.qp_num);
        let (Some(rank), true) = (from, completion.status == ffi::IBV_WC_SUCCESS) else {
            return shared.endpoint.receives().give_back(slot);
        };
        let message = Received {
            slot,
            len: completion.byte_len as usize,
            immediate: Immediate(completion.immediate()),
        };
        if !self.stuck.is_empty()
            && let Some(backlog) = self.backlogs.get_mut(&rank)
            && backlog.is_stuck()
            && message.immediate.is_request()
        {
            return backlog.waiting.push_back(message);
        }
        self.handle(shared, rank, message, sink);
    }

    /// Returns the rank whose messages arrive by a queue pair.
    #[inline]
    fn sender(&mut self, shared: &VerbsShared, pair: u32) -> Option<u32> {
        if self.last_sender.0 == pair {
            return Some(self.last_sender.1);
        }
        let rank = shared.incoming.sender(pair)?;
        self.last_sender = (pair, rank);
        Some(rank)
    }

    /// Passes a message to the sink, and sends the replies of its handler.
    fn handle(
        &mut self,
        shared: &VerbsShared,
        rank: u32,
        Received {
            slot,
            len,
            immediate,
        }: Received,
        sink: &mut dyn Sink,
    ) {
        let (from, peer) = (Rank(rank), shared.peers.get(Rank(rank)));
        let bytes = shared.endpoint.receives().bytes(&slot, len);
        let mut port = SlotReplyPort {
            shared,
            peer,
            reply: None,
            others: Vec::new(),
        };
        let request = match message::decode(immediate, bytes) {
            Err(what) => {
                sink.malformed(Error::Malformed { peer: from, what });
                immediate.is_request()
            }
            Ok(message) => {
                peer.credits().note_handled(message.handled);
                let delivery = Delivery {
                    from,
                    kind: message.kind,
                    tag: message.tag,
                    args: message.args,
                    payload: message.payload,
                };
                match message.role {
                    MessageRole::Request => sink.request(delivery, &mut port),
                    MessageRole::Reply => sink.reply(delivery),
                    MessageRole::Credit => {}
                }
                message.role == MessageRole::Request
            }
        };
        let SlotReplyPort { reply, others, .. } = port;
        if request {
            peer.credits().note_served();
        }
        if let Some(reply) = reply {
            self.send_reply(shared, from, reply);
        }
        for reply in others {
            self.send_reply(shared, from, reply);
        }
        shared.endpoint.receives().give_back(slot);
        // Nothing is owed if a reply carried the count.
        if request && peer.credits().owed() != 0 {
            self.note_owed(rank);
        }
    }

    #[inline]
    fn send_reply(&mut self, shared: &VerbsShared, to: Rank, reply: OutgoingReply) {
        match reply {
            OutgoingReply::Slot(slot, len, immediate) => {
                send_slot(shared, to, slot, len, immediate)
            }
            OutgoingReply::Kept(immediate, bytes) => {
                let backlog = self.backlogs.entry(to.0).or_default();
                backlog.kept.push_back((immediate, bytes));
                if !self.stuck.contains(&to.0) {
                    self.stuck.push(to.0);
                }
            }
        }
    }

    fn note_owed(&mut self, rank: u32) {
        if !self.owing.contains(&rank) {
            self.owing.push(rank);
        }
    }

    /// Sends the kept replies, then handles the requests that waited for them.
    fn resume_stuck(&mut self, shared: &VerbsShared, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        let mut still = Vec::new();
        for rank in std::mem::take(&mut self.stuck) {
            count += self.resume_peer(shared, rank, sink);
            if self.backlogs.get(&rank).is_some_and(PeerBacklog::is_stuck)
                && !self.stuck.contains(&rank)
            {
                still.push(rank);
            }
        }
        self.stuck.append(&mut still);
        count
    }

    fn resume_peer(&mut self, shared: &VerbsShared, rank: u32, sink: &mut dyn Sink) -> usize {
        let here = shared.peers.standings().of(Rank(rank)) == Standing::Present;
        let mut count = 0;
        loop {
            let Some(backlog) = self.backlogs.get_mut(&rank) else {
                return count;
            };
            if !here {
                backlog.kept.clear();
            }
            if !backlog.send_kept(shared, Rank(rank)) {
                return count;
            }
            let Some(message) = backlog.waiting.pop_front() else {
                return count;
            };
            count += 1;
            self.handle(shared, rank, message, sink);
        }
    }

    /// Sends credits to peers: once the inbox was idle for a while, or once a peer may be blocked
    /// without them.
    fn send_credits(&mut self, shared: &VerbsShared) {
        let many = (shared.endpoint.window() / 2).max(1);
        let idle = self.idle;
        self.owing.retain(|rank| {
            let (to, credits) = (Rank(*rank), shared.peers.get(Rank(*rank)).credits());
            let owed = credits.owed();
            if owed == 0 || shared.peers.standings().of(to) != Standing::Present {
                return false;
            }
            let patience = if credits.may_bring_reply() {
                IDLE_EXPECTING_REPLY
            } else {
                IDLE
            };
            if idle < patience && owed < many {
                return true;
            }
            let Some(mut slot) = shared.peers.pool().slots().take() else {
                return true;
            };
            let served = credits.served();
            let bytes = shared.peers.pool().slots().bytes(&mut slot);
            let (immediate, len) = message::encode(MessageRole::Credit, &EMPTY, served, bytes);
            credits.note_credited(served);
            send_slot(shared, to, slot, len, immediate);
            false
        });
    }
}

const EMPTY: Message<'static> = Message {
    kind: 0,
    tag: 0,
    args: &[],
    payload: &[],
};

impl PeerBacklog {
    /// Sends the kept replies in order. Returns whether there were slots for all.
    fn send_kept(&mut self, shared: &VerbsShared, to: Rank) -> bool {
        while let Some((immediate, reply)) = self.kept.front() {
            let Some(mut slot) = shared.peers.pool().slots().take() else {
                return false;
            };
            let (immediate, len) = (*immediate, reply.len());
            shared.peers.pool().slots().bytes(&mut slot)[..len].copy_from_slice(reply);
            self.kept.pop_front();
            send_slot(shared, to, slot, len, immediate);
        }
        true
    }

    fn is_stuck(&self) -> bool {
        !self.kept.is_empty() || !self.waiting.is_empty()
    }
}

/// Sends a filled slot to a peer.
pub(crate) fn send_slot(
    shared: &VerbsShared,
    to: Rank,
    slot: SendSlot,
    len: usize,
    immediate: Immediate,
) {
    let mut connection = shared.peers.get(to).connection().lock();
    if connection.has_ended() {
        shared.peers.pool().slots().give_back(slot);
        return;
    }
    (shared.peers).post_send(to, &mut connection, slot, len, immediate);
}

enum OutgoingReply {
    Slot(SendSlot, usize, Immediate),
    Kept(Immediate, Vec<u8>),
}

/// The reply port of a handler. Replies are sent once the handler has returned.
struct SlotReplyPort<'a> {
    shared: &'a VerbsShared,
    peer: &'a PeerLink,
    reply: Option<OutgoingReply>,
    /// Replies after the first; few handlers send several.
    others: Vec<OutgoingReply>,
}

impl ReplyPort for SlotReplyPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.shared.endpoint.caps().check(message)?;
        // The count includes this request, which is handled before the reply is sent.
        let credits = self.peer.credits();
        let served = credits.served().wrapping_add(1);
        credits.note_credited(served);
        let reply = match self.shared.peers.pool().slots().take() {
            Some(mut slot) => {
                let bytes = self.shared.peers.pool().slots().bytes(&mut slot);
                let (immediate, len) = message::encode(MessageRole::Reply, message, served, bytes);
                OutgoingReply::Slot(slot, len, immediate)
            }
            None => {
                let mut bytes = vec![0; message::MAX_ARGS_BYTES + message.payload.len()];
                let (immediate, len) =
                    message::encode(MessageRole::Reply, message, served, &mut bytes);
                bytes.truncate(len);
                OutgoingReply::Kept(immediate, bytes)
            }
        };
        match self.reply {
            None => self.reply = Some(reply),
            Some(_) => self.others.push(reply),
        }
        Ok(())
    }
}
