//! `hydrant run`: starts the ranks of a job, on this host or on several.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hydrant::{ConduitKind, Settings, Strategy};
use hydrant_launch::launcher::{self, Bind, MAX_RANKS, Prefix, Spec};
use hydrant_report::remote::RemoteArgs;
use hydrant_report::status::print_message;

/// The status of a job that could not be started.
const NOT_STARTED: u8 = 125;

/// Start the ranks of a job, on this host or on several
///
/// PROGRAM is a path or a name. A name is looked for beside the hydrant command, where
/// Hydrant's own programs (cannon, bitonic) are built when they are missing, and then in PATH.
///
/// Each rank may be a program on Hydrant, or any other that speaks PMI-1, such as one of MPICH.
/// On a simulated network (--conduit sim:PROFILE) one process is started, whose threads the ranks
/// are; the program must be one on Hydrant.
///
/// On other hosts (--hosts) a remote shell starts the ranks, in the same directory and with the
/// same HYDRANT_ variables. hydrant and the program must have the same paths there. Everything
/// below holds for all hosts together.
///
/// Rank 0 has the standard input. The first rank that fails decides the exit status; the others
/// then have the grace to end by themselves. Processes that ranks start end with the job.
///
/// Ranks get SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 when this command does. After
/// SIGTERM or SIGHUP they have the grace to end, and are killed then; the second SIGINT, SIGTERM,
/// SIGHUP or SIGQUIT kills them at once. A rank that became another user, and that this user may
/// not kill, is named and left behind.
///
/// Exit status: 0 when all ranks end with 0; otherwise that of the first failing rank, which is 128
/// plus N for signal N. 124 after --timeout; 125 when the job could not be started; 126 when the
/// program could not be run; 127 when it was not found.
#[derive(Args)]
#[command(override_usage = "hydrant run -n <N> [OPTIONS] <PROGRAM> [ARGUMENTS]...")]
pub(crate) struct Arguments {
    /// How many ranks to start
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    ranks: u32,

    /// The network that joins the ranks: auto, smp, smp+pin (memory is reached as by a NIC: only
    /// where registered), verbs (RDMA NICs), ofi (TCP and fabrics, by libfabric), or sim:PROFILE for one
    /// in virtual time
    #[arg(long, value_name = "NAME")]
    conduit: Option<ConduitKind>,

    /// How memory is registered where the network needs that
    #[arg(long, value_name = "STRATEGY")]
    registration: Option<Strategy>,

    /// The prefix of each line of output: `rank` as in `[3] `, or `none` to leave it untouched
    #[arg(long, value_name = "WHAT", default_value_t)]
    prefix: Prefix,

    /// The cores that each rank may use: one `core` each, a `share` of them each, or all (`none`).
    /// `auto` is share when there is a core for every rank, and none otherwise
    #[arg(long, value_name = "HOW", default_value_t)]
    bind: Bind,

    #[command(flatten)]
    remote: RemoteArgs,

    /// How long a host may be silent before it counts as lost
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds, requires = "hosts")]
    host_silence: Duration,

    /// How long ranks may take to end by themselves once one has failed
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    grace: Duration,

    /// How long the whole job may take
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// The program that every rank runs, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs the job. Returns its status, which is this command's.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let mut command = arguments.command.into_iter();
    let conduit = arguments.conduit.clone().or_else(conduit_in_force);
    let simulated = conduit.is_some_and(|conduit| conduit.is_virtual());
    let program = command.next().unwrap_or_default();
    let mut spec = Spec::for_network(simulated, arguments.ranks, program);
    spec.arguments = command.collect();
    let mut set = |name: &str, value: String| spec.environment.push((name.into(), value.into()));
    if let Some(conduit) = arguments.conduit {
        set("HYDRANT_CONDUIT", conduit.to_string());
    }
    if let Some(strategy) = arguments.registration {
        set("HYDRANT_REGISTRATION", strategy.to_string());
    }
    if let Err(error) = check_settings(&spec.environment) {
        print_message("run", &error);
        return ExitCode::from(NOT_STARTED);
    }
    spec.bind = arguments.bind;
    spec.grace = arguments.grace;
    spec.timeout = arguments.timeout;
    spec.beside = beside();
    spec.workspace = Some(workspace());
    if !simulated {
        spec.prefix = arguments.prefix;
        spec.remote = arguments.remote.reach();
        spec.remote.silence = arguments.host_silence;
    }
    match launcher::run(&spec, &mut |event| print_message("run", &event)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            print_message("run", &error);
            ExitCode::from(error.status())
        }
    }
}

/// Refuses, once for all ranks, the settings that each of them would refuse.
fn check_settings(of_ranks: &[(OsString, OsString)]) -> Result<(), hydrant::Error> {
    let rows = Settings::new().rows();
    let of_ranks = of_ranks.iter().cloned();
    // The settings given to the ranks come after the environment, and win.
    let all: BTreeMap<OsString, OsString> = env::vars_os().chain(of_ranks).collect();
    let known = rows.iter().filter_map(|row| {
        let value = all.get(OsStr::new(row.name))?;
        Some((row.name.to_owned(), value.to_string_lossy().into_owned()))
    });
    Settings::from_vars(known).map(drop)
}

/// Runs the ranks of this host for a launcher on another.
pub(crate) fn agent() -> ExitCode {
    ExitCode::from(launcher::agent())
}

/// The conduit that the environment gives the ranks, if it is valid.
fn conduit_in_force() -> Option<ConduitKind> {
    env::var("HYDRANT_CONDUIT").ok()?.trim().parse().ok()
}

/// Returns the folder of this command.
pub(crate) fn beside() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    own.parent().map(Path::to_owned)
}

/// The workspace that this command was built in; the command may have been moved since.
pub(crate) fn workspace() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "it is a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}
