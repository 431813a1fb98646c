//! `hydrant-repro papers`: the experiments of the papers, on their machines in virtual time.
//!
//! Each experiment is a function of only the available time. Its result is a [`Part`]: tables,
//! pictures, and a comparison with the paper. Programs and micro-benchmarks run on `hydrant` itself
//! over `sim` ([`job`], [`programs`]). Experiments with more ranks than a machine has threads drive
//! the pinning protocol alone ([`crate::scale`]). The papers' figures are a data file
//! ([`published`]). [`page`] writes the results.

mod armci;
mod derive;
mod firehose;
mod foresight;
mod job;
mod page;
mod part;
mod pindown;
mod programs;
mod published;
mod replays;
mod runner;
mod scale;
mod summary;
mod traces;

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::replay;
use hydrant_report::format::Format;

use part::Part;
use traces::Traces;

/// The choice of experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiments {
    /// Firehose (2003): table 3, figures 3 to 5, and with borrowing and adaptive victims.
    Firehose,
    /// The pin-down cache (1998): tables 2 and 3, figures 5 and 6.
    Pindown,
    /// ARMCI (2002): table 2, figures 2 and 6 to 12.
    Armci,
    /// Helper threads (2011): figures 2, 3, 5, 6 and 8 to 14, tables 1 to 4.
    Foresight,
    /// Traffic of 16 to 10,000 ranks, with and without borrowing.
    Scale,
    /// All experiments.
    #[default]
    All,
}

