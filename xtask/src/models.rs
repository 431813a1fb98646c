//! The checks that run code under a model: loom and miri.

use crate::command::cargo;
use crate::error::Error;
use crate::runners::libtest;
use crate::tool::{Tool, lacking, miri_toolchain};

/// The loom models: package, and the prefix of their tests' names.
const LOOM: [(&str, &str); 3] = [
    ("hydrant-smp", "loom_"),
    ("hydrant-pinning", "loom_"),
    ("hydrant-foresight", "loom_"),
];

/// The number of preemptions in one execution. Loom's documentation finds 2 or 3 enough for most
/// bugs; without a bound, models run for hours.
const LOOM_MAX_PREEMPTIONS: &str = "3";

/// Packages miri can run: no mapped files, no other processes.
const MIRI: [&str; 1] = ["hydrant-conduit"];

/// Every interleaving of the lock-free code.
pub(crate) fn loom() -> Result<Vec<String>, Error> {
    let mut results = Vec::new();
    for (package, prefix) in LOOM {
        let mut command = cargo("test --profile model --lib");
        command.args(["-p", package, prefix]);
        // A separate folder, because the flags would rebuild everything else.
        command.args(["--target-dir", "target/loom"]);
        command.env("RUSTFLAGS", "--cfg loom");
        command.env("LOOM_MAX_PREEMPTIONS", LOOM_MAX_PREEMPTIONS);
        results.extend(libtest(command)?);
    }
    Ok(results)
}

/// Tests read files of the system. Atomics of two sizes that overlap end miri, if it plays weak memory (1.97 nightly).
const MIRIFLAGS: &str =
    "-Zmiri-strict-provenance -Zmiri-disable-isolation -Zmiri-disable-weak-memory-emulation";

/// No undefined behaviour that miri can see.
pub(crate) fn miri() -> Result<Vec<String>, Error> {
    let Some(mut command) = miri_toolchain() else {
        return Err(lacking(&[Tool::Miri]));
    };
    command.arg("test");
    for package in MIRI {
        command.args(["-p", package]);
    }
    command.env("MIRIFLAGS", MIRIFLAGS);
    // Programs are slow under miri, so that few random cases must do.
    command.env("PROPTEST_CASES", "4");
    libtest(command)
}
