//! The arguments of `hydrant bench`.

use clap::{Args, ValueEnum};
use hydrant::Strategy;
use hydrant_report::format::Format;
use hydrant_report::plot::PictureFile;
use hydrant_report::remote::RemoteArgs;

use crate::measure::REPETITIONS;
use crate::peers::PublishedPeer;

/// The operations to measure.
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
    /// The cost of registering memory, and each strategy over a growing working set (on networks
    /// that need registration).
    Registration,
    /// Each strategy beside `auto`: puts and gets of every size, in sequence, at random and skewed,
    /// over working sets around M (on networks that need registration; not part of all).
    Strategies,
    /// Puts and gets with memory of the allocator on one side or both, beside symmetric memory.
    Heap,
    /// Endpoints without a job: writes, reads, batches, deaths and returns between two processes of this host.
    Endpoint,
    /// The cost of a rank: memory, start-up, idle time.
    Cost,
    /// All benches.
    All,
}

impl Bench {
    /// True if the bench measures something between hosts.
    pub(crate) fn is_between_hosts(self) -> bool {
        !matches!(
            self,
            Self::Armci | Self::Registration | Self::Endpoint | Self::Cost
        )
    }

    /// True if a part of the bench is compared with operations of the processor, which take real
    /// time.
    pub(crate) fn is_of_real_time(self) -> bool {
        matches!(
            self,
            Self::Am
                | Self::Atomics
                | Self::Barrier
                | Self::Collectives
                | Self::Endpoint
                | Self::All
        )
    }
}

/// The arguments of `hydrant bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The operations to measure.
    #[arg(value_enum)]
    pub(crate) bench: Bench,
    /// The number of ranks [default: 2; with --hosts, one on each].
    #[arg(short, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) n: Option<u32>,
    /// The network that joins the ranks, as for `hydrant run`.
    #[arg(long, value_name = "NAME")]
    pub(crate) conduit: Option<String>,
    /// The format of the rows: a table, or one JSON object a line.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// For `strategies`: try only these, by their names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) strategies: Vec<Strategy>,
    /// For `registration`: measure only how fast so much memory of one rank is registered at once, by 1, 2 and 4 threads and
    /// by kind of pages.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) bytes: Option<u64>,
    /// Draw the rows into this file: a picture (.svg) or a page that holds it (.html).
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PictureFile>,
    /// The number of repetitions that the median is taken of; for `strategies`, the rounds of jobs.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reps: Option<u32>,
    /// Measure MPICH and Open MPI, too, in turns with Hydrant, by a program in C, if they are
    /// installed. For barrier, collectives and messages between ranks of this host, and with
    /// `--conduit ofi`, where MPI uses TCP, too, for rma.
    #[arg(long, value_enum, value_name = "WHOM")]
    pub(crate) beside: Option<Beside>,
    /// Fewer sizes and repetitions: a quick run that shows that it works, not how fast.
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// Parses the bytes of memory: `8G`, `512 MiB`.
fn size(text: &str) -> Result<u64, String> {
    let bytes =
        hydrant::settings::parse_bytes(text).ok_or("a size is a number with a unit, such as 8G")?;
    match bytes {
        0..1048576 => Err("less than 1 MiB is not much memory".to_owned()),
        _ if !bytes.is_multiple_of(2 << 20) => {
            Err("whole huge pages are a multiple of 2 MiB".to_owned())
        }
        bytes => Ok(bytes),
    }
}

/// The rivals to measure beside Hydrant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Beside {
    /// MPICH and Open MPI, as far as they are installed.
    Mpi,
}

/// The turns of all sides, unless the run is quick.
pub(crate) const TURNS: u32 = 5;

/// The kind of access to a peer's memory, which decides the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Memory is mapped: the reference is a copy by the processor.
    Mapped,
    /// Memory must be registered: the reference is a bare operation of the NIC.
    Registered,
}

impl BenchArgs {
    /// The number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.n.unwrap_or((self.remote.hosts.len() as u32).max(2))
    }

    /// True if the user named hosts.
    pub(crate) fn is_on_hosts(&self) -> bool {
        !self.remote.hosts.is_empty()
    }

    /// The network, as far as it is known before a rank joins. The environment may name one, too.
    pub(crate) fn network(&self) -> Network {
        match self.named().as_deref() {
            _ if self.is_on_hosts() => Network::Registered,
            None | Some("" | "auto" | "smp") => Network::Mapped,
            Some(_) => Network::Registered,
        }
    }

    /// True if the ranks of this host use libfabric, and so rivals must use TCP.
    pub(crate) fn is_over_tcp(&self) -> bool {
        !self.is_on_hosts() && self.named().as_deref() == Some("ofi")
    }

    /// True if the network runs in virtual time, as far as that is known.
    pub(crate) fn is_played(&self) -> bool {
        (self.named()).is_some_and(|name| name == "sim" || name.starts_with("sim:"))
    }

    /// The repetitions in each job, if not the usual number: with rivals, the turns share them.
    pub(crate) fn repetitions(&self) -> Option<u32> {
        match self.beside {
            Some(_) if !self.quick => Some(self.reps.unwrap_or(REPETITIONS).div_ceil(TURNS)),
            _ => self.reps,
        }
    }

    /// The published figures for the network.
    pub(crate) fn peer(&self) -> serde_json::Result<PublishedPeer> {
        match self.network() {
            // The figures are of one machine.
            _ if self.is_on_hosts() => PublishedPeer::registered(""),
            Network::Mapped => PublishedPeer::mapped(),
            Network::Registered => PublishedPeer::registered(&self.named().unwrap_or_default()),
        }
    }

    pub(crate) fn named(&self) -> Option<String> {
        let named = self.conduit.clone();
        named.or_else(|| std::env::var("HYDRANT_CONDUIT").ok())
    }
}
