//! The protocol at scale: invariants that hold whatever the figures are.

use super::*;

fn outcome(setup: &ScaleSetup) -> ScaleOutcome {
    let profile = Profile::named("myrinet-gm").expect("it is shipped");
    run(&profile, setup, &mut |_| {}).expect("it runs")
}

fn small(traffic: Traffic) -> ScaleSetup {
    let mut setup = ScaleSetup::new(32, traffic);
    setup.area = 64 << 10;
    setup.puts = 100;
    setup.warm_up = 100;
    setup.m = 8 << 20;
    setup.maxvictim = 1 << 20;
    setup
}

#[test]
fn the_same_setup_has_the_same_outcome() {
    for traffic in Traffic::ALL {
        let mut setup = small(traffic);
        setup.borrowing = true;
        setup.adaptive_victims = true;
        assert_eq!(outcome(&setup), outcome(&setup), "{traffic}");
        let one = outcome(&setup);
        setup.seed = 2;
        assert_ne!(one, outcome(&setup), "{traffic}");
    }
}

#[test]
fn every_put_is_done_within_the_limits() {
    for traffic in Traffic::ALL {
        for (borrowing, adaptive_victims) in [(false, false), (true, false), (true, true)] {
            let setup = ScaleSetup {
                // Down to a single firehose for each peer.
                m: 31 * 4096,
                maxvictim: 4 * 4096,
                borrowing,
                adaptive_victims,
                ..small(traffic)
            };
            let outcome = outcome(&setup);
            let putting = if traffic == Traffic::HotSpot { 30 } else { 32 };
            assert_eq!(outcome.puts, putting * 100, "{traffic}");
            assert!(outcome.registered_peak <= setup.m + setup.maxvictim);
            assert!(outcome.p99 >= outcome.mean / 2 && outcome.longest >= outcome.p99);
        }
    }
}

#[test]
fn a_hit_takes_what_the_profile_says() {
    let mut setup = small(Traffic::Neighbour);
    setup.ranks = 2;
    setup.warm_up = 500;
    let outcome = outcome(&setup);
    assert_eq!(outcome.hit_share(), 1.0);
    // The lookup, the post, the NICs, the wire and the acknowledgement. The sum is below the round
    // trip of two messages and above the wire there and back.
    assert!(
        (10_000..20_000).contains(&(outcome.mean.as_nanos() as u64)),
        "{outcome:?}"
    );
}

#[test]
fn borrowing_feeds_hot_spots_that_a_static_share_starves() {
    let mut setup = small(Traffic::HotSpot);
    // A share of 4 of 16 buckets; the fifteen putting ranks hold at most 240 of 124.
    setup.m = 31 * 4 * 4096;
    setup.area = 8 * 4096;
    setup.puts = 400;
    let fixed = outcome(&setup);
    setup.borrowing = true;
    let borrowed = outcome(&setup);
    assert!(fixed.hit_share() < 0.6, "{fixed:?}");
    assert!(borrowed.lent > 0, "{borrowed:?}");
    assert!(borrowed.hit_share() > fixed.hit_share(), "{borrowed:?}");
}

#[test]
fn ten_thousand_ranks_are_no_problem() {
    let mut setup = ScaleSetup::new(10_000, Traffic::Uniform);
    setup.puts = 8;
    setup.warm_up = 0;
    assert_eq!(outcome(&setup).puts, 80_000);
}

#[test]
fn impossible_setups_are_refused() {
    let profile = Profile::named("myrinet-gm").expect("it is shipped");
    let refused = |change: fn(&mut ScaleSetup)| {
        let mut setup = small(Traffic::Uniform);
        change(&mut setup);
        run(&profile, &setup, &mut |_| {}).expect_err("it cannot be")
    };
    assert!(matches!(refused(|s| s.ranks = 1), ScaleError::Setup(_)));
    assert!(matches!(refused(|s| s.bytes = 0), ScaleError::Setup(_)));
    assert!(matches!(refused(|s| s.source = 4), ScaleError::Setup(_)));
    assert!(matches!(refused(|s| s.m = 4096), ScaleError::Pinning(_)));
    assert!(matches!(refused(|s| s.m = 1 << 40), ScaleError::Pinning(_)));
}
