//! The decisions of the choice, where the times of the routes are known.

use hydrant_base::recent::TRIALS;

use super::*;
use crate::{CostModel, Engine, Strategy};

const COST: CostModel = CostModel {
    per_op_ns: 20_000.0,
    per_page_ns: 300.0,
};

fn choice() -> RouteChoice {
    let mut config = Config::firehose_paper(0, 2);
    config.strategy = Strategy::Auto;
    (config.cost, config.register) = (COST, COST);
    let engine = Engine::new(config.clone()).expect("the paper's");
    RouteChoice::new(Arc::clone(engine.hot()), &config, 1024)
}

fn put(len: u64) -> OperationClass {
    RouteChoice::class(Direction::Put, len, false)
}

fn miss(class: OperationClass, bucket: u64, evicts: bool) -> Miss {
    Miss {
        class,
        place: (1, bucket),
        count: 1,
        width: 1,
        evicts,
        is_next_unused: false,
        is_reused: true,
    }
}

/// Makes a choice that knows the times of copies and hits of a class.
fn knowing(class: OperationClass, copy: u64, hit: u64) -> RouteChoice {
    let mut choice = choice();
    for _ in 0..8 {
        choice.record_time(class, PieceRoute::Copied, copy);
        choice.record_time(class, PieceRoute::Hit, hit);
    }
    choice
}

fn attaches(verdict: MissDecision) -> bool {
    verdict != MissDecision::Copy
}

#[test]
fn misses_are_attached_while_firehoses_are_free() {
    assert!(attaches(choice().weigh(&miss(put(8), 7, false))));
    let mut known = knowing(put(8), 3000, 2000);
    assert!(attaches(known.weigh(&miss(put(8), 7, false))));
}

#[test]
fn the_head_of_a_miss_takes_no_longer_than_its_move() {
    let class = put(64 << 10);
    assert_eq!(choice().head(class, 64 << 10, (16, false)), 0, "not known");
    let mut known = knowing(class, 100_000, 50_000);
    for _ in 0..8 {
        known.record_move(16, false, 40_000);
    }
    let head = known.head(class, 64 << 10, (16, false));
    assert!((16 << 10..26 << 10).contains(&head), "{head}");
    // A miss of four times the length has a head of the same time.
    let longer = known.head(put(256 << 10), 256 << 10, (16, false));
    assert!(longer.abs_diff(head) < 1024, "{longer}");
    // A move that evicts is measured first.
    assert_eq!(known.head(class, 64 << 10, (16, true)), 0);
    (0..8).for_each(|_| known.record_move(16, false, 10_000_000));
    assert_eq!(known.head(class, 64 << 10, (16, false)), 32 << 10, "half");
    let copied = knowing(class, 50_000, 100_000);
    assert_eq!(
        copied.head(class, 64 << 10, (16, false)),
        0,
        "all is copied"
    );
}

#[test]
fn everything_is_copied_if_hits_take_longer() {
    let mut choice = knowing(put(8), 700, 3500);
    assert!((0..10_000).all(|at| !attaches(choice.weigh(&miss(put(8), at, at % 2 == 0)))));
    assert!(choice.asks());
}

#[test]
fn trials_of_the_slower_route_take_a_small_part_of_the_time() {
    let (copy, hit, pieces) = (700, 3500, 100_000);
    let mut choice = knowing(put(8), copy, hit);
    let mut tried = 0;
    for _ in 0..pieces {
        choice.begin(put(8), || true);
        if !choice.choose_copy_over_hit(put(8)) {
            choice.record_time(put(8), PieceRoute::Hit, hit);
            tried += 1;
        }
    }
    assert!(
        tried > 0 && tried * (hit - copy) <= pieces * copy / TRIALS,
        "{tried}"
    );
    // A trial notices when hits have become faster.
    let to_come = (0..pieces).find(|_| {
        choice.begin(put(8), || true);
        let hits = !choice.choose_copy_over_hit(put(8));
        if hits {
            choice.record_time(put(8), PieceRoute::Hit, 100);
        }
        hits && !choice.costs.needs(put(8), PieceRoute::Hit)
    });
    assert!(to_come.is_some());
    assert!(!choice.choose_copy_over_hit(put(8)));
}

#[test]
fn many_hits_that_nobody_timed_are_compared_with_copies_again() {
    let mut choice = knowing(put(8), 3000, 2000);
    choice.begin(put(8), || true);
    assert!(!choice.choose_copy_over_hit(put(8)) && !choice.asks());
    choice.hot.request_comparison();
    assert!(choice.asks());
    choice.begin(put(8), || true);
    assert!(choice.choose_copy_over_hit(put(8)));
    (0..2).for_each(|_| choice.record_time(put(8), PieceRoute::Copied, 1000));
    assert!(choice.choose_copy_over_hit(put(8)) && choice.asks());
}

