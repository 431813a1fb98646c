//! The helper's plan in virtual time.

mod world;

use std::path::Path;

use hydrant_foresight::plan::PlanConfig;
use hydrant_foresight::sharing::Sharing;
use hydrant_traces::{evaluation::TraceClock, trace::Trace};
use proptest::prelude::*;
use world::{ProgramStep, RunSetup, program, run};

const MB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// The paper's Figure 1: three buffers of 5 MB are sent in turn, with a second of computing after each.
fn figure_1(rounds: u64, reuse: bool) -> Vec<ProgramStep> {
    let round = move |round: u64| {
        (0..3).map(move |buffer| ProgramStep {
            compute_ns: SECOND,
            site: buffer,
            addr: (1 << 32) + (buffer + if reuse { 0 } else { 3 * round }) * 8 * MB,
            bytes: 5 * MB,
            transfer_ns: 2_000_000,
        })
    };
    (0..rounds).flat_map(round).collect()
}

fn setup() -> RunSetup {
    RunSetup::new(PlanConfig::DEFAULT)
}

#[test]
fn figure_1_keeps_one_buffer_registered_and_the_critical_path_free() {
    let program = figure_1(10, true);
    let computing: u64 = program
        .iter()
        .map(|it| it.compute_ns + it.transfer_ns)
        .sum();
    let outcome = run(&setup(), vec![program]);
    // The first two rounds teach the predictor. With the paper's window, three uses each are new signatures twice.
    assert!(outcome.stats.on_demand <= 8, "{outcome:?}");
    assert_eq!((outcome.stats.late, outcome.stats.unused), (0, 0));
    assert!(outcome.stats.found >= 22, "{outcome:?}");
    // Without a helper, all three would stay registered.
    assert_eq!(outcome.peak_bytes, 5 * MB);
    assert!(outcome.mean_bytes < 0.02 * (5 * MB) as f64, "{outcome:?}");
    assert_eq!(outcome.end.0, computing + outcome.times.registering_ns);
}

#[test]
fn buffers_that_are_never_used_again_are_deregistered() {
    let outcome = run(&setup(), vec![figure_1(10, false)]);
    assert_eq!(outcome.stats.on_demand, 30);
    assert_eq!(outcome.peak_bytes, 5 * MB);
}

#[test]
fn a_starved_helper_leaves_everything_registered_on_demand() {
    let starved = RunSetup {
        is_starved: true,
        ..setup()
    };
    let outcome = run(&starved, vec![figure_1(100, true)]);
    let once = setup().plan.costs.register.of(5 * MB / 4096);
    assert_eq!(outcome.times.registering_ns, 3 * once);
    assert_eq!((outcome.times.waiting_ns, outcome.peak_bytes), (0, 15 * MB));
}

#[test]
fn registrations_that_fail_are_left_to_the_application() {
    let failing = RunSetup {
        failing: 3,
        ..setup()
    };
    let outcome = run(&failing, vec![figure_1(20, true)]);
    assert!(outcome.stats.failed >= 3, "{outcome:?}");
    assert!(
        outcome.stats.on_demand >= outcome.stats.failed,
        "{outcome:?}"
    );
    assert!(outcome.stats.ahead > 20, "{outcome:?}");
}

/// Exchanges close together, then computing: the second registration must not make the first late.
fn pairs(rounds: u64, apart_ns: u64) -> Vec<ProgramStep> {
    let round = move |_| {
        [(SECOND / 100, 1u64), (apart_ns, 2), (apart_ns, 3)].map(|(compute_ns, site)| ProgramStep {
            compute_ns,
            site,
            addr: site << 32,
            bytes: MB,
            transfer_ns: 1000,
        })
    };
    (0..rounds).flat_map(round).collect()
}

#[test]
fn neighbours_are_all_registered_in_time() {
    let outcome = run(&setup(), vec![pairs(50, 2000)]);
    assert_eq!(
        (outcome.stats.late, outcome.times.waiting_ns),
        (0, 0),
        "{outcome:?}"
    );
    assert!(outcome.stats.ahead >= 3 * 45, "{outcome:?}");
}

#[test]
fn a_helper_that_shares_its_core_keeps_what_it_cannot_register_in_time() {
    // The whole period is 10 ms; three helpers take turns of 4 ms each.
    let sharing = Sharing {
        helpers: 3,
        time_slice_ns: 4_000_000,
        context_switch_ns: 2000,
    };
    let plan = PlanConfig {
        sharing,
        ..PlanConfig::DEFAULT
    };
    let shared = run(&RunSetup::new(plan), vec![pairs(50, 2000)]);
    assert_eq!(shared.stats.late, 0, "{shared:?}");
    let alone = run(&setup(), vec![pairs(50, 2000)]);
    assert!(
        shared.mean_bytes > 5.0 * alone.mean_bytes,
        "{shared:?} beside {alone:?}"
    );
}

