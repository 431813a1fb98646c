//! `hydrant bench`: a separate program, `hydrant-bench`, built when it is missing, as `hydrant run`
//! builds `cannon`.
//!
//! The command itself stays small: a user who only runs jobs compiles no measurement.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use hydrant_launch::launcher::{self, Spec};
use hydrant_report::status::print_message;

use crate::run::{beside, workspace};

/// The program that measures.
const PROGRAM: &str = "hydrant-bench";

/// Measure the cost of operations, compared with the bare machine
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ForwardedBenchArgs {
    /// The benchmark and its options; see `hydrant bench --help`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// Replaces this process with the program that measures.
pub(crate) fn run(args: &ForwardedBenchArgs) -> ExitCode {
    let mut spec = Spec::new(1, PROGRAM);
    spec.beside = beside();
    spec.workspace = Some(workspace());
    match launcher::find_program(&spec, &mut |event| print_message("bench", &event)) {
        Ok(program) => print_message("bench", &Command::new(program).args(&args.arguments).exec()),
        Err(error) => print_message("bench", &error),
    }
    ExitCode::FAILURE
}
