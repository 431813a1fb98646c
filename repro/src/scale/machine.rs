//! The event loop: messages and transfers pass NICs and links, and hosts handle them one by one.
//!
//! The stages are those of the conduit in virtual time. Here, however, a transfer of several
//! packets is one event, and its packets follow each other evenly.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use hydrant_pinning::{
    AccessVerdict, Action, Data, Decisions, Direction, EngineMessage, OutgoingMessage,
    RegisteredExtent, Run,
};

use hydrant_sim::Profile;

use super::{
    Moment, PAGE, ScaleError, ScaleOutcome, ScaleSetup, duration, latency::Latencies, node::Node,
    picos, slab::Slab,
};

/// Events between two reports of progress.
const TELL: u64 = 1 << 16;

pub(super) struct ScaleMachine<'a> {
    profile: &'a Profile,
    setup: &'a ScaleSetup,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<ScaleEvent>>,
    /// Transfers in flight.
    transfers: Slab<ScaleTransfer>,
    /// Registrations and deregistrations in progress on hosts.
    chores: Slab<Chore>,
    now: Moment,
    sequence: u64,
    latencies: Latencies,
    /// Measured puts.
    puts: u64,
    /// Puts not begun yet, of all ranks.
    left: u64,
    scratch: Vec<u8>,
    failed: Option<ScaleError>,
}

struct ScaleEvent {
    at: Moment,
    sequence: u64,
    kind: EventKind,
}

enum EventKind {
    /// A rank begins its next put.
    Begin(u32),
    /// The head of a transfer arrives at the receiver's link.
    Head(u32),
    /// A transfer is in the receiver's memory.
    Landed(u32),
    /// The initiator's NIC knows that its transfer has landed.
    Acknowledged(u32),
    /// A host has finished a registration.
    Registered(u32),
    /// A host has finished a deregistration.
    Deregistered(u32),
}

/// A registration or a deregistration.
struct Chore {
    rank: u32,
    id: u64,
    run: Run,
}

struct ScaleTransfer {
    from: u32,
    to: u32,
    bytes: usize,
    /// The time at which its last packet has left the sender's NIC.
    sent: Moment,
    payload: ScalePayload,
}

enum ScalePayload {
    Message(Box<EngineMessage>),
    /// A transfer that the engine asked for.
    Transfer(u64),
    /// A transfer of a hit, which bypassed the engine.
    Hit,
}

