//! What arrives, and what it sets off: requests, replies, credits.
//!
//! Nothing here can find its receiver without a buffer. A rank has at most `window` requests
//! unhandled at a peer, and the peer answers each with one message at most, a reply or a credit
//! that stands for several; so twice that many slots house all that one peer can have on its way.

use std::{
    collections::VecDeque,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed},
};

use hydrant_conduit::{Delivery, Error, Message, Rank, ReplyPort, Sink, Standing};
use rustc_hash::FxHashMap;

use crate::{
    ffi,
    lane::{Ended, State, Work},
    message::{self, Sort},
    nic::{QueuePair, blank},
    shared::{Peer, Shared, lock},
    slots::{ReceiveSlot, SendSlot},
};

/// Messages taken at once.
const BATCH: usize = 16;
/// Polls that find nothing before a peer is told by a message of its own how many of its
/// requests were handled: most often there is something else to say before.
const IDLE: u32 = 64;

/// What the thread that polls has of its own.
pub(crate) struct Inbox {
    ended: Vec<Ended>,
    /// Completions taken by a thread that was about to sleep.
    stash: VecDeque<ffi::ibv_wc>,
    talks: FxHashMap<u32, Talk>,
    /// Peers with a talk in which something waits.
    stuck: Vec<u32>,
    /// Peers that do not know yet how many of their requests were handled.
    owing: Vec<u32>,
    /// Polls in a row that found nothing; a thread about to sleep counts for many.
    idle: u32,
}

