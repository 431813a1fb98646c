//! The event loop: messages and transfers pass NICs and links, hosts handle them one by one.
//!
//! The stages are those of the conduit in virtual time, but that a transfer of several packets
//! is one event, its packets evenly behind one another.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use hydrant_pinning::{
    AccessVerdict, Action, Data, Decisions, Direction, Message, OutgoingMessage, RegisteredExtent,
    Run,
};

use super::{Outcome, ScaleError, Setup, latency::Latencies, node::Node, slab::Slab};
use crate::{
    Profile,
    memory::PAGE,
    time::{Time, duration, picos},
};

/// How often progress is told, in events.
const TELL: u64 = 1 << 16;

pub(super) struct Machine<'a> {
    profile: &'a Profile,
    setup: &'a Setup,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<Event>>,
    /// What is on its way.
    transfers: Slab<Transfer>,
    /// What hosts are at.
    chores: Slab<Chore>,
    now: Time,
    sequence: u64,
    latencies: Latencies,
    /// Measured puts.
    puts: u64,
    /// Puts not begun yet, and ranks that wait for one.
    left: u64,
    scratch: Vec<u8>,
    failed: Option<ScaleError>,
}

struct Event {
    at: Time,
    sequence: u64,
    what: What,
}

enum What {
    /// A rank begins its next put.
    Begin(u32),
    /// The head of a transfer arrives at the receiver's link.
    Head(u32),
    /// A transfer is in the receiver's memory.
    Landed(u32),
    /// A rank's NIC knows that its transfer is there.
    Acknowledged(u32),
    /// A host is done with it.
    Registered(u32),
    Deregistered(u32),
}

/// A registration, or the end of one.
struct Chore {
    rank: u32,
    id: u64,
    run: Run,
}

struct Transfer {
    from: u32,
    to: u32,
    bytes: usize,
    /// When its last packet has left the sender's NIC.
    sent: Time,
    payload: Payload,
}

enum Payload {
    Message(Box<Message>),
    /// A transfer that the engine asked for.
    Transfer(u64),
    /// One that passed the engine by.
    Hit,
}

