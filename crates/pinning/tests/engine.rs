//! Engines of several ranks in a naive world that carries out their decisions in any order.

mod world;

use hydrant_base::Random;
use hydrant_pinning::{Direction, Use};
use proptest::prelude::*;
use world::{
    EngineWorld, WorldEvent,
    nic::NicEntry,
    plan::{COSTS, PAGE, WorldPlan, WorldStep, any_foreseen_step, any_plan, any_step},
};

/// Makes two ranks with eight firehoses each. The first dozen pages are ordinary.
fn pair() -> EngineWorld {
    EngineWorld::new(WorldPlan {
        seed: 4,
        ranks: 2,
        strategy: hydrant_pinning::Strategy::Firehose,
        pages: 1,
        memory: 12,
        share: 8,
        victims: 24,
        entries: 1024,
        max_extent: 1000,
        cost: COSTS[0],
        piggyback: 0,
        payload: 5000,
        reads: true,
        borrowing: false,
        widening: true,
        adaptive: false,
        follows: true,
        inline: 0,
    })
}

#[test]
fn a_piece_gives_up_its_own_firehoses_that_are_in_its_way() {
    let mut world = pair();
    let page = PAGE as u64;
    let (local, remote) = (world.ranks[0].memory.base(), world.ranks[1].memory.base());
    // Two extents of four buckets take all eight firehoses. The third put needs an end of each and
    // two buckets between them.
    for (first, count) in [(0, 4), (6, 4), (3, 4)] {
        world.start(
            0,
            1,
            Direction::Put,
            local,
            remote + first * page,
            count * page,
        );
        world.drain();
    }
    assert_eq!(world.book.served, 3);
    let stats = world.ranks[0].engine.stats();
    assert_eq!((stats.copies, stats.moves), (0, 3), "{stats:?}");
}

#[test]
fn an_operation_begun_before_its_memory_was_lent_again_is_served() {
    let mut world = EngineWorld::new(WorldPlan {
        pages: 4,
        ..pair().plan
    });
    let page = PAGE as u64;
    let (local, remote) = (world.ranks[0].memory.base(), world.ranks[1].memory.base());
    // The end of one bucket and the beginning of the next are unmapped.
    let (rank, pages) = (1, 1);
    world.step(&WorldStep::Revoke {
        rank,
        page: 3,
        pages,
        unmap: true,
    });
    world.drain();
    // A registration in the second bucket delays the loan of both pages. A get of the first page is
    // in flight meanwhile, and arrives when the pages are there.
    world.start(0, 1, Direction::Put, local, remote + 5 * page, 8);
    // The own side is registered, and the move arrives.
    world.step(&WorldStep::Advance(0));
    world.step(&WorldStep::Advance(0));
    world.step(&WorldStep::Lend {
        rank,
        page: 3,
        pages,
    });
    assert_eq!(world.ranks[1].revoking.len(), 1, "it waits");
    world.start(0, 1, Direction::Get, local + page, remote + 3 * page, 8);
    world.step(&WorldStep::Advance(0));
    assert!(world.ranks[1].revoking.is_empty(), "it waits no more");
    world.drain();
    assert_eq!((world.book.served, world.book.failed), (2, 0));
}

#[test]
fn a_pull_may_keep_transient_memory_registered_after_its_operation() {
    let mut world = EngineWorld::new(WorldPlan {
        reads: false,
        follows: false,
        ..pair().plan
    });
    let page = PAGE as u64;
    let (own, theirs) = (world.ranks[1].memory.base(), world.ranks[0].memory.base());
    // The second of two pages is transient, so both form one extent for one operation. The first
    // page is persistent, and is pulled from there.
    world.start(1, 0, Direction::Put, own + 6 * page, theirs, 2 * page);
    world.start(0, 1, Direction::Get, theirs + 4 * page, own + 6 * page, 8);
    let is_pull = |event: &WorldEvent| matches!(event, WorldEvent::Transfer(it) if it.rank == 1 && it.len == 8);
    let next = |world: &EngineWorld| {
        let event = world.events.iter().position(|event| !is_pull(event));
        let message = world.channels.values().any(|queue| !queue.is_empty());
        event.or(message.then_some(world.events.len()))
    };
    while let Some(at) = next(&world) {
        world.step(&WorldStep::Advance(at as u16));
    }
    assert!(world.events.iter().any(is_pull), "it is pulled");
    assert_eq!(world.book.served, 1, "the put is over");
    let mixed = |it: &NicEntry| it.run.count == 2;
    assert!(world.ranks[1].nic.keys.values().any(mixed), "they share");
    world.drain();
    assert!(!world.ranks[1].nic.keys.values().any(mixed), "it goes then");
}