/// The arguments of `hydrant-repro papers`.
#[derive(Debug, Args)]
pub(crate) struct PapersArgs {
    /// The experiments
    #[arg(value_enum, default_value_t)]
    which: Experiments,
    /// The folder to write the tables, pictures and the page to
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// Replay the traces of this folder, archives or folders as `hydrant-repro replay` takes them,
    /// in place of the small ones that come with the command
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Fewer operations and sizes: a quick run that shows that it works; the page says so
    #[arg(long)]
    quick: bool,
    /// How to print the expectations and the results: a table, or one JSON object a line
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The reason why there is no reproduction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReproduceError {
    /// The data file is malformed.
    #[error("the papers' figures are not in order: {0}")]
    Papers(String),
    /// A file could not be written.
    #[error("cannot write {}: {why}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A picture could not be drawn.
    #[error("cannot draw {name}: {why}")]
    Draw {
        /// The name of the picture.
        name: String,
        /// The cause.
        why: String,
    },
    /// A rank of a simulated job failed.
    #[error("on {profile}, {what}: {why}")]
    Job {
        /// The machine.
        profile: String,
        /// The experiment.
        what: String,
        /// The cause.
        why: String,
    },
    /// A folder has no traces.
    #[error("no traces from {}: {why}", folder.display())]
    Traces {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        why: String,
    },
    /// A trace is wrong.
    #[error(transparent)]
    Trace(#[from] hydrant_traces::ReadError),
    /// A trace cannot be replayed.
    #[error(transparent)]
    Replay(#[from] replay::ReplayError),
    /// There is no trace of more ranks.
    #[error(transparent)]
    Underivable(#[from] derive::Underivable),
    /// A program could not be run, or failed.
    #[error("{program} under {strategy}: {why}")]
    Program {
        /// The program.
        program: &'static str,
        /// The registration strategy.
        strategy: String,
        /// The cause.
        why: String,
    },
    /// The protocol alone failed.
    #[error(transparent)]
    Scale(#[from] crate::scale::ScaleError),
    /// A machine's profile is missing.
    #[error(transparent)]
    Profile(#[from] hydrant_sim::ProfileError),
    /// Experiments failed; the page names them.
    #[error("{failed} of {all} experiments failed: {first}")]
    Failed {
        /// The number of failed experiments.
        failed: usize,
        /// The number of all experiments.
        all: usize,
        /// The error of the first one.
        first: String,
    },
    /// The result could not be printed.
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
}

type PaperResult<T> = std::result::Result<T, ReproduceError>;

/// An experiment: its name while it runs, and its function.
struct Experiment {
    id: &'static str,
    which: Experiments,
    run: fn(&ExperimentInputs<'_>) -> Result<Part, ReproduceError>,
}

/// The inputs of an experiment.
struct ExperimentInputs<'a> {
    quick: bool,
    out: &'a Path,
    traces: &'a Traces,
    bar: &'a runner::Bar,
}

impl ExperimentInputs<'_> {
    /// The full or the quick value, as time allows.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Shows the current work.
    fn doing(&self, what: impl Into<String>) {
        self.bar.doing(what.into());
    }
}

/// The longest first, so that no long one starts at the end.
const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "firehose-table-3",
        which: Experiments::Firehose,
        run: firehose::table_3,
    },
    Experiment {
        id: "scale-hot-spot",
        which: Experiments::Scale,
        run: scale::hot_spot,
    },
    Experiment {
        id: "foresight-figure-13",
        which: Experiments::Foresight,
        run: foresight::figure_13,
    },
    Experiment {
        id: "foresight-figure-11",
        which: Experiments::Foresight,
        run: foresight::figure_11,
    },
    Experiment {
        id: "foresight-figure-5",
        which: Experiments::Foresight,
        run: foresight::figure_5,
    },
    Experiment {
        id: "foresight-figure-12",
        which: Experiments::Foresight,
        run: foresight::figure_12,
    },
    Experiment {
        id: "foresight-figure-10",
        which: Experiments::Foresight,
        run: foresight::figure_10,
    },
    Experiment {
        id: "foresight-figure-9",
        which: Experiments::Foresight,
        run: foresight::figure_9,
    },
    Experiment {
        id: "foresight-figure-6",
        which: Experiments::Foresight,
        run: foresight::figure_6,
    },
    Experiment {
        id: "foresight-figure-8",
        which: Experiments::Foresight,
        run: foresight::figure_8,
    },
    Experiment {
        id: "foresight-figure-2",
        which: Experiments::Foresight,
        run: foresight::figure_2,
    },
    Experiment {
        id: "firehose-figure-3",
        which: Experiments::Firehose,
        run: firehose::figure_3,
    },
    Experiment {
        id: "firehose-figure-4",
        which: Experiments::Firehose,
        run: firehose::figure_4,
    },
    Experiment {
        id: "firehose-figure-5",
        which: Experiments::Firehose,
        run: firehose::figure_5,
    },
    Experiment {
        id: "firehose-shares",
        which: Experiments::Firehose,
        run: firehose::shares,
    },
    Experiment {
        id: "pindown-table-2",
        which: Experiments::Pindown,
        run: pindown::table_2,
    },
    Experiment {
        id: "pindown-table-3",
        which: Experiments::Pindown,
        run: pindown::table_3,
    },
    Experiment {
        id: "pindown-figure-5",
        which: Experiments::Pindown,
        run: pindown::figure_5,
    },
    Experiment {
        id: "pindown-figure-6",
        which: Experiments::Pindown,
        run: pindown::figure_6,
    },
    Experiment {
        id: "armci-figure-2",
        which: Experiments::Armci,
        run: armci::figure_2,
    },
    Experiment {
        id: "armci-figure-6",
        which: Experiments::Armci,
        run: armci::figure_6,
    },
    Experiment {
        id: "armci-figure-7",
        which: Experiments::Armci,
        run: armci::figure_7,
    },
    Experiment {
        id: "armci-table-2",
        which: Experiments::Armci,
        run: armci::table_2,
    },
    Experiment {
        id: "armci-figure-8",
        which: Experiments::Armci,
        run: armci::figure_8,
    },
    Experiment {
        id: "armci-figure-9",
        which: Experiments::Armci,
        run: armci::figure_9,
    },
    Experiment {
        id: "armci-figure-10",
        which: Experiments::Armci,
        run: armci::figure_10,
    },
    Experiment {
        id: "armci-figure-11",
        which: Experiments::Armci,
        run: armci::figure_11,
    },
    Experiment {
        id: "armci-figure-12",
        which: Experiments::Armci,
        run: armci::figure_12,
    },
    Experiment {
        id: "scale-traffic",
        which: Experiments::Scale,
        run: scale::traffic,
    },
];

/// Runs the experiments and writes the results.
pub(crate) fn run(args: &PapersArgs) -> Result<(), ReproduceError> {
    published::papers()?;
    std::fs::create_dir_all(&args.out).map_err(|why| ReproduceError::Write {
        path: args.out.clone(),
        why,
    })?;
    job::write_lifted_profiles(&args.out)?;
    let traces = match &args.traces {
        Some(folder) => Traces::of(folder)?,
        None => Traces::own()?,
    };
    let wanted: Vec<&Experiment> = (EXPERIMENTS.iter())
        .filter(|experiment| [Experiments::All, experiment.which].contains(&args.which))
        .collect();
    let outcomes = runner::run(&wanted, args.quick, &args.out, &traces);
    let page = page::write(&args.out, args.quick, &outcomes)?;
    summary::print(args.format, &outcomes, &page).map_err(ReproduceError::Print)?;
    let mut failures = (outcomes.iter()).filter_map(|outcome| outcome.part.as_ref().err());
    match failures.next() {
        None => Ok(()),
        Some(first) => Err(ReproduceError::Failed {
            failed: 1 + failures.count(),
            all: outcomes.len(),
            first: first.to_string(),
        }),
    }
}