/// What waits between this rank and a peer.
#[derive(Default)]
struct Talk {
    /// Replies that found no slot to be sent from.
    kept: VecDeque<Vec<u8>>,
    /// Requests that wait until those have left.
    waiting: VecDeque<(ReceiveSlot, usize)>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            ended: Vec::new(),
            stash: VecDeque::new(),
            talks: FxHashMap::default(),
            stuck: Vec::new(),
            owing: Vec::new(),
            idle: 0,
        }
    }

    /// Delivers what has arrived: how many things.
    pub(crate) fn poll(&mut self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        let reaped = shared.reap();
        let retired = shared.take_retired();
        shared.take_ended(&mut self.ended);
        let mut count = self.ended.len();
        for ended in self.ended.drain(..) {
            if let Some((ticket, outcome)) = shared.keep_own(ended) {
                sink.complete(ticket, outcome);
            }
        }
        count += shared.loopback.deliver(shared, sink);
        let mut completions = [blank(); BATCH];
        let arrived = self.take(shared, &mut completions);
        for completion in &completions[..arrived] {
            self.receive(shared, completion, sink);
        }
        count += arrived;
        if !retired.is_empty() {
            self.let_go(shared, retired, arrived == 0);
        }
        if !self.stuck.is_empty() {
            count += self.unstick(shared, sink);
        }
        self.idle = match arrived {
            0 => self.idle.saturating_add(1),
            _ => 0,
        };
        if !self.owing.is_empty() {
            self.tell(shared, self.idle >= IDLE);
        }
        shared.flush();
        if count > 0 || reaped {
            shared.sleepers.arrived();
        }
        count
    }

    /// Looks whether anything has arrived, without delivering it.
    pub(crate) fn has_arrived(&mut self, shared: &Shared) -> bool {
        if self.stash.is_empty() {
            let mut completions = [blank(); BATCH];
            let count = shared.received.poll(&mut completions);
            self.stash.extend(&completions[..count]);
        }
        if self.owing.is_empty() || !shared.roads.slots.any_free() {
            return !self.stash.is_empty();
        }
        self.idle = IDLE;
        true
    }

    /// Queue pairs that retired before messages were last looked for go when none was left.
    fn let_go(&self, shared: &Shared, retired: Vec<QueuePair>, nothing: bool) {
        if !nothing || !self.stash.is_empty() {
            return shared.keep_retired(retired);
        }
        let mut by_pair = shared.by_pair.write().unwrap_or_else(|it| it.into_inner());
        for pair in &retired {
            by_pair.remove(&pair.number);
        }
    }

    /// Sends replies that were kept, as far as there are slots: whether some are left.
    pub(crate) fn send_kept(&mut self, shared: &Shared) -> bool {
        for (rank, talk) in &mut self.talks {
            if !talk.send_kept(shared, Rank(*rank)) {
                return true;
            }
        }
        false
    }

    fn take(&mut self, shared: &Shared, into: &mut [ffi::ibv_wc]) -> usize {
        if self.stash.is_empty() {
            return shared.received.poll(into);
        }
        let count = self.stash.len().min(into.len());
        for (into, completion) in into.iter_mut().zip(self.stash.drain(..count)) {
            *into = completion;
        }
        count
    }

    fn receive(&mut self, shared: &Shared, completion: &ffi::ibv_wc, sink: &mut dyn Sink) {
        let slot = ReceiveSlot(completion.wr_id as u32);
        let from = {
            let by_pair = shared.by_pair.read().unwrap_or_else(|it| it.into_inner());
            by_pair.get(&completion.qp_num).copied()
        };
        let (Some(rank), true) = (from, completion.status == ffi::IBV_WC_SUCCESS) else {
            return shared.receives.give_back(slot);
        };
        let len = completion.byte_len as usize;
        if self.talks.get(&rank).is_some_and(Talk::is_stuck) && is_request(shared, &slot, len) {
            self.talks
                .entry(rank)
                .or_default()
                .waiting
                .push_back((slot, len));
            return;
        }
        self.handle(shared, rank, slot, len, sink);
    }

    /// Hands a message up.
    fn handle(
        &mut self,
        shared: &Shared,
        rank: u32,
        slot: ReceiveSlot,
        len: usize,
        sink: &mut dyn Sink,
    ) {
        let (from, peer) = (Rank(rank), shared.peer(Rank(rank)));
        let bytes = shared.receives.bytes(&slot, len);
        let mut port = Port {
            shared,
            peer,
            replies: Vec::new(),
        };
        let request = match message::decode(bytes) {
            Err(what) => {
                sink.malformed(Error::Malformed { peer: from, what });
                bytes.first() == Some(&(Sort::Request as u8))
            }
            Ok(message) => {
                peer.note_handled(message.handled);
                let delivery = Delivery {
                    from,
                    kind: message.kind,
                    tag: message.tag,
                    args: message.args,
                    payload: message.payload,
                };
                match message.sort {
                    Sort::Request => sink.request(delivery, &mut port),
                    Sort::Reply => sink.reply(delivery),
                    Sort::Credit => {}
                }
                message.sort == Sort::Request
            }
        };
        let replies = port.replies;
        shared.receives.give_back(slot);
        if request {
            peer.done.fetch_add(1, AcqRel);
            self.owe(rank);
        }
        for reply in replies {
            match reply {
                Reply::Slot(slot, len) => send_slot(shared, from, slot, len),
                Reply::Kept(bytes) => {
                    self.talks.entry(rank).or_default().kept.push_back(bytes);
                    if !self.stuck.contains(&rank) {
                        self.stuck.push(rank);
                    }
                }
            }
        }
    }

    fn owe(&mut self, rank: u32) {
        if !self.owing.contains(&rank) {
            self.owing.push(rank);
        }
    }

    /// Sends the replies that were kept, and then handles the requests that waited for that.
    fn unstick(&mut self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        let mut still = Vec::new();
        for rank in std::mem::take(&mut self.stuck) {
            count += self.unstick_one(shared, rank, sink);
            if self.talks.get(&rank).is_some_and(Talk::is_stuck) && !self.stuck.contains(&rank) {
                still.push(rank);
            }
        }
        self.stuck.append(&mut still);
        count
    }

    fn unstick_one(&mut self, shared: &Shared, rank: u32, sink: &mut dyn Sink) -> usize {
        let here = shared.standings.of(Rank(rank)) == Standing::Present;
        let mut count = 0;
        loop {
            let Some(talk) = self.talks.get_mut(&rank) else {
                return count;
            };
            if !here {
                talk.kept.clear();
            }
            if !talk.send_kept(shared, Rank(rank)) {
                return count;
            }
            let Some((slot, len)) = talk.waiting.pop_front() else {
                return count;
            };
            count += 1;
            self.handle(shared, rank, slot, len, sink);
        }
    }

    /// Tells peers how many of their requests were handled: if there was nothing else to do for a
    /// while, else when they might wait for it.
    fn tell(&mut self, shared: &Shared, idle: bool) {
        let many = (shared.window / 2).max(1);
        self.owing.retain(|rank| {
            let (to, peer) = (Rank(*rank), shared.peer(Rank(*rank)));
            let untold = peer
                .done
                .load(Relaxed)
                .wrapping_sub(peer.told.load(Relaxed));
            if untold == 0 || shared.standings.of(to) != Standing::Present {
                return false;
            }
            if !idle && untold < many {
                return true;
            }
            let Some(mut slot) = shared.roads.slots.take() else {
                return true;
            };
            let done = peer.done.load(Relaxed);
            let bytes = shared.roads.slots.bytes(&mut slot);
            let len = message::encode(Sort::Credit, &NOTHING, done, bytes);
            peer.told.store(done, Relaxed);
            send_slot(shared, to, slot, len);
            false
        });
    }
}

