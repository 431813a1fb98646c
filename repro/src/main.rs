//! `hydrant-repro`: the papers' experiments again, and replays of traces, in virtual time. It is no part of what
//! ships: `cargo run --release -p hydrant-repro -- papers all --out reproduced`.

mod papers;
mod replay;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hydrant_report::status::status;

/// The papers' experiments again, and replays of traces, in virtual time.
#[derive(Parser)]
#[command(name = "hydrant-repro", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the papers' experiments again, and write a page with what they found beside it
    Papers(papers::PapersArgs),
    /// Do again what a program communicated, as a trace of it says
    Replay(replay::ReplayArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Err(error) = hydrant::log_to_stderr() {
        return status(Err(error));
    }
    match command {
        Command::Papers(arguments) => status(papers::run(&arguments)),
        Command::Replay(arguments) => status(replay::run(&arguments)),
    }
}
