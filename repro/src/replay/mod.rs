//! `hydrant-repro replay`: replays the communication of a program from a trace, and reports the
//! memory registered for it (Li and others 2011, Figures 11 to 13).
//!
//! Each rank sends and receives the recorded messages, with collectives as point-to-point messages,
//! and waits out the computation between them. The network and the strategy decide the time of
//! messages and the registrations: a simulated network has the same figures in every run.

mod memory;
mod order;
mod pattern;
mod rank;
mod report;
mod schedule;
mod script;
mod step;

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use hydrant::{ConduitKind, Job, JobBuilder, MessageProtocol, Strategy};
use indicatif::{ProgressBar, ProgressStyle};

use hydrant_report::{
    format::Format,
    plot::{self, Axis, Figure, Panel, PictureFile, Scale, Series, SeriesKind},
    units,
};

pub(crate) use rank::Played;
pub(crate) use report::{ReplayRow, mean};
pub(crate) use script::{EAGER, How, Script};

/// Replay the communication of a program from a trace of it
#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// The trace: a folder of .pmt files, or an archive of them, .tar or .tar.zst
    trace: PathBuf,
    /// The registration strategy; several, separated by commas, run in sequence
    #[arg(long, value_delimiter = ',', default_value = "foresight")]
    registration: Vec<Strategy>,
    /// The network
    #[arg(long, default_value = "sim:connectx")]
    conduit: ConduitKind,
    /// The protocol of messages longer than 16 KiB, or longer than the network takes eagerly
    #[arg(long, default_value_t = MessageProtocol::Rendezvous)]
    messages: MessageProtocol,
    /// Draw the bytes registered over time, as .svg or .html
    #[arg(long)]
    plot: Option<PictureFile>,
    /// The format of the figures; json has a row for each rank besides
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The most bytes that a rank may have registered, half of them for its own operations
    #[arg(long, value_parser = parse_bytes)]
    limit: Option<u64>,
    /// Look at the data of each message
    #[arg(long)]
    check: bool,
}

/// The reason why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The trace is wrong.
    #[error(transparent)]
    Read(#[from] hydrant_traces::ReadError),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Unplayable(#[from] schedule::Unplayable),
    /// Messages of the trace overlap, or there is no room for them.
    #[error("rank {rank}: {why}")]
    Memory {
        /// The rank.
        rank: usize,
        /// The cause.
        why: memory::MemoryError,
    },
    /// A rank waits for an event that never comes from its peer.
    #[error("{place}: rank {rank} waits for ever {what}")]
    Stuck {
        /// The position in its trace.
        place: schedule::Position,
        /// The rank that waits.
        rank: u32,
        /// The event.
        what: String,
    },
    /// This machine has no such network.
    #[error("{conduit}: {why}")]
    Network {
        /// The network.
        conduit: String,
        /// The cause.
        why: String,
    },
    /// The job failed.
    #[error("{strategy} on {conduit}: {why}")]
    Job {
        /// The registration strategy.
        strategy: Strategy,
        /// The network.
        conduit: String,
        /// The cause.
        why: String,
    },
    /// The picture was not drawn.
    #[error("{path}: {why}", path = .path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The output has no reader.
    #[error("the figures were not printed: {0}")]
    Print(#[from] io::Error),
}

/// Replays a trace.
pub(crate) fn run(arguments: &ReplayArgs) -> Result<(), ReplayError> {
    let script = Script::of(&hydrant_traces::read(&arguments.trace)?, &arguments.conduit)?;
    if let Some(picture) = &arguments.plot {
        picture
            .reserve()
            .map_err(|why| picture_error(picture, &why))?;
    }
    let how = How {
        checks: arguments.check,
        ..How::default()
    };
    let (mut all, mut ranks, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for (number, strategy) in arguments.registration.iter().enumerate() {
        let played = replay(arguments, *strategy, &script, &how)?;
        let name = |row: ReplayRow| ReplayRow {
            strategy: strategy.to_string(),
            conduit: arguments.conduit.to_string(),
            trace: name_of(arguments),
            ..row
        };
        let rows = (0..)
            .zip(&played)
            .map(|(rank, it)| name(ReplayRow::of(rank, it)));
        let rows: Vec<ReplayRow> = rows.collect();
        all.push(name(ReplayRow::together(&rows)));
        ranks.extend(rows);
        series.extend(curve(*strategy, number, &played));
    }
    print(arguments.format, &all, &ranks)?;
    if let Some(picture) = &arguments.plot {
        let figure = figure(arguments, series);
        picture
            .write(&figure)
            .map_err(|why| picture_error(picture, &*why))?;
    }
    Ok(())
}

/// Runs the job. Returns the results of each rank.
fn replay(
    arguments: &ReplayArgs,
    strategy: Strategy,
    script: &Script,
    how: &How,
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
    let bar = bar(script.steps(), strategy);
    let played = script.play(builder, how, &|steps| bar.inc(steps));
    bar.finish_and_clear();
    played.map_err(failed)
}

/// Half of the limit is for peers, half for local operations; each may use the other's unused part.
pub(crate) fn limited(builder: JobBuilder, limit: Option<u64>) -> JobBuilder {
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

fn print(format: Format, all: &[ReplayRow], ranks: &[ReplayRow]) -> io::Result<()> {
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

/// The curve of the rank with the most registered memory.
fn curve(strategy: Strategy, number: usize, played: &[Played]) -> Option<Series> {
    let peak = |it: &Played| it.series.iter().map(|point| point.1).max();
    let played = played.iter().max_by_key(|it| peak(it))?;
    Some(Series {
        name: strategy.to_string(),
        kind: SeriesKind::Reference,
        colour: number,
        points: staircase(&played.series, played.took),
    })
}

/// Bytes over milliseconds, as steps and not as slopes.
pub(crate) fn staircase(series: &[(Duration, u64)], took: Duration) -> Vec<(f64, f64)> {
    let place = |at: Duration, bytes: u64| (at.as_secs_f64() * 1e3, bytes as f64);
    let mut points = vec![place(Duration::ZERO, 0)];
    let mut before = 0;
    for (at, bytes) in series {
        points.push(place(*at, before));
        points.push(place(*at, *bytes));
        before = *bytes;
    }
    points.push(place(took, before));
    points
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

fn picture_error(picture: &plot::PictureFile, why: &dyn std::fmt::Display) -> ReplayError {
    ReplayError::Picture {
        path: picture.path().to_owned(),
        why: why.to_string(),
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    hydrant::settings::parse_bytes(text).ok_or_else(|| "bytes, such as 64M".to_owned())
}
