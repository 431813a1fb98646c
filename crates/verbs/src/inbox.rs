//! What arrives, and what it sets off: requests, replies, credits.
//!
//! Nothing here can find its receiver without a buffer. A rank has at most `window` requests
//! unhandled at a peer, and the peer answers each with one message at most, a reply or a credit
//! that stands for several; so twice that many slots house all that one peer can have on its way,
//! beside one that is read while its reply is already there.

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

/// Messages taken at once.
const BATCH: usize = 16;
/// Polls that find nothing before a peer is sent a message of its own that says how many of its
/// requests were handled: most often there is something else to say before.
const IDLE: u32 = 64;
/// The same where the peer has a request of this rank to handle that it may answer: most often the answer is
/// answered at once, and that carries the number along. A thread about to sleep does not wait for it.
const IDLE_EXPECTING_REPLY: u32 = 16 * IDLE;

/// No queue pair has this number.
const NOBODY: (u32, u32) = (u32::MAX, u32::MAX);

/// What the thread that polls has of its own.
pub(crate) struct VerbsInbox {
    /// Operations that ended, while they are handed up.
    ended: Vec<EndedOperation>,
    /// Completions taken now.
    completions: [ffi::ibv_wc; BATCH],
    /// Completions taken by a thread that was about to sleep.
    stash: VecDeque<ffi::ibv_wc>,
    /// The queue pair that a message came in by last, and its rank.
    last_sender: (u32, u32),
    /// By rank: what waits between this rank and it.
    backlogs: FxHashMap<u32, PeerBacklog>,
    /// Peers with a backlog in which something waits.
    stuck: Vec<u32>,
    /// Peers that do not know yet how many of their requests were handled.
    owing: Vec<u32>,
    /// Polls in a row that found nothing; a thread about to sleep counts for many.
    idle: u32,
}

/// What waits between this rank and a peer.
#[derive(Default)]
struct PeerBacklog {
    /// Replies that found no slot to be sent from.
    kept: VecDeque<(Immediate, Vec<u8>)>,
    /// Requests that wait until those have left.
    waiting: VecDeque<Received>,
}

/// A message as it came.
struct Received {
    /// Where it lies, until it is handled.
    slot: ReceiveSlot,
    /// Bytes of it.
    len: usize,
    /// What came along with it.
    front: Immediate,
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

