//! Starts the jobs of a bench, one after the other, and gathers what they measured.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use hydrant::{MessageProtocol, Strategy};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Bench, BenchArgs, TURNS};
use crate::beside::{self, MpiError, Programs, Request};
use crate::cases::{messages, scattered, strategies};
use crate::ensemble;
use crate::launch;
use crate::measure::{Plan, median};
use crate::rank::RankArgs;
use crate::report::{Event, Receiver};
use crate::row::Row;
use crate::suite::{self, Step, Suite};

/// How often the strategies take turns if nobody says so.
const ROUNDS: u32 = 5;

/// Why a job measured nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// The command does not find its own program.
    #[error("cannot find the program of this command, to start it as ranks: {0}")]
    OwnProgram(#[source] io::Error),
    /// No pipe could be made, or what came through it was no event.
    #[error("cannot hear from the ranks: {0}")]
    Hear(#[source] io::Error),
    /// A process could not be started.
    #[error("cannot start a job of {ranks} ranks: {why}")]
    Start {
        /// Its size.
        ranks: u32,
        /// What the system says.
        #[source]
        why: io::Error,
    },
    /// A job failed; its ranks have said why.
    #[error("a job of {ranks} ranks failed ({status}); what it says is above")]
    Failed {
        /// Its size.
        ranks: u32,
        /// Its status.
        status: ExitStatus,
    },
    /// The others could not be measured.
    #[error(transparent)]
    Beside(#[from] MpiError),
}

/// Runs every step of the bench, in turns with `others`. The rows, in the order they were measured.
pub(crate) fn measure(
    args: &BenchArgs,
    cores: u32,
    others: Option<&Programs>,
) -> Result<Vec<Row>, JobError> {
    let mut receiver = Receiver::new().map_err(JobError::Hear)?;
    let steps: Vec<Step> = (0..rounds(args))
        .flat_map(|_| suite::steps(args.bench, args.network(), args.n))
        // What a user gets who chooses no protocol.
        .filter(|step| match step {
            Step::Send(protocol, _) => args.beside.is_none() || *protocol == MessageProtocol::Auto,
            _ => true,
        })
        .collect();
    let launch = Launch {
        conduit: args.conduit.as_deref(),
        strategy: None,
        protocol: None,
    };
    let bar = progress(steps.len() as u64);
    let (mut rows, mut samples) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Measure(suite, ranks) => {
                let words = RankArgs::measure(suite, &receiver.path(), cores, args);
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            Step::Scatter(strategy, ranks) => {
                let words = RankArgs::measure(Suite::Scattered, &receiver.path(), cores, args);
                let limits = scattered::limits(strategy);
                let launch = Launch {
                    strategy: Some((strategy, &limits)),
                    ..launch
                };
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            Step::Try(strategy, ranks) => {
                let only = &args.strategies;
                if !only.is_empty() && !only.contains(&strategy) {
                    bar.inc(1);
                    continue;
                }
                let words = RankArgs::measure(Suite::Strategies, &receiver.path(), cores, args);
                let limits = strategies::limits();
                let launch = Launch {
                    strategy: Some((strategy, &limits)),
                    ..launch
                };
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            Step::Send(protocol, ranks) => {
                let words = RankArgs::measure(Suite::Messages, &receiver.path(), cores, args);
                let launch = Launch {
                    protocol: Some(protocol),
                    ..launch
                };
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            Step::StartUp(ranks) => {
                bar.set_message(format!("start-up of {ranks} ranks"));
                rows.push(start_up(&launch, ranks, args.quick)?);
            }
        }
        if let (Some(others), Some(request)) = (others, request(step, args)) {
            bar.set_message(format!("{} by MPI", request.bench));
            samples.extend(others.measure(&request)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if others.is_some() {
        beside::set(&mut rows, &samples);
    }
    Ok(rows)
}

/// What the others are to measure beside a step.
fn request(step: Step, args: &BenchArgs) -> Option<Request> {
    let (suite, ranks) = match step {
        Step::Measure(suite, ranks) => (suite, ranks),
        Step::Send(_, ranks) => (Suite::Messages, ranks),
        _ => return None,
    };
    let bench = beside::name_of(suite)?;
    let plan = Plan::new(args.repetitions().map(|count| count as usize), args.quick);
    let sizes = match suite {
        Suite::Messages => ensemble::sizes(8, messages::MAX_BYTES, args.quick),
        _ => beside::sizes(args.quick),
    };
    Some(Request {
        bench,
        ranks,
        sizes,
        plan,
    })
}

/// How often the strategies take turns, so that what disturbs the machine for a while disturbs them all:
/// once where time is played, in which nothing disturbs them.
fn rounds(args: &BenchArgs) -> u32 {
    match args.bench {
        Bench::Strategies if !args.quick && !args.is_played() => args.reps.unwrap_or(ROUNDS),
        _ if args.beside.is_some() && !args.quick => TURNS,
        _ => 1,
    }
}

/// A bar on standard error if somebody sees it. It is drawn when the ranks say what comes next,
/// which they do between two measurements, and never by itself.
fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} jobs, {elapsed}  {msg}");
    match style {
        Ok(style) => ProgressBar::new(steps).with_style(style),
        Err(_) => ProgressBar::hidden(),
    }
}

/// One job whose ranks measure.
fn run_job(
    launch: &Launch<'_>,
    ranks: u32,
    words: Vec<String>,
    receiver: &mut Receiver,
    bar: &ProgressBar,
) -> Result<Vec<Row>, JobError> {
    let over = receiver.own_sender().map_err(JobError::Hear)?;
    std::thread::scope(|scope| {
        let rows = scope.spawn(move || {
            let mut rows = Vec::new();
            loop {
                match receiver.next()? {
                    Event::Next(what) => bar.set_message(what),
                    Event::Row(row) => rows.push(row),
                    Event::Over => return Ok(rows),
                }
            }
        });
        let ended = launch.run(ranks, words);
        over.tell(&Event::Over).map_err(JobError::Hear)?;
        let rows = rows
            .join()
            .map_err(|_| JobError::Hear(io::Error::other("the receiver panicked")))?;
        ended?;
        rows.map_err(JobError::Hear)
    })
}

/// From the start of a launcher to its end, the ranks doing nothing but start and end a job;
/// beside it, as many plain processes of the same program started at once.
fn start_up(launch: &Launch<'_>, ranks: u32, quick: bool) -> Result<Row, JobError> {
    let program = own_program()?;
    let start = |why| JobError::Start { ranks, why };
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..if quick { 1 } else { 5 } {
        let begin = Instant::now();
        let children: Vec<_> = (0..ranks)
            .map(|_| {
                Command::new(&program)
                    .arg("--version")
                    .stdout(Stdio::null())
                    .spawn()
            })
            .collect();
        for child in children {
            child.and_then(|mut child| child.wait()).map_err(start)?;
        }
        bare.push(begin.elapsed().as_secs_f64() * 1e9);
        let begin = Instant::now();
        launch.run(ranks, RankArgs::nothing())?;
        ours.push(begin.elapsed().as_secs_f64() * 1e9);
    }
    let case = format!("start and end, {ranks} ranks");
    Ok(Row::new("cost", case, "ns", median(&mut ours)).against(median(&mut bare)))
}

/// What the jobs of a bench have in common.
#[derive(Clone, Copy)]
struct Launch<'a> {
    conduit: Option<&'a str>,
    /// With limits so small that it matters: settings and their values.
    strategy: Option<(Strategy, &'a [(&'static str, String)])>,
    /// How two-sided messages go.
    protocol: Option<MessageProtocol>,
}

impl Launch<'_> {
    /// Runs a whole job of this program's ranks. Another process of it is the launcher, which takes its process over.
    fn run(&self, ranks: u32, words: Vec<String>) -> Result<(), JobError> {
        let mut run = Command::new(own_program()?);
        run.args([launch::LAUNCH, &ranks.to_string()]);
        if let Some(conduit) = self.conduit {
            run.env("HYDRANT_CONDUIT", conduit);
        }
        if let Some((strategy, limits)) = self.strategy {
            run.env("HYDRANT_REGISTRATION", strategy.name());
            run.envs(limits.iter().map(|(name, value)| (*name, value)));
        }
        if let Some(protocol) = self.protocol {
            run.env("HYDRANT_MESSAGES", protocol.name());
        }
        run.args(words).stdin(Stdio::null());
        let status = run.status().map_err(|why| JobError::Start { ranks, why })?;
        if status.success() {
            Ok(())
        } else {
            Err(JobError::Failed { ranks, status })
        }
    }
}

fn own_program() -> Result<PathBuf, JobError> {
    std::env::current_exe().map_err(JobError::OwnProgram)
}
