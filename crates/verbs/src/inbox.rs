//! What arrives, and what it sets off: requests, replies, credits.
//!
//! Nothing here can find its receiver without a buffer. A rank has at most `window` requests
//! unhandled at a peer, and the peer answers each with one message at most, a reply or a credit
//! that stands for several; so twice that many slots house all that one peer can have on its way,
//! beside one that is read while its reply is already there.

use std::{
    collections::VecDeque,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed},
};

use hydrant_conduit::{Delivery, Error, Message, Rank, ReplyPort, Sink, Standing};
use rustc_hash::FxHashMap;

use crate::{
    ffi,
    lane::{Ended, State, Work},
    message::{self, Front, Sort},
    nic::{QueuePair, blank},
    shared::{Peer, Shared},
    slots::{ReceiveSlot, SendSlot},
};

/// Slots that house what one peer can have on its way.
pub(crate) fn slots_for(window: u32) -> u32 {
    2 * window + 1
}

/// Messages taken at once.
const BATCH: usize = 16;
/// Polls that find nothing before a peer is told by a message of its own how many of its
/// requests were handled: most often there is something else to say before.
const IDLE: u32 = 64;

/// No queue pair has this number.
const NOBODY: (u32, u32) = (u32::MAX, u32::MAX);

/// What the thread that polls has of its own.
pub(crate) struct Inbox {
    ended: Vec<Ended>,
    /// Completions taken now.
    completions: [ffi::ibv_wc; BATCH],
    /// Completions taken by a thread that was about to sleep.
    stash: VecDeque<ffi::ibv_wc>,
    /// The queue pair that a message came in by last, and its rank.
    last: (u32, u32),
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
    kept: VecDeque<(Front, Vec<u8>)>,
    /// Requests that wait until those have left.
    waiting: VecDeque<Letter>,
}