    /// Delivers what has arrived: how many things.
    pub(crate) fn poll(&mut self, shared: &VerbsShared, sink: &mut dyn Sink) -> usize {
        let retired = shared.incoming.take_retired();
        // First what somebody may be waiting for at the other end.
        let arrived = self.take(shared);
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
        count += (shared.loopback).deliver(&shared.endpoint, &shared.peers, sink);
        if let Some(retired) = retired {
            self.release_retired(shared, retired, arrived == 0);
        }
        if !self.stuck.is_empty() {
            count += self.resume_stuck(shared, sink);
        }
        self.idle = match arrived {
            0 => self.idle.saturating_add(1),
            _ => 0,
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

    /// Looks whether anything has arrived, without delivering it.
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

    /// Queue pairs that retired before messages were last looked for go when none was left.
    fn release_retired(&mut self, shared: &VerbsShared, retired: Vec<QueuePair>, nothing: bool) {
        if !nothing || !self.stash.is_empty() {
            return shared.incoming.put_back_retired(retired);
        }
        shared.incoming.forget(&retired);
        self.last_sender = NOBODY;
    }

    /// Sends replies that were kept, as far as there are slots: whether some are left.
    pub(crate) fn send_kept(&mut self, shared: &VerbsShared) -> bool {
        for (rank, backlog) in &mut self.backlogs {
            if !backlog.send_kept(shared, Rank(*rank)) {
                return true;
            }
        }
        false
    }

    /// Takes what has arrived: how many completions.
    #[inline]
    fn take(&mut self, shared: &VerbsShared) -> usize {
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
            front: Immediate(completion.immediate()),
        };
        if !self.stuck.is_empty()
            && let Some(backlog) = self.backlogs.get_mut(&rank)
            && backlog.is_stuck()
            && message.front.is_request()
        {
            return backlog.waiting.push_back(message);
        }
        self.handle(shared, rank, message, sink);
    }

    /// The rank whose messages come in by a queue pair.
    #[inline]
    fn sender(&mut self, shared: &VerbsShared, pair: u32) -> Option<u32> {
        if self.last_sender.0 == pair {
            return Some(self.last_sender.1);
        }
        let rank = shared.incoming.sender(pair)?;
        self.last_sender = (pair, rank);
        Some(rank)
    }

    /// Hands a message up.
    fn handle(
        &mut self,
        shared: &VerbsShared,
        rank: u32,
        Received { slot, len, front }: Received,
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
        let request = match message::decode(front, bytes) {
            Err(what) => {
                sink.malformed(Error::Malformed { peer: from, what });
                front.is_request()
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
            self.send(shared, from, reply);
        }
        for reply in others {
            self.send(shared, from, reply);
        }
        shared.endpoint.receives().give_back(slot);
        // A reply has carried it.
        if request && peer.credits().owed() != 0 {
            self.note_owed(rank);
        }
    }

    #[inline]
    fn send(&mut self, shared: &VerbsShared, to: Rank, reply: OutgoingReply) {
        match reply {
            OutgoingReply::Slot(slot, len, front) => send_slot(shared, to, slot, len, front),
            OutgoingReply::Kept(front, bytes) => {
                let backlog = self.backlogs.entry(to.0).or_default();
                backlog.kept.push_back((front, bytes));
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

    /// Sends the replies that were kept, and then handles the requests that waited for that.
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

    /// Tells peers how many of their requests were handled: if there was nothing else to do for a
    /// while, else when they might wait for it.
    fn send_credits(&mut self, shared: &VerbsShared) {
        let many = (shared.endpoint.window() / 2).max(1);
        let idle = self.idle;
        self.owing.retain(|rank| {
            let (to, credits) = (Rank(*rank), shared.peers.get(Rank(*rank)).credits());
            let owed = credits.owed();
            if owed == 0 || shared.peers.standings().of(to) != Standing::Present {
                return false;
            }
            let patience = match credits.may_bring_reply() {
                true => IDLE_EXPECTING_REPLY,
                false => IDLE,
            };
            if idle < patience && owed < many {
                return true;
            }
            let Some(mut slot) = shared.peers.pool().slots().take() else {
                return true;
            };
            let served = credits.served();
            let bytes = shared.peers.pool().slots().bytes(&mut slot);
            let (front, len) = message::encode(MessageRole::Credit, &EMPTY, served, bytes);
            credits.note_credited(served);
            send_slot(shared, to, slot, len, front);
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
    /// Sends what was kept, in order: whether there were slots for all.
    fn send_kept(&mut self, shared: &VerbsShared, to: Rank) -> bool {
        while let Some((front, reply)) = self.kept.front() {
            let Some(mut slot) = shared.peers.pool().slots().take() else {
                return false;
            };
            let (front, len) = (*front, reply.len());
            shared.peers.pool().slots().bytes(&mut slot)[..len].copy_from_slice(reply);
            self.kept.pop_front();
            send_slot(shared, to, slot, len, front);
        }
        true
    }

    fn is_stuck(&self) -> bool {
        !self.kept.is_empty() || !self.waiting.is_empty()
    }
}

/// Sends what was written into a slot.
pub(crate) fn send_slot(
    shared: &VerbsShared,
    to: Rank,
    slot: SendSlot,
    len: usize,
    front: Immediate,
) {
    let mut connection = shared.peers.get(to).connection().lock();
    if connection.has_ended() {
        shared.peers.pool().slots().give_back(slot);
        return;
    }
    (shared.peers).post_send(to, &mut connection, slot, len, front);
}

enum OutgoingReply {
    Slot(SendSlot, usize, Immediate),
    Kept(Immediate, Vec<u8>),
}

/// Where a handler puts its reply; it leaves when the handler has returned.
struct SlotReplyPort<'a> {
    shared: &'a VerbsShared,
    peer: &'a PeerLink,
    reply: Option<OutgoingReply>,
    /// After the first: few handlers have several.
    others: Vec<OutgoingReply>,
}

impl ReplyPort for SlotReplyPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.shared.endpoint.caps().check(message)?;
        // The request is handled by the time this arrives.
        let credits = self.peer.credits();
        let served = credits.served().wrapping_add(1);
        credits.note_credited(served);
        let reply = match self.shared.peers.pool().slots().take() {
            Some(mut slot) => {
                let bytes = self.shared.peers.pool().slots().bytes(&mut slot);
                let (front, len) = message::encode(MessageRole::Reply, message, served, bytes);
                OutgoingReply::Slot(slot, len, front)
            }
            None => {
                let mut bytes = vec![0; message::MAX_ARGS_BYTES + message.payload.len()];
                let (front, len) = message::encode(MessageRole::Reply, message, served, &mut bytes);
                bytes.truncate(len);
                OutgoingReply::Kept(front, bytes)
            }
        };
        match self.reply {
            None => self.reply = Some(reply),
            Some(_) => self.others.push(reply),
        }
        Ok(())
    }
}
