//! The width of extents. A stream must not pay for a call for each page, nor scattered access for
//! untouched pages. And a peer pays for the buckets that are really registered. A single width made
//! large puts slow, and scattered ones slower, in the released Firehose.

use std::collections::VecDeque;

use hydrant_base::Random;
use hydrant_pinning::{
    AccessVerdict, Action, Config, CostModel, Decisions, Direction, Engine, EngineOperation,
    OwnMemory, RegionNumber, RegisteredExtent, Strategy,
};

const PAGE: u64 = 4096;

/// Two ranks that carry out decisions at once.
struct RankPair {
    engines: [Engine; 2],
    /// The pages of each registration at the target.
    widths: Vec<u64>,
    moves: u64,
    /// The transfers of the operation in flight, or of the last one.
    transfers: u64,
    next: u64,
}

impl RankPair {
    fn new(change: impl Fn(&mut Config)) -> Self {
        let engine = |rank| {
            let mut config = Config {
                reads: true,
                widening: true,
                // The costs of Soft-RoCE as measured: a call costs as much as 220 pages.
                cost: CostModel {
                    per_op_ns: 39_800.0,
                    per_page_ns: 181.0,
                },
                ..Config::firehose_paper(rank, 2)
            };
            change(&mut config);
            Engine::new(config).expect("limits that can be")
        };
        Self {
            engines: [engine(0), engine(1)],
            widths: Vec::new(),
            moves: 0,
            transfers: 0,
            next: 1,
        }
    }

    /// A put of rank 0 into rank 1, to its end.
    fn put(&mut self, remote: u64, len: u64) {
        self.put_from(1 << 32, remote, len);
    }

    fn put_from(&mut self, local: u64, remote: u64, len: u64) {
        self.next += 1;
        self.transfers = 0;
        let operation = EngineOperation {
            id: self.next,
            peer: 1,
            direction: Direction::Put,
            local,
            region: RegionNumber::default(),
            remote,
            len,
            own: OwnMemory::Persistent,
            copied: false,
        };
        let mut first = Decisions::default();
        (self.engines[0].begin(operation, &mut first)).expect("a peer and addresses that are");
        let mut todo = VecDeque::from([(0, first)]);
        let mut done = false;
        while let Some((rank, decided)) = todo.pop_front() {
            for sent in decided.messages {
                let mut out = Decisions::default();
                let (at, message) = (sent.to as usize, sent.message);
                self.moves += u64::from(matches!(message, hydrant_pinning::EngineMessage::Move(_)));
                (self.engines[at].message(rank as u32, message, AccessVerdict::Fine, &mut out))
                    .expect("what an engine says is well formed");
                todo.push_back((at, out));
            }
            let mut out = Decisions::default();
            for action in decided.actions {
                match action {
                    Action::Register { id, preferred, .. } => {
                        if rank == 1 {
                            self.widths.push(preferred.count);
                        }
                        let got = RegisteredExtent {
                            run: preferred,
                            key: id,
                            writable: true,
                        };
                        self.engines[rank].registered(id, Ok(got), &mut out);
                    }
                    Action::Deregister { id, .. } => self.engines[rank].deregistered(id, &mut out),
                    Action::Transfer { id, .. } => {
                        self.transfers += 1;
                        self.engines[rank].transferred(id, Ok(()), &mut out);
                    }
                    Action::Done { result, .. } => {
                        result.expect("nothing fails here");
                        done = true;
                    }
                    Action::Land { .. } | Action::Pinned { .. } | Action::Revoked { .. } => {
                        panic!("not expected: {action:?}")
                    }
                }
            }
            if !out.is_empty() {
                todo.push_back((rank, out));
            }
        }
        assert!(done, "the put is complete");
    }

    /// The firehoses of the asker, and the buckets that the target has registered.
    fn charged(&self) -> (u64, u64) {
        (
            self.engines[0].firehoses(1).0,
            self.engines[1].stats().local.registered,
        )
    }
}

#[test]
fn a_stream_registers_ever_wider_extents() {
    let mut pair = RankPair::new(|_| {});
    let pages = 16_384;
    for page in 0..pages {
        pair.put((1 << 20) * PAGE + page * PAGE, PAGE);
    }
    assert!(
        pair.widths.len() < 40,
        "{} registrations for {pages} pages: {:?}",
        pair.widths.len(),
        pair.widths
    );
    assert!(pair.widths.windows(2).all(|pair| pair[0] <= pair[1]));
    let widest = pair.widths.last().copied().expect("some");
    assert_eq!(widest, pair.engines[0].limits().amortised);
    assert_eq!(pair.moves, pair.widths.len() as u64);
}

#[test]
fn scattered_access_registers_what_it_touches() {
    let mut pair = RankPair::new(|_| {});
    let mut random = Random::new(1);
    for _ in 0..2_000 {
        pair.put(((1 << 20) + random.word_below(50_000)) * PAGE, 8);
    }
    assert!(pair.widths.iter().all(|width| *width == 1));
    let (firehoses, registered) = pair.charged();
    assert_eq!(firehoses, registered);
}

#[test]
fn the_asker_pays_for_what_is_registered() {
    let mut pair = RankPair::new(|_| {});
    for page in 0..3_000 {
        pair.put((1 << 20) * PAGE + page * PAGE, 8);
    }
    let (firehoses, registered) = pair.charged();
    assert!(registered >= 3_000);
    assert_eq!(firehoses, registered);
}

#[test]
fn nothing_is_widened_if_pages_are_all_the_cost() {
    let mut pair = RankPair::new(|config| {
        config.cost = CostModel {
            per_op_ns: 0.0,
            per_page_ns: 40_000.0,
        };
    });
    for page in 0..1_000 {
        pair.put((1 << 20) * PAGE + page * PAGE, 8);
    }
    assert!(pair.widths.iter().all(|width| *width == 1));
}

#[test]
fn a_stream_past_the_credit_is_as_wide_as_the_credit_lets_it() {
    let mut pair = RankPair::new(|config| {
        config.m = 256 * PAGE;
        config.maxvictim = 64 * PAGE;
    });
    for page in 0..4_096 {
        pair.put((1 << 20) * PAGE + page * PAGE, PAGE);
        let (firehoses, registered) = pair.charged();
        assert!(firehoses <= 256 && registered <= 320);
    }
    let few = pair.widths.len();
    assert!(few < 4_096 / 32, "{few} registrations");
    assert!(pair.widths.iter().all(|width| *width <= 64));
}

/// The beginning of a field of blocks on both sides.
const FIELD: u64 = 1 << 32;
const BLOCK: u64 = 16 * PAGE;
const BLOCKS: u64 = 32;

#[test]
fn each_of_the_blocks_in_sequence_lies_in_one_extent() {
    for strategy in [Strategy::Firehose, Strategy::Auto] {
        let mut pair = RankPair::new(|config| config.strategy = strategy);
        // A word of the first block had a bucket of its own, which it keeps.
        pair.put_from(FIELD, FIELD, 8);
        pair.put_from(FIELD, FIELD, 8);
        let mut transfers = Vec::new();
        for round in 0..2 {
            for block in 0..BLOCKS {
                let at = FIELD + block * BLOCK;
                pair.put_from(at, at, BLOCK);
                transfers.extend((round == 1).then_some(pair.transfers));
            }
        }
        assert_eq!(transfers[0], 2, "{strategy:?}");
        let others = transfers[1..].iter();
        assert!(
            others.clone().all(|count| *count == 1),
            "{strategy:?}: {transfers:?}"
        );
        let all = pair.widths.len();
        assert!(all < 12, "{all} registrations: {:?}", pair.widths);
    }
}
