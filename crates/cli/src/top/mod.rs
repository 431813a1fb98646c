//! `hydrant top`: the registered memory of running ranks, and what it is used for, as it changes.

mod listen;
mod look;
mod metrics;
mod process;
mod screen;
mod tables;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};

use look::{Chosen, Look, Looker};
use screen::{Screen, ScreenKey};

/// The columns of output that is no terminal.
const COLUMNS: usize = 120;

/// Watch the registered memory of running ranks on this host
///
/// Ranks can be watched if their job was started with HYDRANT_TOP=on, by processes of the same
/// user, on each host by itself. A rank counts when it is asked, and does nothing otherwise.
///
/// Each registered bucket has one use. It is registered for good (to copy through, or by
/// pin-everything), or peers have firehoses on it, or only own operations use it. A victim is kept
/// after its use and evicted for others. Dead memory was changed or freed while an operation or a
/// peer still holds it. All together never exceed M + MAXVICTIM. VmPin is what the kernel has pinned
/// for the process.
///
/// On a terminal the table is redrawn: q ends it, p shows the firehoses by peer. Elsewhere it is
/// printed once for each look.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only the job with this number, of which the first digits suffice
    #[arg(value_name = "JOB", value_parser = hexadecimal)]
    job: Option<String>,

    /// Only the job of this process, which is a rank or started it (as hydrant run does)
    #[arg(long, value_name = "PID", conflicts_with = "job")]
    pid: Option<u32>,

    /// The time from one look to the next
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// Look once: counts since the start of the job instead of rates
    #[arg(long)]
    once: bool,

    /// How to print a look: as tables, as one JSON object a line, or as OpenMetrics text
    #[arg(long, value_enum, default_value_t)]
    format: TopFormat,

    /// Show the firehoses by peer
    #[arg(long)]
    peers: bool,

    /// Print nothing; serve OpenMetrics at this address, as http://ADDRESS/metrics. Each request is a
    /// look. All who reach the address can read it
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["once", "format", "peers", "interval"])]
    listen: Option<SocketAddr>,
}

/// The forms of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TopFormat {
    /// Columns that line up.
    #[default]
    Table,
    /// One JSON object a line.
    Json,
    /// Text of OpenMetrics 1.0.
    Openmetrics,
}

/// The reason why there was nothing to see.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    /// Standard output is closed or full.
    #[error("cannot print: {0}")]
    Print(#[source] io::Error),
    /// The kernel does not list the sockets.
    #[error("cannot find ranks: /proc/net/unix: {0}")]
    Sockets(#[source] io::Error),
    /// The address is in use, or not of this host.
    #[error("cannot listen at {address}: {cause}")]
    Listen {
        address: SocketAddr,
        #[source]
        cause: io::Error,
    },
    /// No rank can be watched.
    #[error("{NOBODY}")]
    Nobody,
    /// The chosen job cannot be watched, but others can.
    #[error(
        "no job here that can be watched {chosen}; there is {others}. Jobs are watched that were started with \
         HYDRANT_TOP=on, as the same user"
    )]
    NotChosen { chosen: String, others: String },
}

/// The advice where no rank is found.
const NOBODY: &str =
    "no rank here can be watched: start the job with HYDRANT_TOP=on, as the same user";

/// Looks until it is told to end.
pub(crate) fn run(args: &TopArgs) -> Result<(), TopError> {
    let chosen = Chosen {
        job: args.job.clone(),
        pid: args.pid,
    };
    if let Some(address) = args.listen {
        return listen::serve(address, chosen);
    }
    let mut looker = Looker::new(chosen);
    if args.once {
        let look = looker.look().map_err(TopError::Sockets)?;
        let is_seen = !look.ranks.is_empty();
        if is_seen || args.format != TopFormat::Table {
            print(args, &look).map_err(TopError::Print)?;
        }
        return is_seen.then_some(()).ok_or_else(|| nobody(args));
    }
    let interactive = args.format == TopFormat::Table && io::stdout().is_terminal();
    match Screen::open().filter(|_| interactive) {
        Some(screen) => redraw(args, &mut looker, screen),
        None => loop {
            let look = looker.look().map_err(TopError::Sockets)?;
            print(args, &look).map_err(TopError::Print)?;
            thread::sleep(args.interval.saturating_sub(look.age()));
        },
    }
}

/// Returns why there is nothing to see.
fn nobody(args: &TopArgs) -> TopError {
    let chosen = match (&args.job, args.pid) {
        (Some(job), _) => format!("has a number that begins with {job}"),
        (_, Some(pid)) => format!("is of the process {pid}"),
        _ => return TopError::Nobody,
    };
    let Ok(look) = Looker::new(Chosen::default()).look() else {
        return TopError::Nobody;
    };
    let mut jobs: Vec<String> = (look.ranks.iter())
        .map(|it| format!("{} ({})", it.job, it.program()))
        .collect();
    jobs.dedup();
    match jobs.is_empty() {
        true => TopError::Nobody,
        false => TopError::NotChosen {
            chosen,
            others: jobs.join(", "),
        },
    }
}

/// Redraws the tables until a key ends it.
fn redraw(args: &TopArgs, looker: &mut Looker, mut screen: Screen) -> Result<(), TopError> {
    let mut peers = args.peers;
    loop {
        let look = looker.look().map_err(TopError::Sockets)?;
        loop {
            let (columns, _) = screen.size();
            let text = tables::text(&look, columns, peers);
            screen.draw(&text).map_err(TopError::Print)?;
            match screen.key(args.interval.saturating_sub(look.age())) {
                ScreenKey::Quit => return Ok(()),
                ScreenKey::Peers => peers = !peers,
                ScreenKey::Resized => {}
                ScreenKey::None => break,
            }
        }
    }
}

fn print(args: &TopArgs, look: &Look) -> io::Result<()> {
    let text = match args.format {
        TopFormat::Table => tables::text(look, COLUMNS, args.peers) + "\n",
        TopFormat::Json => serde_json::to_string(look)? + "\n",
        TopFormat::Openmetrics => metrics::text(look),
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn hexadecimal(text: &str) -> Result<String, String> {
    let is_digit = |letter: char| letter.is_ascii_hexdigit();
    if text.is_empty() || text.len() > 16 || !text.chars().all(is_digit) {
        return Err("it is the number of a job, of at most 16 hexadecimal digits".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

fn interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(100);
    let seconds: f64 = (text.parse()).map_err(|_| "it is a number of seconds".to_owned())?;
    let interval = Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?;
    if interval < least {
        return Err("it is 0.1 or more".to_owned());
    }
    Ok(interval)
}
