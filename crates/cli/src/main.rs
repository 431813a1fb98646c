//! The `hydrant` command.

mod bench;
mod completions;
mod format;
mod info;
mod machine;
mod plot;
mod replay;
mod reproduce;
mod run;
mod table;
mod units;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// One-sided remote memory for the ranks of a parallel job.
#[derive(Parser)]
#[command(name = "hydrant", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    #[command(hide = true)]
    Agent,
    /// Measure what operations cost beside what the bare machine does
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    BenchRank(bench::RankArgs),
    /// Run the papers' experiments again, and write a page with what they found beside it
    Reproduce(reproduce::ReproduceArgs),
    /// Do again what a program communicated, as a trace of it says
    Replay(replay::ReplayArgs),
    /// Show this machine's conduits and limits, and every setting with its origin
    Info(info::InfoArgs),
    /// Print a script that lets a shell complete this command
    Completions(completions::CompletionsArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(arguments) => run::run(arguments),
        Command::Agent => run::agent(),
        // Its errors may be of pipes between the ranks that it starts.
        Command::Bench(arguments) => told(bench::run(&arguments)),
        Command::BenchRank(arguments) => {
            status(hydrant::log_to_stderr().and_then(|()| bench::run_rank(&arguments)))
        }
        Command::Reproduce(arguments) => match hydrant::log_to_stderr() {
            Ok(()) => status(reproduce::run(&arguments)),
            refused => status(refused),
        },
        Command::Replay(arguments) => match hydrant::log_to_stderr() {
            Ok(()) => status(replay::run(&arguments)),
            refused => status(refused),
        },
        Command::Info(arguments) => status(info::run(&arguments)),
        Command::Completions(arguments) => status(completions::print(&arguments, Cli::command())),
    }
}

/// The status to end with, the error told.
fn status<E: Error + 'static>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader, such as `head`, may have all that it wants.
        Err(error) if is_unread(&error) => ExitCode::SUCCESS,
        failed => told(failed),
    }
}

/// As [`status`], where a closed pipe is an error like any other.
fn told<E: Error + 'static>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Who does not read it gets the status all the same.
            let _ = io::stderr().write_all(format!("hydrant: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Returns whether an error means that the reader of the output has gone.
fn is_unread(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(it) = cause {
        let of_output = it.downcast_ref::<io::Error>();
        if of_output.is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = it.source();
    }
    false
}
