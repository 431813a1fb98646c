//! A naive world of ranks around real engines. Memory is arrays of bytes, the NIC is a list of
//! keys, and the network is queues of bytes. Events happen in any order. The world carries out the
//! engines' decisions, checks at every step that they are allowed, and knows the bytes that memory
//! must hold.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod begin;
pub(crate) mod check;
pub(crate) mod drive;
pub(crate) mod helper;
pub(crate) mod hostile;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod model;
pub(crate) mod network;
pub(crate) mod nic;
pub(crate) mod owner;
pub(crate) mod perform;
pub(crate) mod plan;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use hydrant_base::Random;
use hydrant_pinning::{Direction, Engine, Error, KeptHit, Run};

use memory::ModelMemory;
use model::Book;
use nic::ModelNic;
use plan::WorldPlan;

/// A rank: an engine and its surroundings.
pub(crate) struct WorldRank {
    pub(crate) engine: Engine,
    pub(crate) memory: ModelMemory,
    pub(crate) nic: ModelNic,
    pub(crate) hits: Vec<KeptHit>,
    pub(crate) lost: bool,
    /// The ranks that it knows to be lost.
    pub(crate) knows_lost: BTreeSet<u32>,
    /// The revocations in flight.
    pub(crate) revoking: BTreeMap<u64, Revoking>,
    pub(crate) pinning: BTreeMap<u64, Run>,
    /// The own memory that changed, and that peers may still reach: its address, its length, and true if it is gone.
    pub(crate) changing: Vec<(u64, u64, bool)>,
    /// The memory of its own, named by no operation, that is registered from the start.
    pub(crate) kept: Option<Run>,
}

/// Memory that is being taken back: pages, whose buckets may have other pages.
pub(crate) struct Revoking {
    pub(crate) run: Run,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) then: Then,
}

/// The fate of memory that was taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    Stay,
    Unmap,
    /// The memory is lent, and lasts from then on. Older registrations of its buckets may show
    /// other pages.
    Lend,
}

/// An event outside of engines and channels.
#[derive(Clone, Debug)]
pub(crate) enum WorldEvent {
    Registered {
        rank: usize,
        id: u64,
        need: Run,
        preferred: Run,
        /// The number of times that its pages had been mapped when the registration was decided, if the NIC registers
        /// them at once.
        mapped: Option<Vec<u64>>,
    },
    Deregistered {
        rank: usize,
        id: u64,
        run: Run,
    },
    Transfer(WorldTransfer),
    Transferred {
        rank: usize,
        id: u64,
        result: Result<(), Error>,
    },
    HitMoves {
        rank: usize,
        op: u64,
        hit: KeptHit,
        /// The inline data.
        taken: Option<Vec<u8>>,
    },
    HitEnds {
        rank: usize,
        op: u64,
        hit: KeptHit,
        result: Result<(), Error>,
    },
    Lost {
        rank: usize,
        who: u32,
    },
}

/// Foreseen memory: the rank that uses it, its owner, its address and its length.
pub(crate) type ForeseenRun = (usize, u32, (u64, u64));

#[derive(Clone, Debug)]
pub(crate) struct WorldTransfer {
    pub(crate) rank: usize,
    pub(crate) id: u64,
    pub(crate) peer: u32,
    pub(crate) direction: Direction,
    pub(crate) local: u64,
    pub(crate) local_key: u64,
    pub(crate) remote: u64,
    pub(crate) remote_key: u64,
    pub(crate) len: u64,
    /// The inline data.
    pub(crate) taken: Option<Vec<u8>>,
}

pub(crate) struct EngineWorld {
    pub(crate) plan: WorldPlan,
    pub(crate) ranks: Vec<WorldRank>,
    /// The queues of messages, by sender and receiver.
    pub(crate) channels: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    pub(crate) events: Vec<WorldEvent>,
    pub(crate) book: Book,
    pub(crate) next: u64,
    pub(crate) trace: DefaultHasher,
    pub(crate) steps: u64,
    /// The failure rate of registrations, one in so many, and of transfers.
    pub(crate) fail_registrations: u32,
    pub(crate) fail_transfers: bool,
    pub(crate) draws: Random,
    /// The hostile rank, if there is one.
    pub(crate) hostile: Option<usize>,
    pub(crate) offences: u64,
    /// The ends of the last operation of a rank with a peer, on both sides.
    pub(crate) after: BTreeMap<(usize, usize, Direction), (u64, u64)>,
    pub(crate) hits: u64,
    pub(crate) wide: u64,
    pub(crate) revocations: u64,
    /// The operations on transient memory, and those with inline data.
    pub(crate) transient: u64,
    pub(crate) inline: u64,
    /// The foreseen memory: its direction, and true if its firehoses are attached.
    pub(crate) foreseen: BTreeMap<ForeseenRun, (Direction, bool)>,
    /// The firehoses moved ahead, those found attached, and those given back.
    pub(crate) ahead: u64,
    pub(crate) ahead_there: u64,
    pub(crate) given_back: u64,
    pub(crate) given_back_later: u64,
    pub(crate) crowded: u64,
    /// The changes of registered memory, and the transfers that reached old pages.
    pub(crate) changed: u64,
    pub(crate) stale: u64,
    /// True if a rank that breaks a rule is taken for lost.
    pub(crate) strict: bool,
}

