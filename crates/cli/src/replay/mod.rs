//! `hydrant replay`: does again what a program communicated, as a trace of it says, and tells what memory was
//! registered for that (Li and others 2011, Figures 11 to 13).
//!
//! Each rank sends and receives what was recorded, collectives as the point-to-point messages that they are made
//! of, and waits out what was computed between. How long the messages take, and what is registered for them, is
//! the network's and the strategy's affair: a simulated network has the same figures in every run.

mod memory;
mod order;
mod pattern;
mod rank;
mod read;
mod report;
mod schedule;

use std::{
    collections::HashMap,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
};

use clap::Args;
use hydrant::{ConduitKind, Job, JobBuilder, MessageProtocol, Strategy};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    format::Format,
    plot::{self, Axis, Figure, Kind, Panel, PictureFile, Scale, Series},
    units,
};
use hydrant_foresight::trace::Trace;
use order::Stuck;
use rank::{Options, Played};
use report::Row;
use schedule::Step;

/// Do again what a program communicated, as a trace of it says
#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// The trace: a folder of .pmt files, or an archive of them, .tar or .tar.zst
    trace: PathBuf,
    /// How memory gets registered; several, by commas, are run one after the other
    #[arg(long, value_delimiter = ',', default_value = "foresight")]
    registration: Vec<Strategy>,
    /// The network
    #[arg(long, default_value = "sim:connectx")]
    conduit: ConduitKind,
    /// How messages go that are longer than 16 KiB, or than what the network takes at once
    #[arg(long, default_value_t = MessageProtocol::Rendezvous)]
    messages: MessageProtocol,
    /// Draw the bytes registered over time, as .svg or .html
    #[arg(long)]
    plot: Option<PictureFile>,
    /// How the figures are printed; json has a row for each rank besides
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The most bytes that a rank may have registered, half of them for its own operations
    #[arg(long, value_parser = parse_bytes)]
    limit: Option<u64>,
    /// Look at the data of each message
    #[arg(long)]
    check: bool,
}

/// Most bytes of a message that is sent at once (Li §2), if the network takes so many.
const EAGER: usize = 16 << 10;

