//! The programs where only pinned memory is reached: `hydrant run --conduit smp+pin`, with a limit
//! so low that moves and evictions happen all the time.

mod support;

use hydrant::Strategy;
use support::{Launcher::Pinned, fails, report};

const CANNON: &str = env!("CARGO_BIN_EXE_cannon");
const BITONIC: &str = env!("CARGO_BIN_EXE_bitonic");

/// Every strategy except `paging`, which needs NICs with on-demand paging.
fn strategies() -> impl Iterator<Item = Strategy> {
    (Strategy::ALL.into_iter()).filter(|strategy| *strategy != Strategy::Paging)
}

#[test]
fn bitonic_gives_the_serial_answer_under_every_strategy() {
    for strategy in strategies() {
        for ranks in [2, 4, 8] {
            let launcher = Pinned(strategy.name());
            let report = report(launcher, ranks, BITONIC, &["--n", "20000"]).unwrap();
            assert_eq!(report["verified"], "full", "{strategy} on {ranks} ranks");
        }
    }
}

#[test]
fn cannon_gives_the_serial_answer_under_every_strategy() {
    for strategy in strategies() {
        for (ranks, arguments) in [
            (1, ["--n", "61"].as_slice()),
            (4, &["--n", "128"]),
            (4, &["--n", "128", "--accumulate", "local"]),
            (4, &["--n", "24", "--put", "1"]),
            (9, &["--n", "60"]),
        ] {
            let report = report(Pinned(strategy.name()), ranks, CANNON, arguments).unwrap();
            assert_eq!(report["verified"], "full", "{strategy} {arguments:?}");
        }
    }
}

#[test]
fn strategies_for_nics_that_page_are_refused() {
    let message = "the NIC of smp+pin does not page";
    fails(Pinned("paging"), 1, BITONIC, &[], 1, message);
}
