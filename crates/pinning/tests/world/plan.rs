//! The setup of a world, and the steps in it.

use hydrant_base::Random;
use hydrant_pinning::{Config, CostModel, Direction, EngineMessage, Strategy};
use proptest::prelude::*;

pub(crate) const PAGE: usize = 4096;

/// The setup of a world.
#[derive(Clone, Debug)]
pub(crate) struct WorldPlan {
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    pub(crate) strategy: Strategy,
    /// The pages of a bucket.
    pub(crate) pages: usize,
    /// The buckets of memory at each rank.
    pub(crate) memory: u64,
    /// M, in buckets for each peer.
    pub(crate) share: u64,
    /// MAXVICTIM, in buckets.
    pub(crate) victims: u64,
    pub(crate) entries: u64,
    pub(crate) max_extent: u64,
    pub(crate) cost: CostModel,
    pub(crate) piggyback: usize,
    pub(crate) payload: usize,
    pub(crate) reads: bool,
    pub(crate) borrowing: bool,
    pub(crate) widening: bool,
    pub(crate) adaptive: bool,
    /// True if a registration follows whatever is mapped under it.
    pub(crate) follows: bool,
    /// The most bytes of an inline put.
    pub(crate) inline: u64,
}

pub(crate) const COSTS: [CostModel; 3] = [
    // GM: all cost is in the pages.
    CostModel {
        per_op_ns: 0.0,
        per_page_ns: 40_000.0,
    },
    // Soft-RoCE in a virtual machine: all cost is in the call.
    CostModel {
        per_op_ns: 39_800.0,
        per_page_ns: 181.0,
    },
    // PM.
    CostModel {
        per_op_ns: 40_000.0,
        per_page_ns: 7_000.0,
    },
];

impl WorldPlan {
    pub(crate) fn bucket(&self) -> u64 {
        (self.pages * PAGE) as u64
    }

    pub(crate) fn config(&self, rank: u32) -> Config {
        let bucket = self.bucket();
        Config {
            rank,
            ranks: self.ranks,
            strategy: self.strategy,
            page: PAGE,
            bucket: self.pages * PAGE,
            m: self.share * u64::from(self.ranks - 1) * bucket,
            maxvictim: self.victims * bucket,
            available: u64::MAX,
            adaptive_victims: self.adaptive,
            borrowing: self.borrowing,
            widening: self.widening,
            entries: self.entries,
            max_extent: self.max_extent * bucket,
            chunk: self.max_extent.div_ceil(2) * bucket,
            cost: self.cost,
            register: self.cost,
            piggyback: self.piggyback,
            max_payload: EngineMessage::MAX_BYTES + self.piggyback.max(64) + self.payload,
            reads: self.reads,
        }
    }

    /// A plan from a number, for runs that choose their own plans.
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut draw = |below| random.below(below);
        let firehoses = draw(2) == 0;
        let pages: usize = [1, 4, 16][draw(3)];
        Self {
            seed,
            ranks: 2 + draw(3) as u32,
            strategy: match firehoses {
                true if seed.is_multiple_of(2) => Strategy::Auto,
                true => Strategy::Firehose,
                false if seed.is_multiple_of(5) => Strategy::Foresight,
                false => Strategy::ALL[draw(Strategy::ALL.len())],
            },
            pages,
            memory: 8 + draw([72, 40, 24][pages.ilog2() as usize / 2]) as u64,
            share: [1, 1, 2, 3, 5, 8, 24, 60][draw(8)],
            victims: [1, 1, 2, 3, 4, 9, 24, 60][draw(8)],
            entries: [1, 8, 64, 1024][draw(4)],
            max_extent: [1, 3, 1000][draw(3)],
            cost: COSTS[draw(3)],
            piggyback: [0, 64, 1024][draw(3)],
            payload: [0, 100, 5000][draw(3)],
            reads: draw(2) == 0,
            borrowing: draw(2) == 0,
            widening: draw(4) > 0,
            adaptive: draw(2) == 0,
            follows: draw(3) == 0,
            inline: [0, 16, 64][draw(3)],
        }
    }
}

pub(crate) fn any_plan() -> impl Strategy2<Value = WorldPlan> {
    any::<u64>().prop_map(WorldPlan::drawn)
}

pub(crate) use proptest::strategy::Strategy as Strategy2;

/// One step. Its numbers are taken modulo the present choices.
#[derive(Clone, Debug)]
pub(crate) enum WorldStep {
    Begin {
        rank: u16,
        peer: u16,
        direction: Direction,
        local: u32,
        remote: u32,
        len: u32,
    },
    /// One event in flight happens.
    Advance(u16),
    /// Several events happen.
    Flush(u16),
    /// All events happen, until nothing is in flight: that finds circular waits.
    Drain,
    Revoke {
        rank: u16,
        page: u16,
        pages: u16,
        unmap: bool,
    },
    /// Pages that were taken back are lent again, whatever lies beside them.
    Lend {
        rank: u16,
        page: u16,
        pages: u16,
    },
    /// Other pages come in the place of some, or they are gone. The rank hears of it.
    Change {
        rank: u16,
        page: u16,
        pages: u16,
        gone: bool,
    },
    /// Memory becomes again as it was at first.
    Restore(u16),
    Pin {
        rank: u16,
        bucket: u16,
        buckets: u16,
    },
    /// A rank expects memory of a peer to be needed soon, or not soon.
    Foresee {
        rank: u16,
        peer: u16,
        direction: Direction,
        bucket: u16,
        buckets: u16,
        soon: bool,
    },
    FailRegistrations(u8),
    FailTransfers(bool),
    Lose(u16),
}

