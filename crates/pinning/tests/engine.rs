//! Engines of several ranks against a naive world that does what they say in any order.

mod world;

use proptest::prelude::*;
use world::{
    World,
    plan::{Plan, Step, any_plan, any_step},
};

fn run(plan: &Plan, steps: &[Step]) -> u64 {
    let mut world = World::new(plan.clone());
    for step in steps {
        world.step(step);
    }
    world.drain();
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
        // The same again, to the last action.
        prop_assert_eq!(first, run(&plan, &steps));
    }
}

/// Seconds for which the long runs go on: `HYDRANT_SOAK`.
fn seconds() -> u64 {
    let set = std::env::var("HYDRANT_SOAK").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[test]
fn worlds_of_all_kinds_go_on_for_long() {
    let start = std::time::Instant::now();
    let first: u64 = std::env::var("HYDRANT_SOAK_SEED")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(1);
    let mut seed = first;
    let (mut steps, mut served, mut failed) = (0, 0, 0);
    while start.elapsed().as_secs() < seconds() {
        let plan = Plan::drawn(seed);
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(plan.clone());
            let mut state = seed | 1;
            let mut draw = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) % below
            };
            for _ in 0..3000 {
                world.step(&Step::drawn(&mut draw));
            }
            world.drain();
            (world.steps, world.book.served, world.book.failed)
        });
        match outcome {
            Ok(it) => {
                steps += it.0;
                served += it.1;
                failed += it.2;
            }
            Err(cause) => {
                eprintln!("HYDRANT_SOAK_SEED={seed}: {plan:?}");
                std::panic::resume_unwind(cause);
            }
        }
        seed += 1;
    }
    println!(
        "{} worlds, {steps} steps, {served} operations served, {failed} failed as they should",
        seed - first
    );
    assert!(served > failed);
}