#[test]
fn one_region_of_two_call_sites_is_kept_for_the_nearer() {
    // The same buffer, 100 µs after one site's use and 10 ms after the other's.
    let round = |_| {
        [(10_000_000, 1u64), (100_000, 2)].map(|(compute_ns, site)| ProgramStep {
            compute_ns,
            site,
            addr: 1 << 32,
            bytes: MB,
            transfer_ns: 1000,
        })
    };
    let outcome = run(&setup(), vec![(0..40).flat_map(round).collect()]);
    // Between the two uses the buffer stays registered: deregistering and registering again takes longer.
    assert_eq!(outcome.stats.late, 0, "{outcome:?}");
    assert!(outcome.stats.on_demand <= 6, "{outcome:?}");
    assert!((30..=40).contains(&outcome.stats.ahead), "{outcome:?}");
    assert!(outcome.mean_bytes < 0.2 * MB as f64, "{outcome:?}");
}

#[test]
fn the_limit_is_kept_where_the_buffers_need_more() {
    // Four buffers of 1 MB, used 5 µs apart, and room for two.
    let round = |_| {
        (1..=4u64).map(|site| ProgramStep {
            compute_ns: if site == 1 { 5_000_000 } else { 5000 },
            site,
            addr: site << 32,
            bytes: MB,
            transfer_ns: 1000,
        })
    };
    let plan = PlanConfig {
        limit_bytes: 2 * MB,
        ..PlanConfig::DEFAULT
    };
    let outcome = run(
        &RunSetup::new(plan),
        vec![(0..40).flat_map(round).collect()],
    );
    // The simulated NIC checks the limit at every registration.
    assert_eq!(outcome.peak_bytes, 2 * MB);
    assert!(outcome.stats.refused > 0, "{outcome:?}");
    assert_eq!(outcome.stats.refused, outcome.times.refused);
    // Few waits show that regions do not evict each other in turn.
    let once = setup().plan.costs.register.of(MB / 4096);
    assert!(outcome.times.waiting_ns < 40 * 2 * once, "{outcome:?}");
    // The helper keeps two of the buffers ready all the same.
    assert!(outcome.stats.ahead >= 2 * 30, "{outcome:?}");
}

#[test]
fn a_program_that_stops_using_a_buffer_gives_it_back() {
    let mut program = figure_1(6, true);
    // The program goes on with another buffer.
    let first = program[0];
    program.extend((0..40).map(|_| ProgramStep {
        addr: 1 << 40,
        site: 9,
        ..first
    }));
    let outcome = run(&setup(), vec![program]);
    assert!(outcome.stats.unused >= 1, "{outcome:?}");
    assert_eq!(outcome.stats.late, 0, "{outcome:?}");
    assert!(outcome.mean_bytes < 5.0 * MB as f64 / 2.0, "{outcome:?}");
}

#[test]
fn too_small_a_queue_costs_memory_and_nothing_else() {
    // A large message follows 300 small ones, more than the queue holds.
    let round = |_| {
        let small = (0..300).map(|it| ProgramStep {
            compute_ns: 1,
            site: 100 + it,
            addr: 64,
            bytes: 8,
            transfer_ns: 1,
        });
        small.chain([ProgramStep {
            compute_ns: 3_000_000,
            site: 1,
            addr: 1 << 32,
            bytes: MB,
            transfer_ns: 1000,
        }])
    };
    let small = RunSetup {
        records: 16,
        ..setup()
    };
    let outcome = run(&small, vec![(0..30).flat_map(round).collect()]);
    assert!(outcome.overwritten > 0);
    assert!(outcome.stats.found + outcome.stats.on_demand <= 30);
}

/// The trace of a benchmark of class S on 4 ranks.
fn trace(benchmark: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro/traces/data");
    hydrant_traces::read(&folder.join(format!("{benchmark}.S.4.tar.zst"))).unwrap()
}