/// Makes the pair of ranks under the strategy `foresight`.
fn foreseeing() -> EngineWorld {
    EngineWorld::new(WorldPlan {
        strategy: hydrant_pinning::Strategy::Foresight,
        ..pair().plan
    })
}

/// A step that expects four buckets of rank 1 to be needed soon, or not.
fn foreseen(bucket: u16, soon: bool) -> WorldStep {
    WorldStep::Foresee {
        rank: 0,
        peer: 0,
        direction: Direction::Put,
        bucket: 2 * bucket + 1,
        buckets: 3,
        soon,
    }
}

#[test]
fn a_put_that_was_foreseen_waits_for_no_move() {
    let mut world = foreseeing();
    let page = PAGE as u64;
    let (local, remote) = (world.ranks[0].memory.base(), world.ranks[1].memory.base());
    let put = |world: &mut EngineWorld| world.start(0, 1, Direction::Put, local, remote, 4 * page);
    let moves = |world: &EngineWorld| world.ranks[0].engine.stats().moves;
    world.step(&foreseen(0, true));
    world.drain();
    assert_eq!((moves(&world), world.ranks[1].nic.buckets), (1, 4));
    for served in 1..4 {
        put(&mut world);
        world.drain();
        assert_eq!((moves(&world), world.book.served), (1, served));
    }
    // A put that comes while the move is in flight waits for that move.
    world.step(&foreseen(0, false));
    world.step(&foreseen(0, true));
    put(&mut world);
    world.drain();
    assert_eq!((moves(&world), world.book.served), (2, 4));
    // Firehoses that are to leave while in use leave with the put.
    put(&mut world);
    world.step(&foreseen(0, false));
    assert_eq!(world.given_back_later, 1);
    world.drain();
    assert_eq!(
        (moves(&world), world.ranks[1].engine.attached_by(0)),
        (2, 0)
    );
    // Firehoses that were not foreseen are asked for, and given back at once.
    put(&mut world);
    world.drain();
    assert_eq!((moves(&world), world.book.served), (3, 6));
    assert_eq!(world.ranks[1].engine.attached_by(0), 0);
}

#[test]
fn foreseen_moves_take_only_free_firehoses() {
    let mut world = foreseeing();
    for bucket in [0, 4, 8] {
        world.step(&foreseen(bucket, true));
        world.drain();
    }
    // There are eight firehoses, and no foreseen one is taken off for another.
    assert_eq!(world.ranks[0].engine.firehoses(1).0, 8);
    assert_eq!((world.ahead, world.ranks[1].nic.buckets), (2, 8));
    world.step(&foreseen(4, false));
    world.step(&foreseen(8, true));
    world.drain();
    assert_eq!((world.ahead, world.given_back), (3, 1));
}

