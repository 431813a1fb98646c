//! The arguments of `hydrant bench`.

use clap::{Args, ValueEnum};
use hydrant::Strategy;
use hydrant_report::format::Format;
use hydrant_report::plot::PictureFile;

use crate::measure::REPETITIONS;
use crate::peers::Peer;

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
    pub(crate) fn is_of_real_time(self) -> bool {
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
    pub(crate) bench: Bench,
    /// The number of ranks.
    #[arg(short, value_name = "RANKS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) n: u32,
    /// Which network joins the ranks, as for `hydrant run`.
    #[arg(long, value_name = "NAME")]
    pub(crate) conduit: Option<String>,
    /// How to print the rows: a table, or one JSON object a line.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// For `strategies`: try only these, by their names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) strategies: Vec<Strategy>,
    /// Draw the rows into this file: a picture (.svg) or a page that holds it (.html).
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PictureFile>,
    /// How many repetitions to take the median of; for `strategies`, how many rounds of jobs.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reps: Option<u32>,
    /// Measure others, too, in turns with Hydrant: MPICH and Open MPI by a program in C, as far as they
    /// are installed; for barrier, collectives and messages between ranks of this host.
    #[arg(long, value_enum, value_name = "WHOM")]
    pub(crate) beside: Option<Beside>,
    /// Fewer sizes and repetitions: to see that it works, not how fast.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// What to set beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Beside {
    /// MPICH and Open MPI, as far as they are installed.
    Mpi,
}

/// Turns of all sides, unless it must be quick.
pub(crate) const TURNS: u32 = 5;

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
    pub(crate) fn network(&self) -> Network {
        match self.named().as_deref() {
            None | Some("" | "auto" | "smp") => Network::Mapped,
            Some(_) => Network::Registered,
        }
    }

    /// Whether it is a network in virtual time, as far as can be said.
    pub(crate) fn is_played(&self) -> bool {
        (self.named()).is_some_and(|name| name == "sim" || name.starts_with("sim:"))
    }

    /// Repetitions in each job, if they are not the usual ones: with others beside, the turns share them.
    pub(crate) fn repetitions(&self) -> Option<u32> {
        match self.beside {
            Some(_) if !self.quick => Some(self.reps.unwrap_or(REPETITIONS).div_ceil(TURNS)),
            _ => self.reps,
        }
    }

    /// Who was measured on the network.
    pub(crate) fn peer(&self) -> serde_json::Result<Peer> {
        match self.network() {
            Network::Mapped => Peer::mapped(),
            Network::Registered => Peer::registered(&self.named().unwrap_or_default()),
        }
    }

    pub(crate) fn named(&self) -> Option<String> {
        let named = self.conduit.clone();
        named.or_else(|| std::env::var("HYDRANT_CONDUIT").ok())
    }
}
