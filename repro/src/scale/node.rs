//! A rank: its engine, its host, its NIC, and its put in flight.

use std::sync::Arc;

use hydrant_base::Random;
use hydrant_pinning::{
    Config, CostModel, Direction, Engine, EngineOperation, Hot, KeptHit, OwnMemory, RegionNumber,
    Strategy,
};

use super::{Moment, PAGE, ScaleError, ScaleSetup, latency::Latencies, traffic::random_of};
use hydrant_sim::Profile;

/// The start of the memory that is put to; each peer has its own stretch there.
const TARGETS: u64 = 1 << 40;
/// The start of the memory that is put from.
const SOURCE: u64 = 1 << 32;
/// All ranks begin within this time.
const STAGGER: u64 = 50_000_000;

pub(super) struct Node {
    pub(super) engine: Engine,
    pub(super) hot: Arc<Hot>,
    /// The time at which the host is free.
    pub(super) host: Moment,
    /// The times at which the stages of the NIC and the link are free.
    pub(super) sending: Moment,
    pub(super) outward: Moment,
    pub(super) inward: Moment,
    pub(super) receiving: Moment,
    pub(super) registered: u64,
    pub(super) registered_peak: u64,
    pub(super) keys: u64,
    pub(super) in_flight: Option<Put>,
    peers: Vec<u32>,
    random: Random,
    /// Puts begun.
    begun: u32,
    /// Moves sent and stalls counted during the warm-up.
    before: (u64, u64),
    pub(super) hits: u64,
}

/// A rank's put in flight.
pub(super) struct Put {
    began: Moment,
    /// The references that the put holds, if it was a hit.
    pub(super) hit: Option<KeptHit>,
}

impl Node {
    pub(super) fn new(
        profile: &Profile,
        setup: &ScaleSetup,
        rank: u32,
    ) -> Result<Self, ScaleError> {
        let registration = profile.registration();
        let engine = Engine::new(Config {
            rank,
            ranks: setup.ranks,
            strategy: Strategy::Firehose,
            page: PAGE,
            bucket: setup.bucket,
            m: setup.m,
            maxvictim: setup.maxvictim,
            available: profile.nic().max_bytes,
            adaptive_victims: setup.adaptive_victims,
            borrowing: setup.borrowing,
            widening: true,
            entries: profile.nic().max_extents.unwrap_or(u64::MAX),
            max_extent: profile.nic().max_bytes,
            chunk: profile.nic().max_bytes,
            cost: CostModel {
                per_op_ns: registration.register_op.as_ns(),
                per_page_ns: registration.register_page.as_ns(),
            },
            register: CostModel {
                per_op_ns: registration.register_op.as_ns(),
                per_page_ns: registration.register_page.as_ns(),
            },
            piggyback: setup.piggyback,
            max_payload: profile.message().max_payload as usize,
            reads: profile.nic().reads,
        })?;
        let mut random = random_of(setup.seed, rank);
        Ok(Self {
            hot: Arc::clone(engine.hot()),
            engine,
            host: 0,
            sending: 0,
            outward: 0,
            inward: 0,
            receiving: 0,
            registered: 0,
            registered_peak: 0,
            keys: 0,
            in_flight: None,
            peers: setup.traffic.peers(rank, setup.ranks, &mut random),
            random,
            begun: 0,
            before: (0, 0),
            hits: 0,
        })
    }

    /// The time of the first put, if the rank puts anything.
    pub(super) fn start(&mut self) -> Option<Moment> {
        let start = self.random.word_below(STAGGER);
        (!self.peers.is_empty()).then_some(start)
    }

    /// Counts bytes that are registered from now on.
    pub(super) fn register(&mut self, bytes: u64) {
        self.registered += bytes;
        self.registered_peak = self.registered_peak.max(self.registered);
    }

    /// The next put; `None` when all are done.
    pub(super) fn next_put(
        &mut self,
        setup: &ScaleSetup,
        rank: u32,
        now: Moment,
    ) -> Option<EngineOperation> {
        if self.begun == setup.warm_up {
            self.before = self.counts();
        }
        if self.begun == setup.warm_up + setup.puts {
            return None;
        }
        self.begun += 1;
        let len = u64::from(setup.bytes);
        let mut place = |within: u64| self.random.word_below(within / len) * len;
        let (remote, local) = (place(setup.area), place(setup.source));
        let stretch = setup.area.next_multiple_of(setup.bucket as u64);
        let peer = setup.traffic.choose(self.peers.len(), &mut self.random);
        self.in_flight = Some(Put {
            began: now,
            hit: None,
        });
        Some(EngineOperation {
            id: u64::from(self.begun),
            peer: self.peers[peer],
            direction: Direction::Put,
            local: SOURCE + local,
            region: RegionNumber::default(),
            remote: TARGETS + u64::from(rank) * stretch + remote,
            len,
            own: OwnMemory::Persistent,
            copied: false,
        })
    }

    /// True if the put that was begun last counts.
    pub(super) fn is_measured(&self, setup: &ScaleSetup) -> bool {
        self.begun > setup.warm_up
    }

    /// Ends the put in flight.
    pub(super) fn end_put(&mut self, setup: &ScaleSetup, now: Moment, latencies: &mut Latencies) {
        if let Some(put) = self.in_flight.take()
            && self.is_measured(setup)
        {
            latencies.add(now - put.began);
        }
    }

    /// Moves sent and puts that stalled, after the warm-up.
    pub(super) fn measured(&self) -> (u64, u64) {
        let (moves, stalls) = self.counts();
        (moves - self.before.0, stalls - self.before.1)
    }

    fn counts(&self) -> (u64, u64) {
        let stats = self.engine.stats();
        (stats.moves, stats.stalls + stats.local.stalls)
    }
}