/// A message as it came.
struct Letter {
    slot: ReceiveSlot,
    len: usize,
    front: Front,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            ended: Vec::new(),
            completions: [blank(); BATCH],
            stash: VecDeque::new(),
            last: NOBODY,
            talks: FxHashMap::default(),
            stuck: Vec::new(),
            owing: Vec::new(),
            idle: 0,
        }
    }

    /// Delivers what has arrived: how many things.
    pub(crate) fn poll(&mut self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        let retired = shared.take_retired();
        // First what somebody may be waiting for at the other end.
        let arrived = self.take(shared);
        for index in 0..arrived {
            let completion = self.completions[index];
            self.receive(shared, &completion, sink);
        }
        let reaped = shared.reap();
        shared.take_ended(&mut self.ended);
        let mut count = arrived + self.ended.len();
        for ended in self.ended.drain(..) {
            if let Some((ticket, outcome)) = shared.keep_own(ended) {
                sink.complete(ticket, outcome);
            }
        }
        count += shared.loopback.deliver(shared, sink);
        if let Some(retired) = retired {
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
            let count = shared.received.poll(&mut self.completions);
            self.stash.extend(&self.completions[..count]);
        }
        if self.owing.is_empty() || !shared.roads.slots.any_free() {
            return !self.stash.is_empty();
        }
        self.idle = IDLE;
        true
    }

    /// Queue pairs that retired before messages were last looked for go when none was left.
    fn let_go(&mut self, shared: &Shared, retired: Vec<QueuePair>, nothing: bool) {
        if !nothing || !self.stash.is_empty() {
            return shared.keep_retired(retired);
        }
        let mut by_pair = shared.by_pair.write();
        for pair in &retired {
            by_pair.remove(&pair.number);
        }
        self.last = NOBODY;
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

    /// Takes what has arrived: how many completions.
    #[inline]
    fn take(&mut self, shared: &Shared) -> usize {
        if self.stash.is_empty() {
            return shared.received.poll(&mut self.completions);
        }
        let count = self.stash.len().min(BATCH);
        for (into, completion) in self.completions.iter_mut().zip(self.stash.drain(..count)) {
            *into = completion;
        }
        count
    }

    fn receive(&mut self, shared: &Shared, completion: &ffi::ibv_wc, sink: &mut dyn Sink) {
        let slot = ReceiveSlot(completion.wr_id as u32);
        let from = self.sender(shared, completion.qp_num);
        let (Some(rank), true) = (from, completion.status == ffi::IBV_WC_SUCCESS) else {
            return shared.receives.give_back(slot);
        };
        let letter = Letter {
            slot,
            len: completion.byte_len as usize,
            front: Front(completion.immediate()),
        };
        if !self.stuck.is_empty()
            && let Some(talk) = self.talks.get_mut(&rank)
            && talk.is_stuck()
            && letter.front.is_request()
        {
            return talk.waiting.push_back(letter);
        }
        self.handle(shared, rank, letter, sink);
    }

    /// The rank whose messages come in by a queue pair.
    #[inline]
    fn sender(&mut self, shared: &Shared, pair: u32) -> Option<u32> {
        if self.last.0 == pair {
            return Some(self.last.1);
        }
        let rank = shared.by_pair.read().get(&pair).copied()?;
        self.last = (pair, rank);
        Some(rank)
    }

    /// Hands a message up.
    fn handle(
        &mut self,
        shared: &Shared,
        rank: u32,
        Letter { slot, len, front }: Letter,
        sink: &mut dyn Sink,
    ) {
        let (from, peer) = (Rank(rank), shared.peer(Rank(rank)));
        let bytes = shared.receives.bytes(&slot, len);
        let mut port = Port {
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
        let Port { reply, others, .. } = port;
        if request {
            peer.done.fetch_add(1, AcqRel);
        }
        if let Some(reply) = reply {
            self.send(shared, from, reply);
        }
        for reply in others {
            self.send(shared, from, reply);
        }
        shared.receives.give_back(slot);
        // A reply has told it.
        if request && peer.done.load(Relaxed) != peer.told.load(Relaxed) {
            self.owe(rank);
        }
    }

    #[inline]
    fn send(&mut self, shared: &Shared, to: Rank, reply: Reply) {
        match reply {
            Reply::Slot(slot, len, front) => send_slot(shared, to, slot, len, front),
            Reply::Kept(front, bytes) => {
                let talk = self.talks.entry(to.0).or_default();
                talk.kept.push_back((front, bytes));
                if !self.stuck.contains(&to.0) {
                    self.stuck.push(to.0);
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
            let Some(letter) = talk.waiting.pop_front() else {
                return count;
            };
            count += 1;
            self.handle(shared, rank, letter, sink);
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
            let (front, len) = message::encode(Sort::Credit, &NOTHING, done, bytes);
            peer.told.store(done, Relaxed);
            send_slot(shared, to, slot, len, front);
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
        while let Some((front, reply)) = self.kept.front() {
            let Some(mut slot) = shared.roads.slots.take() else {
                return false;
            };
            let (front, len) = (*front, reply.len());
            shared.roads.slots.bytes(&mut slot)[..len].copy_from_slice(reply);
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
pub(crate) fn send_slot(shared: &Shared, to: Rank, slot: SendSlot, len: usize, front: Front) {
    let mut lane = shared.peer(to).lane.lock();
    if lane.state == State::Ended {
        shared.roads.slots.give_back(slot);
        return;
    }
    let len = len as u32;
    shared.ask(to, &mut lane, Work::Send { slot, len, front });
}

enum Reply {
    Slot(SendSlot, usize, Front),
    Kept(Front, Vec<u8>),
}

/// Where a handler puts its reply; it leaves when the handler has returned.
struct Port<'a> {
    shared: &'a Shared,
    peer: &'a Peer,
    reply: Option<Reply>,
    /// After the first: few handlers have several.
    others: Vec<Reply>,
}

impl ReplyPort for Port<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.shared.caps.check(message)?;
        // The request is handled by the time this arrives.
        let done = self.peer.done.load(Acquire).wrapping_add(1);
        self.peer.told.store(done, Relaxed);
        let reply = match self.shared.roads.slots.take() {
            Some(mut slot) => {
                let bytes = self.shared.roads.slots.bytes(&mut slot);
                let (front, len) = message::encode(Sort::Reply, message, done, bytes);
                Reply::Slot(slot, len, front)
            }
            None => {
                let mut bytes = vec![0; message::FRONT + message.payload.len()];
                let (front, len) = message::encode(Sort::Reply, message, done, &mut bytes);
                bytes.truncate(len);
                Reply::Kept(front, bytes)
            }
        };
        match self.reply {
            None => self.reply = Some(reply),
            Some(_) => self.others.push(reply),
        }
        Ok(())
    }
}
