//! Every check of the project, runnable by hand: `cargo xtask <name>`.
//!
//! Each thing that CI does is one named check. `cargo xtask test` installs the missing tools and
//! runs all checks; `cargo xtask list` names them. A check that ran nothing, or that lacks a tool,
//! never counts as passed.

mod beside_engines;
mod beside_mpi;
mod beside_peers;
mod builds;
mod cargo;
mod check;
mod command;
mod deny;
mod dose;
mod error;
mod faults;
mod fuzz;
mod hosts;
mod install;
mod instructions;
mod models;
mod nixl_plugin;
mod packages;
mod programs;
mod prose;
mod quick;
mod report;
mod rooms;
mod runners;
mod setup;
mod slurm;
mod soak;
mod test;
mod tool;
mod verbs;
mod vm;
mod wheels;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::check::Check;
use crate::dose::Dose;
use crate::report::TableFormat;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let rows = match cli.task {
        // Run by hand, these two print tables of their own.
        Task::Check(Check::Soak(arguments)) => return soak::report(&arguments, cli.format),
        Task::Check(Check::Prose(arguments)) => return prose::report(&arguments, cli.format),
        Task::Check(check) => vec![check.report()],
        Task::Setup => vec![setup::report()],
        Task::Quick => quick::report(),
        Task::Install(arguments) => vec![install::report(&arguments)],
        Task::NixlPlugin(arguments) => vec![nixl_plugin::report(&arguments)],
        Task::Test => test::report_all(Dose::Short),
        Task::Full => test::report_all(Dose::Long),
        Task::List => {
            list();
            return ExitCode::SUCCESS;
        }
        Task::Vm(arguments) => return vm::run(&arguments),
        Task::Faults(arguments) => return faults::report(&arguments),
        Task::BesideMpi(arguments) => return beside_mpi::report(&arguments, cli.format),
        Task::BesideEngines(arguments) => return beside_engines::report(&arguments, cli.format),
        Task::BesidePeers(arguments) => return beside_peers::report(&arguments, cli.format),
    };
    report::print(&rows, cli.format);
    if rows.iter().any(|row| row.result.fails()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Every check of the project, one name each.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,

    /// How the table at the end is printed: for people, or one JSON object a row
    #[arg(long, global = true, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
}

#[derive(Subcommand)]
enum Task {
    #[command(flatten)]
    Check(Check),
    /// Installs what the checks need and this machine lacks (apt, cargo install)
    Setup,
    /// Installs what is missing, then runs every check, whatever fails on the way
    Test,
    /// As test, with long doses of the random checks: before a release, and before a large change
    /// lands
    Full,
    /// For a change in progress: formats, rooms, prose, lints and unit tests of the crates it
    /// touches
    Quick,
    /// Installs the libraries for C, their headers and the hydrant command below a folder
    Install(install::Arguments),
    /// Builds the backend of NIXL, libplugin_HYDRANT.so, and tries it (docs/nixl.md)
    NixlPlugin(nixl_plugin::Arguments),
    /// Names every task
    List,
    /// Runs a command in a virtual machine that has an RDMA device (docs/vm.md)
    Vm(vm::Arguments),
    /// Injects faults under jobs on RDMA and reports the results (docs/faults.md)
    Faults(faults::Arguments),
    /// Runs six programs beside the same in C and MPI (docs/beside-mpi.md)
    BesideMpi(beside_mpi::Arguments),
    /// Measures Hydrant beside NIXL, Mooncake and connex-rs (docs/beside-engines.md)
    BesideEngines(beside_engines::Arguments),
    /// Measures Hydrant beside TCP, libfabric, UCX, MPI and GASNet-EX (docs/ofi.md)
    BesidePeers(beside_peers::Arguments),
}

fn list() {
    let command = Cli::command();
    for task in command.get_subcommands() {
        let about = task.get_about().map(ToString::to_string);
        println!("{:<14} {}", task.get_name(), about.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_runs_every_check_under_the_name_it_is_called_by() {
        let mut names: Vec<_> = Vec::new();
        let parsed = |name| match Cli::try_parse_from(["xtask", name]).unwrap().task {
            Task::Check(parsed) => parsed,
            _ => panic!("{name} is no check"),
        };
        for check in Check::all(Dose::Short) {
            assert_eq!(parsed(check.name()), check);
        }
        for check in Check::all(Dose::Long) {
            assert_eq!(parsed(check.name()).name(), check.name());
            names.push(check.name().to_owned());
        }
        names.extend(
            [
                "setup",
                "test",
                "full",
                "quick",
                "install",
                "nixl-plugin",
                "list",
                "vm",
                "faults",
                "beside-mpi",
                "beside-engines",
                "beside-peers",
            ]
            .map(str::to_owned),
        );

        let command = Cli::command();
        let tasks = command.get_subcommands();
        let tasks: Vec<_> = tasks.map(|task| task.get_name().to_owned()).collect();
        for task in &tasks {
            assert!(names.contains(task), "`test` forgets {task}");
        }
    }
}
