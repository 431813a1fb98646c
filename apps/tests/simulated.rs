//! The programs in virtual time: `hydrant run --conduit sim:PROFILE`.

mod support;

use support::{
    Launcher::{Simulated, Squeezed},
    fails, job, report, texts,
};

const CANNON: &str = env!("CARGO_BIN_EXE_cannon");
const BITONIC: &str = env!("CARGO_BIN_EXE_bitonic");
const TORTURE: &str = env!("CARGO_BIN_EXE_torture");

const PROFILES: [&str; 2] = ["ideal", "myrinet-gm"];

#[test]
fn bitonic_gives_the_serial_answer() {
    for profile in PROFILES {
        for ranks in [1, 2, 4, 8] {
            let launcher = Simulated(profile);
            let report = report(launcher, ranks, BITONIC, &["--n", "1001"]).unwrap();
            assert_eq!(report["verified"], "full");
        }
    }
}

#[test]
fn cannon_gives_the_serial_answer() {
    for profile in PROFILES {
        for ranks in [1, 4, 9] {
            for accumulate in ["local", "remote"] {
                let arguments = ["--n", "61", "--accumulate", accumulate];
                let report = report(Simulated(profile), ranks, CANNON, &arguments).unwrap();
                assert_eq!(report["verified"], "full");
            }
        }
    }
}

/// Every strategy on every machine of the papers.
#[test]
fn every_pair_gives_the_serial_answer() {
    const MACHINES: [&str; 6] = [
        "ideal",
        "myrinet-gm",
        "myrinet-pm",
        "myrinet-gm-armci",
        "clan-via",
        "connectx",
    ];
    for strategy in hydrant::Strategy::ALL {
        for profile in MACHINES {
            let launcher = Squeezed(profile, strategy.name());
            for (ranks, program, arguments) in [
                (4, CANNON, ["--n", "128"].as_slice()),
                (4, CANNON, &["--n", "24", "--put", "1"]),
                (8, BITONIC, &["--n", "20000"]),
            ] {
                let report = report(launcher, ranks, program, arguments).unwrap();
                assert_eq!(report["verified"], "full", "{profile} {strategy} {program}");
            }
        }
    }
}

/// Reports must be equal, with time and all counters, on machines whose registration costs by call
/// and by page. Nothing of the simulating machine may show, such as the addresses of its heap.
#[test]
fn the_same_run_gives_the_same_report() {
    let sort: &[&str] = &["--n", "20000", "--put", "16"];
    let multiply: &[&str] = &["--n", "61", "--put", "3", "--accumulate", "remote"];
    for (profile, ranks, program, arguments) in [
        ("ideal", 4, BITONIC, sort),
        ("myrinet-gm", 8, BITONIC, sort),
        ("connectx", 4, BITONIC, sort),
        ("myrinet-gm", 4, CANNON, multiply),
        ("clan-via", 9, CANNON, multiply),
    ] {
        let run = || report(Simulated(profile), ranks, program, arguments).unwrap();
        let first = run();
        for _ in 0..3 {
            assert_eq!(run(), first, "{program} on {profile}");
        }
    }
}

/// Its last step waits for a rank at its end. That rank completes calls whose buffers have the same
/// addresses in each run.
#[test]
fn the_same_random_test_gives_the_same_report() {
    let arguments = ["--rounds", "1", "--seed", "591844917", "--leak"];
    let arguments = [&arguments[..], &["--format", "json"]].concat();
    for strategy in ["firehose", "pin-everything"] {
        let run = || {
            let output = job(Squeezed("ideal", strategy), 4, TORTURE, &arguments).unwrap();
            let (out, err) = texts(&output);
            assert!(output.status.success(), "{}: {out}{err}", output.status);
            out
        };
        let first = run();
        for _ in 0..3 {
            assert_eq!(run(), first, "{strategy}");
        }
    }
}

#[test]
fn bad_profiles_and_failures_are_reported_once() {
    let message = "did you mean myrinet-gm?";
    fails(Simulated("myrinet-gn"), 2, BITONIC, &[], 1, message);
    let message = "3 ranks make no square mesh";
    fails(Simulated("ideal"), 3, CANNON, &[], 1, message);
}
