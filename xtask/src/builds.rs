//! The checks that compile the workspace in other ways: with the oldest Rust, for another
//! processor, with each feature alone, with a sanitizer.

use crate::command::{by_rustup, cargo, run};
use crate::error::Error;
use crate::runners::libtest;
use crate::tool::{AARCH64, OLDEST};

/// The features of `hydrant`, each tried alone.
const FEATURES: [&str; 7] = [
    "verbs",
    "pin",
    "log",
    "sim",
    "foresight",
    "half",
    "num-complex",
];

/// The processor and system of this machine, where sanitizers run.
const HOST: &str = "x86_64-unknown-linux-gnu";

/// The packages whose tests exercise lock-free code within a process.
const LOCK_FREE: [&str; 3] = ["hydrant-smp", "hydrant-pinning", "hydrant-foresight"];

/// The sanitizers that try them.
const SANITIZERS: [&str; 2] = ["thread", "address"];

/// The crates that users build compile with the oldest supported Rust.
pub(crate) fn msrv() -> Result<Vec<String>, Error> {
    let toolchain = format!("+{OLDEST}");
    // A folder of its own, because another compiler builds everything again.
    let mut command = by_rustup(&[&toolchain, "check", "--workspace"]);
    command.args(["--target-dir", "target/msrv"]);
    run(command)?;
    Ok(vec![])
}

/// Every crate and its tests have right types on another processor. Nothing is linked or run.
pub(crate) fn aarch64() -> Result<Vec<String>, Error> {
    run(cargo(&format!("check --workspace --target {AARCH64}")))?;
    Ok(vec![])
}

/// `hydrant` has no lint with each of its features alone, and a program works without any.
pub(crate) fn features() -> Result<Vec<String>, Error> {
    let alone = FEATURES.map(|feature| format!("--no-default-features --features {feature}"));
    let combinations = ["", "--no-default-features"];
    for features in combinations
        .into_iter()
        .chain(alone.iter().map(String::as_str))
    {
        run(cargo(&format!(
            "clippy -p hydrant {features} -- -D warnings"
        )))?;
    }
    libtest(cargo("test -p hydrant-bare --test bare"))
}

/// The lock-free code has no data race and no wrong access that sanitizers see.
pub(crate) fn sanitizers() -> Result<Vec<String>, Error> {
    let mut results = Vec::new();
    for sanitizer in SANITIZERS {
        // The standard library is compiled, too: its locks would look like races.
        let words = ["+nightly", "test", "--lib", "-Zbuild-std", "--target", HOST];
        let mut command = by_rustup(&words);
        for package in LOCK_FREE {
            command.args(["-p", package]);
        }
        command.args(["--target-dir", "target/sanitizers"]);
        command.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
        results.extend(libtest(command)?);
    }
    Ok(results)
}
