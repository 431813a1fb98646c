//! `hydrant bench`: what Hydrant's operations cost beside what the bare machine does.
//!
//! The command starts itself again as the ranks of a job, through the launcher `hydrant run` uses,
//! as the hidden command `bench-rank`. Rank 0 leads the measurement and tells every row to the
//! command through a pipe; the command prints and draws. [`measure`] times, [`bare`] is what
//! everything is set beside, [`cases`] has one file for each bench.

#[allow(unsafe_code)]
mod bare;
mod beside;
mod cases;
mod derived;
mod ensemble;
mod jobs;
mod measure;
mod network;
mod peers;
mod picture;
mod print;
mod rank;
mod report;
mod row;
mod suite;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use hydrant::Strategy;

use crate::format::Format;
use crate::machine::Machine;
use crate::plot::PictureFile;

use beside::{Beside, MpiError};
use jobs::JobError;
use peers::Peer;
use row::Row;

pub(crate) use rank::{BenchError, RankArgs, run as run_rank};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bench {
    /// Put and get, blocking and not, by value, strided; fill.
    Rma,
    /// Active messages and remote calls: round trips and floods.
    Am,
    /// Two-sided messages by each protocol: round trips and streams.
    Messages,
    /// Atomics on a peer's word.
    Atomics,
    /// Barriers, split ones too, with 2, 4 and 8 ranks.
    Barrier,
    /// Collectives over size.
    Collectives,
    /// ARMCI's operations: puts, gets and accumulates of each form, words, mutexes, fences.
    Armci,
    /// What registering memory costs, and each strategy over a growing working set (on networks
    /// that need it).
    Registration,
    /// Each strategy beside `auto`: puts and gets of every size, in sequence, at random and skewed,
    /// over working sets around M (on networks that need registration; not part of all).
    Strategies,
    /// What a rank costs: memory, start-up, idle time.
    Cost,
    /// All of them.
    All,
}

impl Bench {
    /// Whether something of it stands beside what the processor does.
    fn is_of_real_time(self) -> bool {
        matches!(
            self,
            Self::Am | Self::Atomics | Self::Barrier | Self::Collectives | Self::All
        )
    }
}

/// What `hydrant bench` may be told.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[arg(value_enum)]
    bench: Bench,
    /// The number of ranks.
    #[arg(short, value_name = "RANKS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    n: u32,
    /// Which network joins the ranks, as for `hydrant run`.
    #[arg(long, value_name = "NAME")]
    conduit: Option<String>,
    /// How to print the rows: a table, or one JSON object a line.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// For `strategies`: try only these, by their names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    strategies: Vec<Strategy>,
    /// Draw the rows into this file: a picture (.svg) or a page that holds it (.html).
    #[arg(long, value_name = "FILE")]
    plot: Option<PictureFile>,
    /// How many repetitions to take the median of; for `strategies`, how many rounds of jobs.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    reps: Option<u32>,
    /// Measure others, too, in turns with Hydrant: MPICH and Open MPI by a program in C, as far as they
    /// are installed; for barrier, collectives and messages between ranks of this host.
    #[arg(long, value_enum, value_name = "WHOM")]
    beside: Option<Beside>,
    /// Fewer sizes and repetitions: to see that it works, not how fast.
    #[arg(long)]
    quick: bool,
}

/// Repetitions unless somebody says so.
const REPETITIONS: u32 = 101;

/// How the ranks of a bench reach each other's memory, which decides what stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// It is mapped: what the processor does is the reference.
    Mapped,
    /// It must be registered: what the NIC does is.
    Registered,
}

impl BenchArgs {
    /// As far as can be said before a rank has joined; the environment may name a network, too.
    fn network(&self) -> Network {
        match self.named().as_deref() {
            None | Some("" | "auto" | "smp") => Network::Mapped,
            Some(_) => Network::Registered,
        }
    }

    /// Whether it is a network in virtual time, as far as can be said.
    fn is_played(&self) -> bool {
        (self.named()).is_some_and(|name| name == "sim" || name.starts_with("sim:"))
    }

    /// Repetitions in each job, if they are not the usual ones: with others beside, the turns share them.
    fn repetitions(&self) -> Option<u32> {
        match self.beside {
            Some(_) if !self.quick => {
                Some(self.reps.unwrap_or(REPETITIONS).div_ceil(beside::TURNS))
            }
            _ => self.reps,
        }
    }

    /// Who was measured on the network.
    fn peer(&self) -> serde_json::Result<Peer> {
        match self.network() {
            Network::Mapped => Peer::mapped(),
            Network::Registered => Peer::registered(&self.named().unwrap_or_default()),
        }
    }

    fn named(&self) -> Option<String> {
        let named = self.conduit.clone();
        named.or_else(|| std::env::var("HYDRANT_CONDUIT").ok())
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A job could not be started, or failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// What stands beside the measurement takes no virtual time.
    #[error(
        "`hydrant bench {bench}` compares with what takes real time, and on a simulated network there is none: \
         rma, messages, armci and strategies can be measured there"
    )]
    RealTime {
        /// What was to be measured.
        bench: String,
    },
    /// Nothing of the others is like it.
    #[error(
        "`hydrant bench {bench}` has nothing of MPI's beside it: barrier, collectives and messages have, on shared memory"
    )]
    NothingBeside {
        /// What was to be measured.
        bench: String,
    },
    /// The others cannot be measured.
    #[error(transparent)]
    Beside(#[from] MpiError),
    /// The result could not be printed.
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
    /// The picture could not be drawn.
    #[error("cannot draw into {}: {why}", path.display())]
    Plot {
        /// The file asked for.
        path: PathBuf,
        /// What was in the way.
        why: String,
    },
}

/// Measures, prints and draws.
pub(crate) fn run(args: &BenchArgs) -> Result<(), RunError> {
    let name = || {
        let bench = args.bench.to_possible_value();
        bench.map_or_else(String::new, |bench| bench.get_name().to_owned())
    };
    if args.is_played() && args.bench.is_of_real_time() {
        return Err(RunError::RealTime { bench: name() });
    }
    let is_like_others = beside::has(args.bench) && args.network() == Network::Mapped;
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
            writeln!(out, "{}\n", print::header(machine, args.n))?;
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