impl EngineWorld {
    pub(crate) fn new(plan: WorldPlan) -> Self {
        let ranks: Vec<WorldRank> = (0..plan.ranks)
            .map(|rank| WorldRank {
                engine: Engine::new(plan.config(rank)).expect("plans are sound"),
                memory: ModelMemory::new(&plan, rank),
                nic: ModelNic::default(),
                hits: Vec::new(),
                lost: false,
                knows_lost: BTreeSet::new(),
                revoking: BTreeMap::new(),
                pinning: BTreeMap::new(),
                changing: Vec::new(),
                kept: None,
            })
            .collect();
        let mut world = Self {
            book: Book::default(),
            ranks,
            channels: BTreeMap::new(),
            events: Vec::new(),
            next: 1,
            trace: DefaultHasher::new(),
            steps: 0,
            fail_registrations: 0,
            fail_transfers: false,
            draws: Random::new(plan.seed),
            hostile: None,
            offences: 0,
            after: BTreeMap::new(),
            hits: 0,
            wide: 0,
            revocations: 0,
            transient: 0,
            inline: 0,
            foreseen: BTreeMap::new(),
            ahead: 0,
            ahead_there: 0,
            given_back: 0,
            given_back_later: 0,
            crowded: 0,
            changed: 0,
            stale: 0,
            strict: false,
            plan,
        };
        for rank in 0..world.ranks.len() {
            world.keep(rank);
        }
        world
    }

    pub(crate) fn name(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The next number of a pseudo-random sequence.
    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.draws.word_below(below)
    }

    /// The routes of operations and memory, and their counts.
    pub(crate) fn ways(&self) -> Vec<(&'static str, u64)> {
        let sum = |of: fn(&hydrant_pinning::Stats) -> u64| {
            let all = self.ranks.iter().map(|rank| of(&rank.engine.stats()));
            all.sum::<u64>()
        };
        vec![
            ("hits", self.hits),
            ("remote hits", sum(|it| it.remote_hits)),
            ("moves", sum(|it| it.moves)),
            ("piggybacked", sum(|it| it.piggybacked)),
            ("copies", sum(|it| it.copies)),
            ("heads", sum(|it| it.heads)),
            ("splits", sum(|it| it.splits)),
            ("remote stalls", sum(|it| it.stalls)),
            ("local stalls", sum(|it| it.local.stalls)),
            ("released", sum(|it| it.released)),
            ("from cache", sum(|it| it.served_from_cache)),
            ("lent", sum(|it| it.lent)),
            ("recalled", sum(|it| it.recalled)),
            ("refused", sum(|it| it.refused)),
            ("registrations failed", sum(|it| it.local.failed)),
            ("wide extents", self.wide),
            ("revocations", self.revocations),
            ("transient", self.transient),
            ("inline", self.inline),
            ("moved ahead", self.ahead),
            ("found ahead", self.ahead_there),
            ("given back", self.given_back),
            ("given back later", self.given_back_later),
            ("crowded out", self.crowded),
            ("changed", self.changed),
            ("old pages reached", self.stale),
            (
                "ranks lost",
                self.ranks.iter().filter(|it| it.lost).count() as u64,
            ),
        ]
    }

    /// A hash of all actions and their order.
    pub(crate) fn hash(&self) -> u64 {
        self.trace.finish()
    }

    pub(crate) fn note(&mut self, what: &impl std::fmt::Debug) {
        let text = format!("{what:?}");
        if std::env::var_os("HYDRANT_TEST_TRACE").is_some() {
            eprintln!("{:6} {text}", self.steps);
        }
        text.hash(&mut self.trace);
    }
}