#[test]
fn a_real_program_is_served() {
    let trace = trace("ft");
    for clock in [TraceClock::Computing, TraceClock::Smooth] {
        for rank in trace.ranks() {
            let program = program(rank, clock);
            let wanting = program.iter().filter(|it| it.bytes > 16 << 10).count() as u64;
            let starved = RunSetup {
                is_starved: true,
                ..setup()
            };
            let pinned = run(&starved, vec![program.clone()]);
            let outcome = run(&setup(), vec![program]);
            let stats = outcome.stats;
            assert_eq!(stats.found + stats.on_demand, wanting);
            // FT exchanges eight buffers eight times. The first times teach, and then how much room it takes.
            assert!(
                stats.ahead >= wanting / 4 && stats.late <= 2,
                "{clock:?}: {outcome:?}"
            );
            assert!(
                outcome.peak_bytes <= pinned.peak_bytes,
                "{clock:?}: {outcome:?}"
            );
            assert!(
                outcome.mean_bytes < pinned.mean_bytes / 5.0,
                "{clock:?}: {outcome:?}"
            );
        }
    }
}

#[test]
fn a_helper_that_does_not_pay_steps_back() {
    let bounded = RunSetup::new(PlanConfig {
        lost_part: 400,
        ..PlanConfig::DEFAULT
    });
    for name in ["ft", "is", "bt"] {
        let trace = trace(name);
        for rank in trace.ranks() {
            let program = program(rank, TraceClock::Computing);
            let starved = RunSetup {
                is_starved: true,
                ..setup()
            };
            let pinned = run(&starved, vec![program.clone()]);
            let outcome = run(&bounded, vec![program]);
            assert!(
                outcome.end.0 * 100 <= pinned.end.0 * 101,
                "{name}: {outcome:?} beside {pinned:?}"
            );
        }
    }
}

fn step() -> impl Strategy<Value = ProgramStep> {
    (
        1000u64..3_000_000,
        0u64..4,
        0u64..6,
        1u64..80,
        100u64..20_000,
    )
        .prop_map(
            |(compute_ns, site, buffer, pages, transfer_ns)| ProgramStep {
                compute_ns,
                site,
                // Buffers may overlap.
                addr: (1 << 32) + buffer * 40 * 4096,
                bytes: pages * 4096,
                transfer_ns,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever programs do, with whatever noise, limit and failures: what the world checks holds, and every
    /// communication is carried out once.
    #[test]
    fn any_program_runs_to_its_end(
        rounds in prop::collection::vec(prop::collection::vec(step(), 1..8), 1..3),
        noise in prop::collection::vec(0u64..500_000, 64),
        limit_pages in prop_oneof![Just(u64::MAX >> 12), 1u64..200],
        failing in 0u64..5,
        records in 1usize..64,
    ) {
        let repeat = |round: &Vec<ProgramStep>| -> Vec<ProgramStep> {
            let all = (0..30).flat_map(|_| round.clone());
            let noisy = all.zip(noise.iter().cycle());
            noisy.map(|(step, extra)| ProgramStep { compute_ns: step.compute_ns + extra, ..step }).collect()
        };
        let programs: Vec<Vec<ProgramStep>> = rounds.iter().map(repeat).collect();
        let wanting: usize = programs.iter().flatten().filter(|it| it.bytes > 16 << 10).count();
        let plan = PlanConfig { limit_bytes: limit_pages * 4096, ..PlanConfig::DEFAULT };
        let setup = RunSetup { failing, records, ..RunSetup::new(plan) };
        let outcome = run(&setup, programs);
        let stats = outcome.stats;
        prop_assert!(stats.found + stats.on_demand + stats.refused <= wanting as u64);
        prop_assert!(outcome.peak_bytes <= limit_pages * 4096);
        prop_assert!(stats.ahead <= stats.found && stats.late <= stats.on_demand);
    }

    /// Steady programs that leave the helper its time are never late, and learn.
    #[test]
    fn steady_programs_are_never_late(
        round in prop::collection::vec((400_000u64..3_000_000, 1u64..80), 1..6),
    ) {
        let steps = |(site, (compute_ns, pages)): (u64, &(u64, u64))| ProgramStep {
            compute_ns: *compute_ns,
            site,
            addr: (site + 1) << 32,
            bytes: pages * 4096 + 1,
            transfer_ns: 1000,
        };
        let round: Vec<ProgramStep> = (0..).zip(&round).map(steps).collect();
        let program: Vec<ProgramStep> = (0..30).flat_map(|_| round.clone()).collect();
        let wanting = program.iter().filter(|it| it.bytes > 16 << 10).count() as u64;
        let outcome = run(&setup(), vec![program]);
        prop_assert_eq!(outcome.stats.late, 0, "{:?}", &outcome);
        prop_assert_eq!(outcome.times.waiting_ns, 0);
        // Four rounds to learn: two for the window, one for the period, one to be sure.
        prop_assert!(outcome.stats.on_demand * 30 <= wanting * 5, "{:?}", &outcome);
    }
}