/// Why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The trace is wrong.
    #[error(transparent)]
    Read(#[from] read::ReadError),
    /// It cannot be replayed.
    #[error(transparent)]
    Unplayable(#[from] schedule::Unplayable),
    /// Messages of it overlap, or there is no room for them.
    #[error("rank {rank}: {why}")]
    Memory {
        /// Whose.
        rank: usize,
        /// Which bytes.
        why: memory::MemoryError,
    },
    /// A rank waits for what its peer never comes to.
    #[error("{place}: rank {rank} waits for ever {what}")]
    Stuck {
        /// Where in its trace.
        place: schedule::Position,
        /// Who waits.
        rank: u32,
        /// For what.
        what: String,
    },
    /// The job failed.
    #[error("{strategy} on {conduit}: {why}")]
    Job {
        /// How memory was registered.
        strategy: Strategy,
        /// On which network.
        conduit: String,
        /// Why.
        why: String,
    },
    /// The picture was not drawn.
    #[error("{path}: {why}", path = .path.display())]
    Picture {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Nobody reads what is printed.
    #[error("the figures were not printed: {0}")]
    Print(#[from] io::Error),
}

/// Replays a trace.
pub(crate) fn run(arguments: &ReplayArgs) -> Result<(), ReplayError> {
    let trace = read::read(&arguments.trace)?;
    let schedules = schedule::schedules(&trace)?;
    let at_once = at_once(arguments)?;
    if let Some(stuck) = order::stuck(&schedules, at_once) {
        return Err(waits_for_ever(&trace, &schedules, stuck, at_once));
    }
    let mut short = HashMap::new();
    for (rank, steps) in schedules.iter().enumerate() {
        let checked = memory::check(steps);
        for (tag, bytes) in checked.map_err(|why| ReplayError::Memory { rank, why })? {
            // The messages of a collective have one number.
            let least = short.entry(tag).or_insert(bytes);
            *least = bytes.min(*least);
        }
    }
    if let Some(picture) = &arguments.plot {
        picture.reserve().map_err(|why| undrawn(picture, &why))?;
    }
    let options = Options {
        checks: arguments.check.then_some(short),
        at_once,
    };
    let (mut all, mut ranks, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for (number, strategy) in arguments.registration.iter().enumerate() {
        let played = replay(arguments, *strategy, &schedules, &options)?;
        let name = |row: Row| Row {
            strategy: strategy.to_string(),
            conduit: arguments.conduit.to_string(),
            trace: name_of(arguments),
            ..row
        };
        let rows = (0..).zip(&played).map(|(rank, it)| name(Row::of(rank, it)));
        let rows: Vec<Row> = rows.collect();
        all.push(name(Row::together(&rows)));
        ranks.extend(rows);
        series.extend(curve(*strategy, number, &played));
    }
    print(arguments.format, &all, &ranks)?;
    if let Some(picture) = &arguments.plot {
        let figure = figure(arguments, series);
        picture
            .write(&figure)
            .map_err(|why| undrawn(picture, &*why))?;
    }
    Ok(())
}

/// Most bytes of a message that the network takes before anybody asks for it.
fn at_once(arguments: &ReplayArgs) -> Result<u64, ReplayError> {
    let failed = |why: String| ReplayError::Job {
        strategy: arguments
            .registration
            .first()
            .copied()
            .unwrap_or(Strategy::Auto),
        conduit: arguments.conduit.to_string(),
        why,
    };
    let builder = Job::builder().map_err(|why| failed(why.to_string()))?;
    let builder = builder.conduit(arguments.conduit.clone());
    let ends = builder.run_local(1, |job| Ok(job.limits().max_medium));
    let most = ends.into_iter().next().unwrap_or(Ok(0));
    Ok(most.map_err(|why| failed(why.to_string()))?.min(EAGER) as u64)
}

fn waits_for_ever(
    trace: &Trace,
    schedules: &[Vec<Step>],
    stuck: Stuck,
    at_once: u64,
) -> ReplayError {
    let Stuck {
        rank,
        step,
        peer,
        sends,
    } = stuck;
    let what = match sends {
        None => format!("for a message of rank {peer}: no program that ran to its end did that"),
        Some(bytes) => format!(
            "until rank {peer} receives {bytes} bytes, because rank {peer} waits, too; the network takes up to \
             {at_once} bytes before they are asked for, and what the trace was recorded on took more"
        ),
    };
    let place = schedule::position(trace, schedules, rank, step);
    ReplayError::Stuck { place, rank, what }
}

/// Runs the job; what each rank did.
fn replay(
    arguments: &ReplayArgs,
    strategy: Strategy,
    schedules: &[Vec<Step>],
    options: &Options,
) -> Result<Vec<Played>, ReplayError> {
    let failed = |why: String| ReplayError::Job {
        strategy,
        conduit: arguments.conduit.to_string(),
        why,
    };
    let builder = Job::builder().map_err(|why| failed(why.to_string()))?;
    let builder = limited(builder, arguments.limit)
        .conduit(arguments.conduit.clone())
        .registration(strategy)
        .messages(arguments.messages)
        .messages_eager(EAGER)
        .bucket(4096);
    let steps: u64 = schedules.iter().map(|it| it.len() as u64).sum();
    let bar = bar(steps, strategy);
    let done = |steps: u64| bar.inc(steps);
    let body = |job: &Job| match schedules.get(job.rank().0 as usize) {
        Some(steps) => rank::play(job, steps, options, &done),
        None => Err(hydrant::Error::other(
            "the job has more ranks than the trace",
        )),
    };
    let ranks = schedules.len() as u32;
    let ends = panic::catch_unwind(AssertUnwindSafe(|| builder.run_local(ranks, body)));
    bar.finish_and_clear();
    let ends = ends.map_err(|_| failed("a rank panicked".to_owned()))?;
    let first = ends.iter().find_map(|it| match it {
        Err(hydrant::Error::PeerLost(_)) | Ok(_) => None,
        Err(why) => Some(why.to_string()),
    });
    if let Some(why) = first {
        return Err(failed(why));
    }
    let played = ends
        .into_iter()
        .map(|it| it.map_err(|why| failed(why.to_string())));
    played.collect()
}

/// Half of what may be registered is for peers, half for own operations; each may use what the other leaves.
fn limited(builder: JobBuilder, limit: Option<u64>) -> JobBuilder {
    match limit {
        Some(bytes) => builder.m(bytes / 2).maxvictim(bytes - bytes / 2),
        None => builder,
    }
}

fn bar(steps: u64, strategy: Strategy) -> ProgressBar {
    let template = "{bar:24} {percent} %, {elapsed}, {eta} left  {msg}";
    let bar = match ProgressStyle::with_template(template) {
        Ok(style) => ProgressBar::new(steps).with_style(style),
        Err(_) => ProgressBar::hidden(),
    };
    bar.set_message(strategy.to_string());
    bar
}

fn print(format: Format, all: &[Row], ranks: &[Row]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Table => write!(out, "{}", report::table(all)),
        Format::Json => {
            for row in all.iter().chain(ranks) {
                writeln!(out, "{}", serde_json::to_string(row)?)?;
            }
            Ok(())
        }
    }
}

fn name_of(arguments: &ReplayArgs) -> String {
    let name = arguments
        .trace
        .file_name()
        .unwrap_or(arguments.trace.as_os_str());
    name.to_string_lossy()
        .trim_end_matches(".tar.zst")
        .to_owned()
}

/// The rank that registered most.
fn curve(strategy: Strategy, number: usize, played: &[Played]) -> Option<Series> {
    let peak = |it: &Played| it.series.iter().map(|point| point.1).max();
    let played = played.iter().max_by_key(|it| peak(it))?;
    let place = |at: std::time::Duration, bytes: u64| (at.as_secs_f64() * 1e3, bytes as f64);
    let mut points = vec![place(std::time::Duration::ZERO, 0)];
    let mut before = 0;
    for (at, bytes) in &played.series {
        // Steps, not slopes.
        points.push(place(*at, before));
        points.push(place(*at, *bytes));
        before = *bytes;
    }
    points.push(place(played.took, before));
    Some(Series {
        name: strategy.to_string(),
        kind: Kind::Reference,
        colour: number,
        points,
    })
}

fn figure(arguments: &ReplayArgs, series: Vec<Series>) -> Figure {
    Figure {
        title: format!("Registered memory: {}", name_of(arguments)),
        subtitle: format!("on {}, of the rank that registers most", arguments.conduit),
        panels: vec![Panel::Curves {
            title: "Bytes registered over time".to_owned(),
            x: Axis {
                label: "milliseconds",
                scale: Scale::Plain,
                words: units::plain,
            },
            y: Axis {
                label: "bytes",
                scale: Scale::Plain,
                words: units::bytes,
            },
            series,
            marks: Vec::new(),
        }],
    }
}

fn undrawn(picture: &plot::PictureFile, why: &dyn std::fmt::Display) -> ReplayError {
    ReplayError::Picture {
        path: picture.path().to_owned(),
        why: why.to_string(),
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    hydrant::settings::parse_bytes(text).ok_or_else(|| "bytes, such as 64M".to_owned())
}