fn direction(put: bool) -> Direction {
    if put { Direction::Put } else { Direction::Get }
}

pub(crate) fn any_step() -> impl Strategy2<Value = WorldStep> {
    let begin = (
        any::<u16>(),
        any::<u16>(),
        any::<bool>().prop_map(direction),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
    );
    let begin = begin.prop_map(
        |(rank, peer, direction, local, remote, len)| WorldStep::Begin {
            rank,
            peer,
            direction,
            local,
            remote,
            len,
        },
    );
    let revoke = (any::<u16>(), any::<u16>(), any::<u16>(), any::<bool>());
    let revoke = revoke.prop_map(|(rank, page, pages, unmap)| WorldStep::Revoke {
        rank,
        page,
        pages,
        unmap,
    });
    let lend = (any::<u16>(), any::<u16>(), any::<u16>());
    let lend = lend.prop_map(|(rank, page, pages)| WorldStep::Lend { rank, page, pages });
    let change = (any::<u16>(), any::<u16>(), any::<u16>(), any::<bool>());
    let change = change.prop_map(|(rank, page, pages, gone)| WorldStep::Change {
        rank,
        page,
        pages,
        gone,
    });
    let pin = (any::<u16>(), any::<u16>(), any::<u16>());
    let pin = pin.prop_map(|(rank, bucket, buckets)| WorldStep::Pin {
        rank,
        bucket,
        buckets,
    });
    prop_oneof![
        40 => begin,
        60 => any::<u16>().prop_map(WorldStep::Advance),
        10 => any::<u16>().prop_map(WorldStep::Flush),
        3 => Just(WorldStep::Drain),
        3 => revoke,
        3 => lend,
        4 => change,
        1 => any::<u16>().prop_map(WorldStep::Restore),
        1 => pin,
        2 => any::<u8>().prop_map(WorldStep::FailRegistrations),
        1 => any::<bool>().prop_map(WorldStep::FailTransfers),
        1 => any::<u16>().prop_map(WorldStep::Lose),
    ]
}

/// As [`any_step`], with firehoses that are moved ahead of need and given back.
pub(crate) fn any_foreseen_step() -> impl Strategy2<Value = WorldStep> {
    let foresee = (
        any::<u16>(),
        any::<u16>(),
        any::<bool>().prop_map(direction),
        any::<u16>(),
        any::<u16>(),
        0..5_u8,
    );
    let foresee =
        foresee.prop_map(
            |(rank, peer, direction, bucket, buckets, soon)| WorldStep::Foresee {
                rank,
                peer,
                direction,
                bucket,
                buckets,
                soon: soon > 1,
            },
        );
    prop_oneof![4 => any_step(), 1 => foresee]
}

impl WorldStep {
    /// A step from a pseudo-random sequence.
    pub(crate) fn drawn(draw: &mut impl FnMut(u64) -> u64) -> Self {
        let half = |value: u64| value as u16;
        match draw(1000) {
            0..330 => WorldStep::Begin {
                rank: half(draw(1 << 16)),
                peer: half(draw(1 << 16)),
                direction: direction(draw(2) == 0),
                local: draw(1 << 32) as u32,
                remote: draw(1 << 32) as u32,
                len: draw(1 << 32) as u32,
            },
            330..880 => WorldStep::Advance(half(draw(1 << 16))),
            880..900 => WorldStep::Foresee {
                rank: half(draw(1 << 16)),
                peer: half(draw(1 << 16)),
                direction: direction(draw(2) == 0),
                bucket: half(draw(1 << 16)),
                buckets: half(draw(1 << 16)),
                soon: draw(5) > 1,
            },
            900..906 => WorldStep::Drain,
            906..910 => WorldStep::Change {
                rank: half(draw(1 << 16)),
                page: half(draw(1 << 16)),
                pages: half(draw(1 << 16)),
                gone: draw(4) == 0,
            },
            910..920 => WorldStep::Flush(half(draw(1 << 16))),
            920..940 => WorldStep::Revoke {
                rank: half(draw(1 << 16)),
                page: half(draw(1 << 16)),
                pages: half(draw(1 << 16)),
                unmap: draw(2) == 0,
            },
            940..955 => WorldStep::Lend {
                rank: half(draw(1 << 16)),
                page: half(draw(1 << 16)),
                pages: half(draw(1 << 16)),
            },
            955..965 => WorldStep::Restore(half(draw(1 << 16))),
            965..970 => WorldStep::Pin {
                rank: half(draw(1 << 16)),
                bucket: half(draw(1 << 16)),
                buckets: half(draw(1 << 16)),
            },
            970..995 => WorldStep::FailRegistrations(draw(256) as u8),
            995..999 => WorldStep::FailTransfers(draw(2) == 0),
            _ => WorldStep::Lose(half(draw(1 << 16))),
        }
    }
}