impl<'a> Machine<'a> {
    pub(super) fn new(profile: &'a Profile, setup: &'a Setup) -> Result<Self, ScaleError> {
        let nodes = (0..setup.ranks)
            .map(|rank| Node::new(profile, setup, rank))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            profile,
            setup,
            nodes,
            events: BinaryHeap::new(),
            transfers: Slab::default(),
            chores: Slab::default(),
            now: 0,
            sequence: 0,
            latencies: Latencies::default(),
            puts: 0,
            left: 0,
            scratch: Vec::new(),
            failed: None,
        })
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Result<Outcome, ScaleError> {
        let each = u64::from(self.setup.puts + self.setup.warm_up);
        for rank in 0..self.setup.ranks {
            if let Some(start) = self.nodes[rank as usize].start() {
                self.left += each;
                self.at(start, What::Begin(rank));
            }
        }
        let all = self.left.max(1);
        let mut events = 0;
        while let Some(Reverse(event)) = self.events.pop() {
            self.now = event.at;
            self.happen(event.what);
            if let Some(failed) = self.failed.take() {
                return Err(failed);
            }
            events += 1;
            if events % TELL == 0 {
                progress(1.0 - self.left as f64 / all as f64);
            }
        }
        self.stuck()?;
        Ok(self.outcome(events))
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Begin(rank) => self.begin(rank),
            What::Head(transfer) => self.arrive(transfer),
            What::Landed(transfer) => self.land(transfer),
            What::Acknowledged(transfer) => self.complete(transfer),
            What::Registered(chore) => self.registered(chore),
            What::Deregistered(chore) => self.deregistered(chore),
        }
    }

    fn registered(&mut self, chore: u32) {
        let Some(Chore { rank, id, run }) = self.chores.take(chore) else {
            return;
        };
        let node = &mut self.nodes[rank as usize];
        node.keys += 1;
        let registered = RegisteredExtent {
            run,
            key: node.keys,
            writable: true,
        };
        let mut out = Decisions::default();
        node.engine.registered(id, Ok(registered), &mut out);
        self.act(rank, out);
    }

    fn deregistered(&mut self, chore: u32) {
        let Some(Chore { rank, id, run }) = self.chores.take(chore) else {
            return;
        };
        let bytes = self.bytes(run);
        let node = &mut self.nodes[rank as usize];
        node.registered -= bytes;
        let mut out = Decisions::default();
        node.engine.deregistered(id, &mut out);
        self.act(rank, out);
    }

    /// A rank begins its next put: past the engine if both sides are there.
    fn begin(&mut self, rank: u32) {
        let (host, setup, now) = (self.profile.host(), self.setup, self.now);
        let node = &mut self.nodes[rank as usize];
        let began = node.host.max(now);
        let Some(put) = node.next_put(setup, rank, began) else {
            return;
        };
        self.left -= 1;
        node.host = began + host.lookup.0;
        let measured = node.is_measured(setup);
        self.puts += u64::from(measured);
        let mut out = Decisions::default();
        let hit = node
            .hot
            .hit(put.peer, put.remote, put.local, put.len, Direction::Put)
            .map(|hit| hit.keep());
        let there = if let Some(hit) = hit {
            if let Some(under_way) = &mut node.under_way {
                under_way.hit = Some(hit);
            }
            true
        } else {
            let before = node.engine.stats().remote_hits;
            if let Err(cause) = node.engine.begin(put, &mut out) {
                self.failed = Some(cause.into());
                return;
            }
            node.engine.stats().remote_hits > before
        };
        node.hits += u64::from(there && measured);
        if hit.is_some() {
            node.host += host.post.0;
            self.launch(rank, put.peer, put.len as usize, Payload::Hit);
        }
        self.act(rank, out);
    }

    /// Does what an engine says, on its host's time.
    fn act(&mut self, rank: u32, decided: Decisions) {
        let host = self.profile.host();
        let at = rank as usize;
        self.nodes[at].host = self.nodes[at].host.max(self.now);
        // First of all, as a rank of a job does: peers work while this one registers.
        for OutgoingMessage {
            to, message, data, ..
        } in decided.messages
        {
            self.scratch.clear();
            message.encode(&mut self.scratch);
            let bytes = self.scratch.len() + length(data);
            self.nodes[at].host += host.send.0 + host.copying(bytes);
            self.launch(rank, to, bytes, Payload::Message(Box::new(message)));
        }
        for action in decided.actions {
            match action {
                Action::Register { id, preferred, .. } => self.register(rank, id, preferred),
                Action::Deregister { id, run, .. } => {
                    let registration = self.profile.registration();
                    let pages = self.bytes(run) as usize / PAGE;
                    let node = &mut self.nodes[at];
                    node.host +=
                        registration.deregister_op.0 + registration.deregister_page.times(pages);
                    let done = node.host;
                    let chore = self.chores.put(Chore { rank, id, run });
                    self.at(done, What::Deregistered(chore));
                }
                Action::Transfer { id, peer, len, .. } => {
                    self.nodes[at].host += host.post.0;
                    self.launch(rank, peer, len as usize, Payload::Transfer(id));
                }
                // Receiving the message was the copy.
                Action::Land { .. } => {}
                Action::Done { result, .. } => match result {
                    Ok(()) => self.end_put(rank),
                    Err(cause) => self.failed = Some(ScaleError::Put { rank, cause }),
                },
                // Nothing is pinned here, and nothing taken back.
                Action::Pinned { .. } | Action::Revoked { .. } => {}
            }
        }
    }

    fn register(&mut self, rank: u32, id: u64, run: Run) {
        let registration = self.profile.registration();
        let bytes = self.bytes(run);
        let limit = self.setup.m + self.setup.maxvictim;
        let node = &mut self.nodes[rank as usize];
        node.host +=
            registration.register_op.0 + registration.register_page.times(bytes as usize / PAGE);
        node.register(bytes);
        if node.registered > limit {
            let registered = node.registered;
            self.failed = Some(ScaleError::PastLimit {
                rank,
                registered,
                limit,
            });
            return;
        }
        let done = node.host;
        let chore = self.chores.put(Chore { rank, id, run });
        self.at(done, What::Registered(chore));
    }

    /// The NIC of a rank takes up what its host has posted.
    fn launch(&mut self, from: u32, to: u32, bytes: usize, payload: Payload) {
        let (nic, link) = (self.profile.nic(), self.profile.link());
        let first = bytes.min(nic.mtu as usize);
        let step = |bytes| self.step(bytes, !matches!(payload, Payload::Message(_)));
        let (one, all) = (step(first), step(bytes));
        let node = &mut self.nodes[from as usize];
        let started = node.host.max(node.sending) + nic.send.0;
        node.sending = started + all;
        let left = (started + one).max(node.outward);
        node.outward = left + link.bandwidth.of(bytes);
        let sent = node.sending;
        let number = self.transfers.put(Transfer {
            from,
            to,
            bytes,
            sent,
            payload,
        });
        self.at(left + link.latency.0, What::Head(number));
    }

    fn arrive(&mut self, number: u32) {
        let Some(transfer) = self.transfers.get(number) else {
            return;
        };
        let (nic, link) = (self.profile.nic(), self.profile.link());
        let last = transfer.bytes.min(nic.mtu as usize);
        let data = !matches!(transfer.payload, Payload::Message(_));
        let (one, all) = (self.step(last, data), self.step(transfer.bytes, data));
        let tail = transfer.sent + link.latency.0 + link.bandwidth.of(last);
        let node = &mut self.nodes[transfer.to as usize];
        let arrived = (self.now.max(node.inward) + link.bandwidth.of(transfer.bytes)).max(tail);
        node.inward = arrived;
        let done = (arrived + one).max(node.receiving + all) + nic.receive.0;
        node.receiving = done;
        self.at(done, What::Landed(number));
    }

    fn land(&mut self, number: u32) {
        let (nic, link) = (self.profile.nic(), self.profile.link());
        let Some(transfer) = self.transfers.get(number) else {
            return;
        };
        if !matches!(transfer.payload, Payload::Message(_)) {
            let known = self.now + link.latency.0 + nic.ack.0;
            self.at(known, What::Acknowledged(number));
            return;
        }
        if let Some(Transfer {
            from,
            to,
            bytes,
            payload: Payload::Message(message),
            ..
        }) = self.transfers.take(number)
        {
            let host = self.profile.host();
            let node = &mut self.nodes[to as usize];
            node.host =
                node.host.max(self.now) + host.receive.0 + host.copying(bytes) + host.handler.0;
            let mut out = Decisions::default();
            if let Err(cause) = node
                .engine
                .message(from, *message, AccessVerdict::Fine, &mut out)
            {
                self.failed = Some(cause.into());
            }
            self.act(to, out);
        }
    }

    /// A rank sees that its transfer is complete.
    fn complete(&mut self, number: u32) {
        let Some(transfer) = self.transfers.take(number) else {
            return;
        };
        let rank = transfer.from;
        let node = &mut self.nodes[rank as usize];
        node.host = node.host.max(self.now) + self.profile.host().completion.0;
        let mut out = Decisions::default();
        match transfer.payload {
            Payload::Transfer(id) => node.engine.transferred(id, Ok(()), &mut out),
            _ => {
                if let Some(hit) = node.under_way.as_ref().and_then(|put| put.hit)
                    && node.hot.release_kept(&hit)
                {
                    node.engine.released(&hit, &mut out);
                }
                self.end_put(rank);
            }
        }
        self.act(rank, out);
    }

    fn end_put(&mut self, rank: u32) {
        let node = &mut self.nodes[rank as usize];
        let now = node.host;
        node.end_put(self.setup, now, &mut self.latencies);
        self.at(now + picos(self.setup.pause), What::Begin(rank));
    }

    /// How long a NIC has to do with so many bytes, packet by packet.
    fn step(&self, bytes: usize, data: bool) -> Time {
        let nic = self.profile.nic();
        let packets = bytes.div_ceil(nic.mtu as usize).max(1);
        let pages = if data { bytes.div_ceil(PAGE) } else { 0 };
        nic.packet.times(packets) + nic.bandwidth.of(bytes) + nic.translate.times(pages)
    }

    fn at(&mut self, at: Time, what: What) {
        self.sequence += 1;
        self.events.push(Reverse(Event {
            at,
            sequence: self.sequence,
            what,
        }));
    }

    fn bytes(&self, run: Run) -> u64 {
        run.count * self.setup.bucket as u64
    }

    fn stuck(&self) -> Result<(), ScaleError> {
        let waits = |node: &&Node| node.under_way.is_some();
        let stuck = self.nodes.iter().filter(waits).count() as u32;
        match self.nodes.iter().position(|node| waits(&node)) {
            Some(first) => Err(ScaleError::Stuck {
                stuck,
                ranks: self.setup.ranks,
                first: first as u32,
            }),
            None => Ok(()),
        }
    }

    fn outcome(&self, events: u64) -> Outcome {
        let sum = |of: &dyn Fn(&Node) -> u64| self.nodes.iter().map(of).sum::<u64>();
        let peak = self.nodes.iter().map(|node| node.registered_peak).max();
        let stats = |node: &Node| node.engine.stats();
        Outcome {
            puts: self.puts,
            hits: sum(&|node| node.hits),
            moves: sum(&|node| node.measured().0),
            stalls: sum(&|node| node.measured().1),
            lent: sum(&|node| stats(node).lent),
            registrations: sum(&|node| stats(node).local.registrations),
            deregistrations: sum(&|node| stats(node).local.deregistrations),
            mean: duration(self.latencies.mean()),
            p99: duration(self.latencies.percentile(99)),
            longest: duration(self.latencies.longest()),
            registered_peak: peak.unwrap_or(0),
            registered_mean: sum(&|node| node.registered) / u64::from(self.setup.ranks),
            time: duration(self.now),
            events,
        }
    }
}

fn length(data: Data) -> usize {
    match data {
        Data::None => 0,
        Data::Own { len, .. } | Data::Asked { len, .. } => len as usize,
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
