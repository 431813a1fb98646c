//! The programs on a real RDMA device, where there is one: `hydrant run --conduit verbs`, with a
//! limit so low that moves and evictions happen all the time.

mod support;

use hydrant::{Strategy, settings};
use support::{Launcher::Verbs, report};

const CANNON: &str = env!("CARGO_BIN_EXE_cannon");
const BITONIC: &str = env!("CARGO_BIN_EXE_bitonic");

/// Every strategy except `paging`, which needs NICs with on-demand paging; none without a device.
fn strategies() -> impl Iterator<Item = Strategy> {
    let ports = settings::rdma_ports(&hydrant::Settings::new());
    if let Err(why) = &ports {
        eprintln!("left out: {why}");
    }
    (Strategy::ALL.into_iter())
        .filter(|strategy| *strategy != Strategy::Paging)
        .filter(move |_| ports.is_ok())
}

#[test]
fn bitonic_gives_the_serial_answer_under_every_strategy() {
    for strategy in strategies() {
        for ranks in [2, 4, 8] {
            let arguments = ["--n", "16384"];
            let report = report(Verbs(strategy.name()), ranks, BITONIC, &arguments).unwrap();
            assert_eq!(report["verified"], "full", "{strategy} on {ranks} ranks");
        }
    }
}

#[test]
fn cannon_gives_the_serial_answer_under_every_strategy() {
    for strategy in strategies() {
        let report = report(Verbs(strategy.name()), 4, CANNON, &["--n", "96"]).unwrap();
        assert_eq!(report["verified"], "full", "{strategy}");
    }
    for strategy in strategies().filter(|strategy| *strategy == Strategy::Firehose) {
        for arguments in [
            ["--n", "24", "--put", "1"],
            ["--n", "96", "--accumulate", "local"],
        ] {
            let report = report(Verbs(strategy.name()), 4, CANNON, &arguments).unwrap();
            assert_eq!(report["verified"], "full", "{strategy} {arguments:?}");
        }
    }
}
