//! `hydrant-repro`: the papers' experiments, and replays of traces, in virtual time.
//!
//! It is not shipped: `cargo run --release -p hydrant-repro -- papers all --out reproduced`.

mod papers;
mod replay;
mod scale;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hydrant_report::status::status;

/// The papers' experiments, and replays of traces, in virtual time.
#[derive(Parser)]
#[command(name = "hydrant-repro", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: ReproCommand,
}

#[derive(Subcommand)]
enum ReproCommand {
    /// Run the papers' experiments, and write a page that compares the results with the papers
    Papers(papers::PapersArgs),
    /// Replay the communication of a program from a trace of it
    Replay(replay::ReplayArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Err(error) = hydrant::log_to_stderr() {
        return status(Err(error));
    }
    match command {
        ReproCommand::Papers(arguments) => status(papers::run(&arguments)),
        ReproCommand::Replay(arguments) => status(replay::run(&arguments)),
    }
}
