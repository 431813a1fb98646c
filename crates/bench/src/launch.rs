//! A process of this command that launches the ranks of a measurement, like `hydrant run`.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use hydrant::ConduitKind;
use hydrant_launch::launcher::{self, Spec};
use hydrant_report::status::print_message;

/// The first argument of a process that launches ranks; the number of ranks and their arguments follow.
pub(crate) const LAUNCH: &str = "launch";

/// Launches the ranks. Returns the status of the job.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let ranks = arguments.next().and_then(|it| it.to_str()?.parse().ok());
    let (Some(ranks), Ok(own)) = (ranks, env::current_exe()) else {
        return ExitCode::FAILURE;
    };
    let conduit = env::var("HYDRANT_CONDUIT").ok();
    let conduit: Option<ConduitKind> = conduit.and_then(|name| name.trim().parse().ok());
    let simulated = conduit.is_some_and(|it| it.is_virtual());
    let mut spec = Spec::for_network(simulated, ranks, own);
    spec.arguments = arguments.collect();
    match launcher::run(&spec, &mut |event| print_message("bench", &event)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            print_message("bench", &error);
            ExitCode::from(error.status())
        }
    }
}