impl<'a> ScaleMachine<'a> {
    pub(super) fn new(profile: &'a Profile, setup: &'a ScaleSetup) -> Result<Self, ScaleError> {
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

    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Result<ScaleOutcome, ScaleError> {
        let each = u64::from(self.setup.puts + self.setup.warm_up);
        for rank in 0..self.setup.ranks {
            if let Some(start) = self.nodes[rank as usize].start() {
                self.left += each;
                self.at(start, EventKind::Begin(rank));
            }
        }
        let all = self.left.max(1);
        let mut events = 0;
        while let Some(Reverse(event)) = self.events.pop() {
            self.now = event.at;
            self.process_event(event.kind);
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

    fn process_event(&mut self, kind: EventKind) {
        match kind {
            EventKind::Begin(rank) => self.begin(rank),
            EventKind::Head(transfer) => self.arrive(transfer),
            EventKind::Landed(transfer) => self.land(transfer),
            EventKind::Acknowledged(transfer) => self.complete(transfer),
            EventKind::Registered(chore) => self.registered(chore),
            EventKind::Deregistered(chore) => self.deregistered(chore),
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

    /// Begins a rank's next put; a hit on both sides bypasses the engine.
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
            if let Some(in_flight) = &mut node.in_flight {
                in_flight.hit = Some(hit);
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
            self.launch(rank, put.peer, put.len as usize, ScalePayload::Hit);
        }
        self.act(rank, out);
    }

    /// Carries out an engine's decisions, on its host's time.
    fn act(&mut self, rank: u32, decided: Decisions) {
        let host = self.profile.host();
        let at = rank as usize;
        self.nodes[at].host = self.nodes[at].host.max(self.now);
        // Messages go first, as in a real job: peers work while this rank registers.
        for OutgoingMessage {
            to, message, data, ..
        } in decided.messages
        {
            self.scratch.clear();
            message.encode(&mut self.scratch);
            let bytes = self.scratch.len() + length(data);
            self.nodes[at].host += host.send.0 + host.copying(bytes);
            self.launch(rank, to, bytes, ScalePayload::Message(Box::new(message)));
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
                    self.at(done, EventKind::Deregistered(chore));
                }
                Action::Transfer { id, peer, len, .. } => {
                    self.nodes[at].host += host.post.0;
                    self.launch(rank, peer, len as usize, ScalePayload::Transfer(id));
                }
                // The receive already copied the data.
                Action::Land { .. } => {}
                Action::Done { result, .. } => match result {
                    Ok(()) => self.end_put(rank),
                    Err(cause) => self.failed = Some(ScaleError::Put { rank, cause }),
                },
                // Nothing is pinned here, and nothing is revoked.
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
        self.at(done, EventKind::Registered(chore));
    }

    /// The NIC of a rank takes up kind its host has posted.
    fn launch(&mut self, from: u32, to: u32, bytes: usize, payload: ScalePayload) {
        let (nic, link) = (self.profile.nic(), self.profile.link());
        let first = bytes.min(nic.mtu as usize);
        let step = |bytes| self.step(bytes, !matches!(payload, ScalePayload::Message(_)));
        let (one, all) = (step(first), step(bytes));
        let node = &mut self.nodes[from as usize];
        let started = node.host.max(node.sending) + nic.send.0;
        node.sending = started + all;
        let left = (started + one).max(node.outward);
        node.outward = left + link.bandwidth.of(bytes);
        let sent = node.sending;
        let number = self.transfers.put(ScaleTransfer {
            from,
            to,
            bytes,
            sent,
            payload,
        });
        self.at(left + link.latency.0, EventKind::Head(number));
    }

    fn arrive(&mut self, number: u32) {
        let Some(transfer) = self.transfers.get(number) else {
            return;
        };
        let (nic, link) = (self.profile.nic(), self.profile.link());
        let last = transfer.bytes.min(nic.mtu as usize);
        let data = !matches!(transfer.payload, ScalePayload::Message(_));
        let (one, all) = (self.step(last, data), self.step(transfer.bytes, data));
        let tail = transfer.sent + link.latency.0 + link.bandwidth.of(last);
        let node = &mut self.nodes[transfer.to as usize];
        let arrived = (self.now.max(node.inward) + link.bandwidth.of(transfer.bytes)).max(tail);
        node.inward = arrived;
        let done = (arrived + one).max(node.receiving + all) + nic.receive.0;
        node.receiving = done;
        self.at(done, EventKind::Landed(number));
    }

    fn land(&mut self, number: u32) {
        let (nic, link) = (self.profile.nic(), self.profile.link());
        let Some(transfer) = self.transfers.get(number) else {
            return;
        };
        if !matches!(transfer.payload, ScalePayload::Message(_)) {
            let known = self.now + link.latency.0 + nic.ack.0;
            self.at(known, EventKind::Acknowledged(number));
            return;
        }
        if let Some(ScaleTransfer {
            from,
            to,
            bytes,
            payload: ScalePayload::Message(message),
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
            ScalePayload::Transfer(id) => node.engine.transferred(id, Ok(()), &mut out),
            _ => {
                if let Some(hit) = node.in_flight.as_ref().and_then(|put| put.hit)
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
        self.at(now + picos(self.setup.pause), EventKind::Begin(rank));
    }

    /// The time that a NIC takes for `bytes`, packet by packet.
    fn step(&self, bytes: usize, data: bool) -> Moment {
        let nic = self.profile.nic();
        let packets = bytes.div_ceil(nic.mtu as usize).max(1);
        let pages = if data { bytes.div_ceil(PAGE) } else { 0 };
        nic.packet.times(packets) + nic.bandwidth.of(bytes) + nic.translate.times(pages)
    }

    fn at(&mut self, at: Moment, kind: EventKind) {
        self.sequence += 1;
        self.events.push(Reverse(ScaleEvent {
            at,
            sequence: self.sequence,
            kind,
        }));
    }

    fn bytes(&self, run: Run) -> u64 {
        run.count * self.setup.bucket as u64
    }

    fn stuck(&self) -> Result<(), ScaleError> {
        let waits = |node: &&Node| node.in_flight.is_some();
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

    fn outcome(&self, events: u64) -> ScaleOutcome {
        let sum = |of: &dyn Fn(&Node) -> u64| self.nodes.iter().map(of).sum::<u64>();
        let peak = self.nodes.iter().map(|node| node.registered_peak).max();
        let stats = |node: &Node| node.engine.stats();
        ScaleOutcome {
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

impl PartialEq for ScaleEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for ScaleEvent {}

impl PartialOrd for ScaleEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScaleEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