const NOTHING: Message<'static> = Message {
    kind: 0,
    tag: 0,
    args: &[],
    payload: &[],
};

impl Talk {
    /// Sends what was kept, in order: whether there were slots for all.
    fn send_kept(&mut self, shared: &Shared, to: Rank) -> bool {
        while let Some(reply) = self.kept.front() {
            let Some(mut slot) = shared.roads.slots.take() else {
                return false;
            };
            let len = reply.len();
            shared.roads.slots.bytes(&mut slot)[..len].copy_from_slice(reply);
            self.kept.pop_front();
            send_slot(shared, to, slot, len);
        }
        true
    }

    fn is_stuck(&self) -> bool {
        !self.kept.is_empty() || !self.waiting.is_empty()
    }
}

fn is_request(shared: &Shared, slot: &ReceiveSlot, len: usize) -> bool {
    shared.receives.bytes(slot, len).first() == Some(&(Sort::Request as u8))
}

/// Sends what was written into a slot.
pub(crate) fn send_slot(shared: &Shared, to: Rank, slot: SendSlot, len: usize) {
    let mut lane = lock(&shared.peer(to).lane);
    if lane.state == State::Ended {
        shared.roads.slots.give_back(slot);
        return;
    }
    let len = len as u32;
    shared.ask(to, &mut lane, Work::Send { slot, len });
}

enum Reply {
    Slot(SendSlot, usize),
    Kept(Vec<u8>),
}

/// Where a handler puts its reply; it leaves when the handler has returned.
struct Port<'a> {
    shared: &'a Shared,
    peer: &'a Peer,
    replies: Vec<Reply>,
}

impl ReplyPort for Port<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.shared.check(message)?;
        // The request is handled by the time this arrives.
        let done = self.peer.done.load(Acquire).wrapping_add(1);
        self.peer.told.store(done, Relaxed);
        self.replies.push(match self.shared.roads.slots.take() {
            Some(mut slot) => {
                let bytes = self.shared.roads.slots.bytes(&mut slot);
                let len = message::encode(Sort::Reply, message, done, bytes);
                Reply::Slot(slot, len)
            }
            None => {
                let mut bytes = vec![0; message::FRONT + message.payload.len()];
                let len = message::encode(Sort::Reply, message, done, &mut bytes);
                bytes.truncate(len);
                Reply::Kept(bytes)
            }
        });
        Ok(())
    }
}