fn run(plan: &WorldPlan, steps: &[WorldStep]) -> u64 {
    let mut world = EngineWorld::new(plan.clone());
    for step in steps {
        world.step(step);
    }
    world.drain();
    if plan.strategy == hydrant_pinning::Strategy::Foresight {
        world.foresee_nothing();
    }
    world.hash()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_limits_are_kept_and_everything_is_served(
        plan in any_plan(),
        steps in prop::collection::vec(any_step(), 0..400),
    ) {
        let first = run(&plan, &steps);
        // The same steps lead to the same actions, to the last one.
        prop_assert_eq!(first, run(&plan, &steps));
    }

    #[test]
    fn whatever_is_foreseen_limits_are_kept_and_everything_is_served(
        plan in any_plan(),
        steps in prop::collection::vec(any_foreseen_step(), 0..400),
    ) {
        let plan = WorldPlan { strategy: hydrant_pinning::Strategy::Foresight, ..plan };
        let first = run(&plan, &steps);
        prop_assert_eq!(first, run(&plan, &steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_one_borrowed_and_keeps_others_have_what_is_sure(
        ranks in 3..6_u32,
        share in 1..40_u64,
        victims in 1..40_u64,
        adaptive in any::<bool>(),
    ) {
        let pair = pair().plan;
        let memory = 2 * share * u64::from(ranks);
        let plan = WorldPlan { ranks, share, victims, adaptive, memory, borrowing: true, ..pair };
        let mut world = EngineWorld::new(plan).with_hostile();
        let target = ranks as usize - 1;
        world.grab(target);
        let theirs = world.ranks[target].engine.attached_by(0);
        prop_assert!(share < 4 || theirs > share, "it was lent nothing: {theirs} of {share}");
        let sure = world.ranks[target].engine.limits().sure;
        let (page, base) = (PAGE as u64, world.ranks[target].memory.base());
        let mut places = 0..memory;
        let mut begun = 0;
        for rank in 1..target {
            let local = world.ranks[rank].memory.base();
            let mut here = 0;
            // A put of twice the owned firehoses succeeds all the same.
            while here < 2 * share {
                let Some(at) = places.next() else {
                    break;
                };
                let remote = base + at * page;
                if world.ranks[target].memory.may(remote, page, Use::Write).is_err() {
                    continue;
                }
                world.start(rank, target, Direction::Put, local, remote, page);
                world.drain();
                here += 1;
                begun += 1;
                let (attached, _) = world.ranks[rank].engine.firehoses(target as u32);
                prop_assert!(attached >= here.min(sure), "{attached} of {here}, {sure} sure");
            }
        }
        prop_assert_eq!((world.book.served, world.book.known.len()), (begun, 0));
    }
}

/// The seconds of the long runs, from `HYDRANT_SOAK`.
fn seconds() -> u64 {
    let set = std::env::var("HYDRANT_SOAK").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[test]
fn a_revocation_ends_when_the_last_hit_does() {
    let mut world = pair();
    let page = PAGE as u64;
    let (local, remote) = (world.ranks[0].memory.base(), world.ranks[1].memory.base());
    world.start(0, 1, Direction::Put, local, remote, 8);
    world.drain();
    // Another put, to other bytes of the same buckets, is a hit. Its memory goes meanwhile.
    let hot = world.ranks[0].engine.hot().clone();
    let hit = hot
        .hit(1, remote, local, 8, Direction::Put)
        .expect("both sides are there");
    let run = hydrant_pinning::Run {
        first: local / page,
        count: 1,
    };
    let mut out = hydrant_pinning::Decisions::default();
    world.ranks[0].engine.revoke(7, run, &mut out);
    assert!(out.is_empty(), "it is in use");
    assert!(hot.hit(1, remote, local, 8, Direction::Put).is_none());
    assert!(hot.release(&hit), "somebody waits for it");
    world.ranks[0].engine.released(&hit.keep(), &mut out);
    assert!(
        matches!(
            out.actions[..],
            [hydrant_pinning::Action::Deregister { .. }]
        ),
        "{out:?}"
    );
}

/// Runs worlds one after the other, from the seed in `HYDRANT_SOAK_SEED` on. The routes in `rare`
/// may be missing in so short a time.
fn soak(kind: &str, rare: &[&str], mut world_of: impl FnMut(u64) -> EngineWorld) {
    let start = std::time::Instant::now();
    let first = std::env::var("HYDRANT_SOAK_SEED").ok();
    let first: u64 = first.and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut seed = first;
    let (mut steps, mut served, mut failed, mut offences) = (0, 0, 0, 0);
    let mut seen = std::collections::BTreeMap::<&str, u64>::new();
    while start.elapsed().as_secs() < seconds() {
        let plan = WorldPlan::drawn(seed);
        let run = std::panic::AssertUnwindSafe(|| world_of(seed));
        match std::panic::catch_unwind(run) {
            Ok(world) => {
                steps += world.steps;
                served += world.book.served;
                failed += world.book.failed;
                offences += world.offences;
                for (what, times) in world.ways() {
                    *seen.entry(what).or_default() += times;
                }
            }
            Err(cause) => {
                eprintln!("HYDRANT_SOAK_SEED={seed}: {plan:?}");
                std::panic::resume_unwind(cause);
            }
        }
        seed += 1;
    }
    println!(
        "{kind}: {} worlds, {steps} steps, {served} operations served, {failed} failed as they should, {offences} offences",
        seed - first
    );
    println!("{seen:?}");
    assert!(served > failed / 4, "{served} against {failed}");
    // A world without any event proves nothing.
    seen.retain(|what, times| *times == 0 && !rare.contains(what));
    let never: Vec<_> = seen.keys().collect();
    assert!(never.is_empty() || seed - first < 100, "{never:?}");
}

fn sequence(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = Random::new(seed);
    move |below| random.word_below(below)
}

#[test]
fn worlds_of_all_kinds_go_on_for_long() {
    soak("honest", &[], |seed| {
        let mut world = EngineWorld::new(WorldPlan::drawn(seed));
        let mut draw = sequence(seed);
        for _ in 0..3000 {
            world.step(&WorldStep::drawn(&mut draw));
        }
        world.drain();
        world
    });
}

#[test]
fn a_hostile_rank_harms_no_other() {
    // Firehoses that were moved ahead seldom stay until they are foreseen again.
    soak("hostile", &["found ahead"], |seed| {
        let mut world = EngineWorld::new(WorldPlan::drawn(seed)).with_hostile();
        world.strict = seed % 3 == 0;
        let mut draw = sequence(seed);
        for _ in 0..2000 {
            world.step(&WorldStep::drawn(&mut draw));
            world.offend();
        }
        world.expel();
        world.drain();
        for own in world.ranks.iter().filter(|own| !own.lost) {
            let most = 100 + 20 * world.plan.memory as usize;
            assert!(own.engine.entries() < most, "{}", own.engine.entries());
        }
        world
    });
}
