//! `cargo xtask hosts`: jobs over libfabric between hosts that are network namespaces, and faults
//! between them.
//!
//! Each host has an interface at a bridge, its own loopback, and a name. A script makes the hosts,
//! starts the jobs and injects the faults. It has namespaces of its own for processes, mounts, and
//! the network of the bridge. So nothing of it can be seen from outside, or outlives it.

mod attack;
mod scenarios;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use clap::Args;

use crate::command::{at_root, quoted, run_listening, succeeded, succeeds, target_folder};
use crate::dose::Dose;
use crate::error::Error;
use crate::faults::runs::Listener;
use crate::faults::scenarios::Scenario;
use crate::faults::{FaultsOutcome, JOB, calls, in_dose};
use crate::programs;
use crate::tool::Tool;
use attack::Attack;
use scenarios::ALL;

/// The tools that the check needs.
pub(crate) const TOOLS: &[Tool] = &[
    Tool::Cc,
    Tool::Libfabric,
    Tool::Ip,
    Tool::Nft,
    Tool::SshClient,
    Tool::SshServer,
    Tool::Hydra,
    Tool::OpenMpi,
    Tool::LibPmix,
];

/// The choice of scenarios, and the file for the table.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// How many scenarios, and how often each
    #[arg(long, value_enum, default_value_t)]
    dose: Dose,

    /// Only scenarios whose names have this in them, from the long dose
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Also write the table, as Markdown, to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Attack ranks: what the script runs
    #[command(subcommand)]
    attack: Option<Attack>,
}

impl Arguments {
    /// The arguments of a dose.
    pub(crate) fn of(dose: Dose) -> Self {
        Self {
            dose,
            only: None,
            markdown: None,
            attack: None,
        }
    }

    fn chosen(&self) -> Vec<Scenario> {
        match &self.only {
            None => in_dose(ALL, self.dose),
            Some(text) => (ALL.iter().copied())
                .filter(|it| it.name.contains(text))
                .collect(),
        }
    }
}

/// A command line that gets namespaces of its own, which end with it.
const APART: [&str; 11] = [
    "setpriv",
    "--pdeathsig",
    "KILL",
    "--",
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--mount-proc",
    "--kill-child",
    "--",
];

/// Runs the scenarios.
pub(crate) fn check(arguments: &Arguments) -> Result<Vec<String>, Error> {
    if let Some(attack) = &arguments.attack {
        return attack.run();
    }
    allowed()?;
    programs::build_shipped()?;
    let chosen = arguments.chosen();
    let calls = format!("exec 2>&1\n{}", calls(&chosen));
    let mut listener = Listener::new(&chosen);
    let script = script("debug", &calls)?;
    let (command, status) = run_listening(script, |line| listener.listen(line))?;
    succeeded(command, status, vec![])?;
    let outcome = FaultsOutcome::of(&listener.tried())?;
    if let Some(file) = &arguments.markdown {
        fs::write(file, &outcome.table).map_err(not_written(file))?;
    }
    outcome.checked()
}

/// The functions by which a script makes hosts. It says first which folders to work in.
pub(crate) const FUNCTIONS: &str = include_str!("functions.sh");

/// A script in namespaces of its own.
pub(crate) fn apart(script: &Path) -> Command {
    let mut command = at_root(APART[0]);
    command.args(&APART[1..]).arg("sh").arg(script);
    command
}

/// Checks that this machine lets us make namespaces and join them.
pub(crate) fn allowed() -> Result<(), Error> {
    let mut attempt = at_root(APART[0]);
    attempt.args(&APART[1..]).args(["sh", "-c"]);
    attempt.arg(concat!(
        "mount -t tmpfs hosts /run && mkdir /run/netns && ip netns add a && ",
        "ip link add br0 type bridge && ip link add va type veth peer name eth0 netns a"
    ));
    if succeeds(attempt) {
        return Ok(());
    }
    let why = "this machine does not let us make network namespaces (it takes root)".to_owned();
    Err(Error::not_allowed(why))
}

/// A script that begins with the functions for hosts, and then does `rest`, in namespaces of its own.
/// The programs are those of a profile. The file stays, so that it can be run again by hand.
pub(crate) fn script(profile: &str, rest: &str) -> Result<Command, Error> {
    let folder = target_folder().join("hosts");
    let this = env::current_exe().map_err(not_written(&folder))?;
    let mut text = format!(
        "target={}\nxtask={}\n",
        quoted(&target_folder().join(profile).to_string_lossy()),
        quoted(&this.to_string_lossy())
    );
    text += "work=/run/hydrant-hosts\n";
    text += JOB;
    text += FUNCTIONS;
    text += rest;
    let file = folder.join(format!("hosts-{}.sh", process::id()));
    let wrote = fs::create_dir_all(folder).and_then(|()| fs::write(&file, text));
    wrote.map_err(not_written(&file))?;
    Ok(apart(&file))
}

pub(crate) fn not_written(file: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = file.to_owned();
    move |source| Error::Install {
        doing: "write",
        path,
        source,
    }
}
