//! `hydrant bench`: the cost of Hydrant's operations, compared with the bare machine.
//!
//! `hydrant bench` starts the command `hydrant-bench`. That starts itself again as a launcher
//! ([`launch`]), which starts it again as the ranks of a job ([`rank`]). Rank 0 leads the
//! measurement and sends every row to the command through a pipe; the command prints and draws.
//! [`measure`] times, [`bare`] has the references, and [`cases`] has one file for each bench.

mod args;
#[allow(unsafe_code)]
mod bare;
mod beside;
mod cases;
mod derived;
mod ensemble;
mod error;
mod jobs;
mod launch;
mod measure;
mod network;
mod peers;
mod picture;
mod place;
mod print;
mod rank;
mod report;
mod row;
mod suite;
mod timing;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use hydrant_report::format::Format;
use hydrant_report::machine::Machine;
use hydrant_report::plot::PictureFile;
use hydrant_report::status::{status, strict_status};

use args::{Bench, BenchArgs, Beside, Network};
use beside::MpiError;
use cases::endpoints::OWNER;
use jobs::JobError;
use launch::{AGENT, LAUNCH};
use rank::{RANK, RankArgs};
use row::Row;

/// Measure the cost of operations, compared with the bare machine.
#[derive(Debug, Parser)]
#[command(name = "hydrant bench", bin_name = "hydrant bench", version)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
}

/// A rank of a measurement; the command itself starts it.
#[derive(Debug, Parser)]
struct RankCommand {
    #[command(flatten)]
    args: RankArgs,
}

fn main() -> ExitCode {
    let first = env::args_os().nth(1).unwrap_or_default();
    if first == RANK {
        let rank = RankCommand::parse_from(env::args_os().skip(1));
        return status(hydrant::log_to_stderr().and_then(|()| rank::run(&rank.args)));
    }
    if first == OWNER {
        return cases::endpoints::lend();
    }
    if first == AGENT {
        return ExitCode::from(hydrant_launch::launcher::agent());
    }
    if first == LAUNCH {
        return launch::run(env::args_os().skip(2));
    }
    // Its errors may come from pipes between the ranks that it starts.
    strict_status(run(&Cli::parse().args))
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A job could not be started, or failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The references of the bench take no virtual time.
    #[error(
        "`hydrant bench {bench}` compares with operations in real time, and a simulated network has none: \
         rma, messages, armci and strategies can be measured there"
    )]
    RealTime {
        /// The bench that was asked for.
        bench: String,
    },
    /// The bench is about one host.
    #[error(
        "`hydrant bench {bench}` measures nothing between hosts: rma, am, messages, atomics, barrier, collectives, strategies \
         and all do"
    )]
    OneHost {
        /// The bench that was asked for.
        bench: String,
    },
    /// The other benches have sizes of their own.
    #[error(
        "--bytes is for `hydrant bench registration`, and not between hosts or in virtual time"
    )]
    OnlyRegistration,
    /// All ranks of a simulated network are one process.
    #[error("a simulated network has no hosts: leave out --hosts, or --conduit")]
    SimulatedHosts,
    /// Nothing is between fewer hosts.
    #[error(
        "{0} host is named, and --hosts measures between two at least: hydrant bench {1} --hosts a,b"
    )]
    TooFewHosts(usize, String),
    /// No rival has such operations.
    #[error(
        "`hydrant bench {bench}` has nothing of MPI's beside it: barrier, collectives and messages have, on shared memory and with \
         --conduit ofi, and rma with --conduit ofi"
    )]
    NothingBeside {
        /// The bench that was asked for.
        bench: String,
    },
    /// The rivals cannot be measured.
    #[error(transparent)]
    Beside(#[from] MpiError),
    /// The result could not be printed.
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
    /// The picture could not be drawn.
    #[error("cannot draw into {}: {why}", path.display())]
    Plot {
        /// The file to draw into.
        path: PathBuf,
        /// The cause.
        why: String,
    },
}

/// Measures, prints and draws.
fn run(args: &BenchArgs) -> Result<(), RunError> {
    let name = || {
        let bench = args.bench.to_possible_value();
        bench.map_or_else(String::new, |bench| bench.get_name().to_owned())
    };
    if args.is_on_hosts() {
        if args.is_played() {
            return Err(RunError::SimulatedHosts);
        }
        if !args.bench.is_between_hosts() {
            return Err(RunError::OneHost { bench: name() });
        }
        if args.remote.hosts.len() < 2 {
            return Err(RunError::TooFewHosts(args.remote.hosts.len(), name()));
        }
    }
    let is_at_once = args.bench == Bench::Registration && !args.is_on_hosts() && !args.is_played();
    if args.bytes.is_some() && !is_at_once {
        return Err(RunError::OnlyRegistration);
    }
    if args.is_played() && args.bench.is_of_real_time() {
        return Err(RunError::RealTime { bench: name() });
    }
    let is_like_others = beside::has(args.bench, args.is_over_tcp())
        && (args.network() == Network::Mapped || args.is_over_tcp());
    if args.beside.is_some() && !is_like_others {
        return Err(RunError::NothingBeside { bench: name() });
    }
    let machine = Machine::here();
    if let Some(file) = &args.plot {
        (file.reserve()).map_err(|error| cannot_draw(file, error.to_string()))?;
    }
    let others = match args.beside {
        Some(Beside::Mpi) => Some(beside::Programs::build()?),
        None => None,
    };
    let mut rows = jobs::measure(args, machine.cores_allowed as u32, others.as_ref())?;
    if args.beside.is_none() {
        derived::insert(&mut rows);
    }
    print(args, &machine, &rows).map_err(RunError::Print)?;
    if let Some(file) = &args.plot {
        draw(args, file, &rows, &machine)?;
    }
    Ok(())
}

fn print(args: &BenchArgs, machine: &Machine, rows: &[Row]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match args.format {
        Format::Json => {
            for row in rows {
                writeln!(out, "{}", serde_json::to_string(row)?)?;
            }
        }
        Format::Table => {
            let header = match rows.iter().find_map(|row| row.place.as_ref()) {
                Some(_) => print::header_of_hosts(rows),
                None => print::header(machine, args.ranks()),
            };
            writeln!(out, "{header}\n")?;
            write!(
                out,
                "{}",
                print::tables(rows, &args.peer()?, args.network())
            )?;
        }
    }
    out.flush()
}

fn draw(
    args: &BenchArgs,
    file: &PictureFile,
    rows: &[Row],
    machine: &Machine,
) -> Result<(), RunError> {
    let peer = (args.peer()).map_err(|error| cannot_draw(file, error.to_string()))?;
    let figure = picture::figure(rows, &peer, machine.line());
    (file.write(&figure)).map_err(|error| cannot_draw(file, error.to_string()))
}

fn cannot_draw(file: &PictureFile, why: String) -> RunError {
    RunError::Plot {
        path: file.path().to_owned(),
        why,
    }
}