#[test]
fn copies_are_tried_until_a_peer_that_slept_is_awake() {
    let mut choice = knowing(put(8), 50_000, 3000);
    choice.hot.request_comparison();
    choice.begin(put(8), || true);
    let mut tried = 0;
    while choice.choose_copy_over_hit(put(8)) && tried < 100 {
        choice.record_time(
            put(8),
            PieceRoute::Copied,
            if tried < 4 { 20_000 } else { 1000 },
        );
        tried += 1;
    }
    assert_eq!(tried, 100, "copies are faster once the peer is awake");
    assert!(choice.hot.copies(Direction::Put, 8));
}

#[test]
fn hits_of_a_class_without_attached_buckets_are_measured() {
    let mut choice = knowing(put(8), 3000, 2000);
    choice.hot.request_comparison();
    choice.begin(put(4096), || true);
    assert!(choice.asks());
    assert!(!choice.choose_copy_over_hit(put(4096)));
}

#[test]
fn a_full_table_changes_almost_only_for_often_missed_buckets() {
    let mut choice = knowing(put(8), 3000, 2000);
    let moves = (0..4000).filter(|at| attaches(choice.weigh(&miss(put(8), *at, true))));
    // The trials of a move are a small part of the copies' time.
    let (moves, price) = (moves.count() as u64, 20_300);
    assert!(
        moves > 0 && moves * price <= 4000 * 3000 / TRIALS,
        "{moves}"
    );
    // A bucket that is missed again and again is attached for good when it has paid for that.
    let verdicts: Vec<_> = (0..400)
        .map(|_| choice.weigh(&miss(put(8), 1 << 20, true)))
        .collect();
    let kept = MissDecision::Attach { passes: false };
    let first = verdicts.iter().position(|verdict| *verdict == kept);
    assert!(
        first.is_some_and(|first| (20..300).contains(&first)),
        "{first:?}"
    );
}

#[test]
fn unused_buckets_make_room_sooner() {
    let mut choice = knowing(put(8), 3000, 2000);
    let miss = Miss {
        is_next_unused: true,
        ..miss(put(8), 9, true)
    };
    let first = (0..100).position(|_| attaches(choice.weigh(&miss)));
    assert!(
        first.is_some_and(|first| (8..30).contains(&first)),
        "{first:?}"
    );
}

#[test]
fn a_sequence_is_attached_wide_and_is_the_next_victim() {
    let mut choice = knowing(put(8), 3000, 2000);
    let narrow = miss(put(8), 9, true);
    assert!(!attaches(choice.weigh(&narrow)));
    let wide = Miss {
        width: 64,
        ..miss(put(8), 10, true)
    };
    assert_eq!(choice.weigh(&wide), MissDecision::Attach { passes: true });
}

#[test]
fn a_miss_that_is_cheaper_to_register_is_never_copied() {
    let class = put(1 << 20);
    let mut choice = knowing(class, 600_000, 300_000);
    let miss = Miss {
        count: 256,
        width: 256,
        ..miss(class, 9, true)
    };
    // The first time it passes, because it may be the only use.
    assert_eq!(choice.weigh(&miss), MissDecision::Attach { passes: true });
}

#[test]
fn a_long_operation_is_copied_whole_if_its_class_is_copied() {
    let long = put(1 << 19);
    assert!(!choice().copies_all(long));
    assert!(!knowing(long, 300_000, 150_000).copies_all(long));
    let mut choice = knowing(long, 20_000, 90_000);
    assert!(choice.copies_all(long));
    // While hits are measured again, the operation is cut as hits need it.
    choice.costs.forget(long, PieceRoute::Hit);
    assert!(!choice.copies_all(long));
}

#[test]
fn a_wanted_bucket_is_attached_whatever_it_costs() {
    let mut choice = knowing(put(8), 700, 3500);
    choice.want(1, 5);
    let asked = choice.hot.ask(Direction::Put, 8);
    assert!(choice.asks() && asked == crate::Advice::Engine, "{asked:?}");
    assert!(attaches(choice.weigh(&miss(put(8), 5, true))));
    assert!(!attaches(choice.weigh(&miss(put(8), 5, true))));
    // Buckets that were wanted and attached otherwise are in nobody's way.
    (0..1000).for_each(|bucket| choice.want(1, 100 + bucket));
    choice.want(1, 5);
    assert!(attaches(choice.weigh(&miss(put(8), 5, true))));
}

#[test]
fn nothing_is_attached_at_once_where_little_is_used_again() {
    let mut choice = knowing(put(8), 3000, 2000);
    let miss = |bucket, is_reused| Miss {
        is_reused,
        ..miss(put(8), bucket, false)
    };
    assert!(!attaches(choice.weigh(&miss(7, false))));
    assert!(attaches(choice.weigh(&miss(8, true))));
}
