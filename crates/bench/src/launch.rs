//! A process of this command that launches the ranks of a measurement, like `hydrant run`.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use hydrant::ConduitKind;
use hydrant_launch::launcher::{self, Host, Prefix, Spec};
use hydrant_report::remote::RemoteArgs;
use hydrant_report::status::print_message;

/// The first argument of a process that launches ranks; [`words`] and the ranks' arguments follow.
pub(crate) const LAUNCH: &str = "launch";

/// The first argument of a process that starts the ranks of its host for a launcher elsewhere.
pub(crate) const AGENT: &str = "agent";

/// The name of this program.
const PROGRAM: &str = "hydrant-bench";

/// A launcher of ranks; the command itself starts it.
#[derive(Debug, Parser)]
struct LaunchArgs {
    ranks: u32,
    #[command(flatten)]
    remote: RemoteArgs,
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Returns the arguments of a process that launches ranks on these hosts, or here. Those of the ranks follow.
pub(crate) fn words(ranks: u32, remote: &RemoteArgs, hosts: &[Host]) -> Vec<OsString> {
    let mut words = vec![ranks.to_string().into()];
    words.extend(remote.words(hosts));
    words.push("--".into());
    words
}

/// Launches the ranks. Returns the status of the job.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = LaunchArgs::parse_from([OsString::from(LAUNCH)].into_iter().chain(arguments));
    let conduit = env::var("HYDRANT_CONDUIT").ok();
    let conduit: Option<ConduitKind> = conduit.and_then(|name| name.trim().parse().ok());
    let simulated = conduit.is_some_and(|it| it.is_virtual());
    let mut command = arguments.remote.command(PROGRAM).into_iter();
    let program = command.next().unwrap_or_default();
    let mut spec = Spec::for_network(simulated, arguments.ranks, program);
    spec.arguments = command.chain(arguments.arguments).collect();
    if !arguments.remote.hosts.is_empty() {
        // Rank 0 prints its reports.
        spec.prefix = Prefix::None;
        spec.remote = arguments.remote.reach();
    }
    match launcher::run(&spec, &mut |event| print_message("bench", &event)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            print_message("bench", &error);
            ExitCode::from(error.status())
        }
    }
}
