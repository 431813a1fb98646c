//! The `hydrant` command.

mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(arguments) => run::run(arguments),
    }
}
