//! The programs on two hosts that share nothing but the network: `hydrant run --hosts`, with half
//! of the ranks on each. They use shared memory within a host and RDMA between hosts. The limit is
//! so low that moves and evictions happen all the time.
//!
//! `HYDRANT_TEST_HOSTS` names the hosts; without it there are none, and nothing runs.

mod support;

use hydrant::Strategy;
use support::{Launcher, report};

const CANNON: &str = env!("CARGO_BIN_EXE_cannon");
const BITONIC: &str = env!("CARGO_BIN_EXE_bitonic");

/// Every strategy except `paging`, which needs NICs with on-demand paging.
fn launchers() -> Vec<Launcher> {
    let Ok(hosts) = std::env::var("HYDRANT_TEST_HOSTS") else {
        eprintln!("left out: HYDRANT_TEST_HOSTS names no hosts");
        return Vec::new();
    };
    let hosts: &'static str = hosts.leak();
    (Strategy::ALL.into_iter())
        .filter(|strategy| *strategy != Strategy::Paging)
        .map(|strategy| Launcher::Hosts(hosts, strategy.name()))
        .collect()
}

#[test]
fn bitonic_gives_the_serial_answer_under_every_strategy() {
    for launcher in launchers() {
        let report = report(launcher, 4, BITONIC, &["--n", "16384"]).unwrap();
        assert_eq!(report["verified"], "full", "{launcher:?}");
    }
}

#[test]
fn cannon_gives_the_serial_answer_under_every_strategy() {
    for launcher in launchers() {
        let report = report(launcher, 4, CANNON, &["--n", "96"]).unwrap();
        assert_eq!(report["verified"], "full", "{launcher:?}");
    }
}
