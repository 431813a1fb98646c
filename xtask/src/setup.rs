//! Installs the tools of the checks: Debian packages where root allows, crates and toolchain
//! components always.

use rustix::process::geteuid;

use crate::command::{at_root, cargo, run, succeeds};
use crate::error::Error;
use crate::report::{CheckRow, timed};
use crate::tool::{Tool, ToolSource, missing, on_path, with_sources};

/// Installs the missing tools, under a heading of its own.
pub(crate) fn report() -> CheckRow {
    timed("setup", install_missing)
}

/// Tries every tool, even after a failure: half a machine runs more checks than none. The tools
/// that are still missing at the end are the error.
fn install_missing() -> Result<Vec<String>, Error> {
    let wanted = missing(&Tool::ALL);
    let apt = |tool: &Tool| match tool.source() {
        ToolSource::Apt(package) => Some(package),
        _ => None,
    };
    let packages: Vec<_> = wanted.iter().filter_map(apt).collect();
    let mut problems = Vec::new();
    let mut keep = |outcome: Result<(), Error>| {
        problems.extend(outcome.err().map(|error| error.to_string()));
    };

    if !packages.is_empty() {
        keep(apt_install(&packages));
    }
    for tool in &wanted {
        match tool.source() {
            ToolSource::Component(name) => keep(add_component(name)),
            ToolSource::Crate(name, arguments) => keep(install_crate(name, arguments)),
            ToolSource::Apt(_) | ToolSource::ByHand(_) => {}
        }
    }

    let mut lacking = missing(&wanted);
    lacking.retain(|tool| !matches!(tool.source(), ToolSource::ByHand(_)));
    if lacking.is_empty() {
        return Ok(vec![]);
    }
    Err(Error::NotInstalled(format!(
        "still missing: {}\n{}",
        with_sources(&lacking),
        problems.join("\n")
    )))
}

/// Installs Debian packages, where root and apt are at hand.
pub(crate) fn apt_install(packages: &[&str]) -> Result<(), Error> {
    let typed = format!("apt-get install {}", packages.join(" "));
    let prefix = apt_prefix(&typed)?;
    // Old package lists may be good enough, so the install decides.
    let updated = run(apt_get(&prefix, &["update", "--quiet"]));
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    run(apt_get(&prefix, &arguments)).or_else(|error| updated.and(Err(error)))
}

/// Makes apt update its package lists.
pub(crate) fn apt_update() -> Result<(), Error> {
    let prefix = apt_prefix("apt-get update")?;
    run(apt_get(&prefix, &["update", "--quiet"]))
}

/// The prefix of `typed`, which needs apt and root.
fn apt_prefix(typed: &str) -> Result<Vec<&'static str>, Error> {
    if !on_path("apt-get") {
        let problem = format!("no apt-get on this system for `{typed}`");
        return Err(Error::NotInstalled(problem));
    }
    let refused = || Error::NotInstalled(format!("not allowed to: run `{typed}` as root"));
    root_prefix().ok_or_else(refused)
}

/// The prefix of a command that needs root; `None` where there is no way.
fn root_prefix() -> Option<Vec<&'static str>> {
    if geteuid().is_root() {
        return Some(vec![]);
    }
    let mut sudo = at_root("sudo");
    sudo.args(["-n", "true"]);
    succeeds(sudo).then(|| vec!["sudo", "-n"])
}

fn apt_get(prefix: &[&str], arguments: &[&str]) -> std::process::Command {
    // `env` sets the environment, because sudo passes none on.
    let words = [
        prefix,
        &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"],
        arguments,
    ]
    .concat();
    let mut command = at_root(words[0]);
    command.args(&words[1..]);
    command
}

fn add_component(name: &str) -> Result<(), Error> {
    let mut command = at_root("rustup");
    command.args(["component", "add", name]);
    run(command)
}

fn install_crate(name: &str, arguments: &[&str]) -> Result<(), Error> {
    let mut command = cargo("install --locked");
    command.arg(name).args(arguments);
    // Quick builds of these tools are worth more than quick tools, because the tools wait for
    // compilers and tests.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    run(command)
}
