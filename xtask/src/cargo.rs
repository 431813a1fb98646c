//! The checks by cargo itself: format, lints, documentation, release build.

use crate::command::{cargo, run};
use crate::dose::Dose;
use crate::error::Error;

/// The commands, the apps that `hydrant run` finds by name, and the libraries for C.
const SHIPPED: &str = "-p hydrant-cli -p hydrant-bench -p hydrant-apps -p hydrant-armci -p hydrant-capi \
                       -p hydrant-mooncake";

/// The first command of the README, which builds what it runs.
const FIRST_COMMAND: &str = "run --release -- run -n 4 cannon";

/// The code is formatted.
pub(crate) fn fmt() -> Result<Vec<String>, Error> {
    run(cargo("fmt --all --check"))?;
    Ok(vec![])
}

/// No lint warns, in any target of any crate.
pub(crate) fn clippy() -> Result<Vec<String>, Error> {
    run(cargo("clippy --workspace --all-targets -- -D warnings"))?;
    Ok(vec![])
}

/// No lint warns in any target of these packages.
pub(crate) fn clippy_of(packages: &[String]) -> Result<Vec<String>, Error> {
    let mut command = cargo("clippy --all-targets");
    for package in packages {
        command.args(["-p", package]);
    }
    command.args(["--", "-D", "warnings"]);
    run(command)?;
    Ok(vec![])
}

/// The documentation builds without a warning.
pub(crate) fn doc() -> Result<Vec<String>, Error> {
    let mut command = cargo("doc --workspace --no-deps");
    command.env("RUSTDOCFLAGS", "-D warnings");
    run(command)?;
    Ok(vec![])
}

/// Checks the first command of the README. The long dose also builds everything that users run or link.
pub(crate) fn build(dose: Dose) -> Result<Vec<String>, Error> {
    if dose == Dose::Long {
        run(cargo(&format!("build --release {SHIPPED}")))?;
    }
    run(cargo(FIRST_COMMAND))?;
    Ok(vec![])
}
