//! The `hydrant` command.

mod bench;
mod completions;
mod info;
mod probe;
mod run;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use hydrant_report::status::status;

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
    /// Answer a question of `hydrant info --hosts` about this host
    #[command(hide = true)]
    Probe(probe::ProbeArgs),
    Bench(bench::ForwardedBenchArgs),
    /// Show this machine's conduits and limits, and every setting with its origin; with --hosts, check whether
    /// a job can run on other hosts
    Info(info::InfoArgs),
    Top(top::TopArgs),
    /// Print a script that lets a shell complete this command
    Completions(completions::CompletionsArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(arguments) => run::run(arguments),
        Command::Agent => run::agent(),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Info(arguments) => status(info::run(&arguments)),
        Command::Top(arguments) => status(top::run(&arguments)),
        Command::Completions(arguments) => status(completions::print(&arguments, Cli::command())),
    }
}
