//! Starts the jobs of a bench in sequence, and gathers their rows.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use hydrant::{MessageProtocol, Strategy};
use hydrant_launch::launcher::Host;
use hydrant_report::remote::RemoteArgs;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Bench, BenchArgs, TURNS};
use crate::beside::{self, MpiError, MpiRequest, Programs};
use crate::cases::endpoints::{self, EndpointBenchError};
use crate::cases::{at_once, messages, scattered, strategies};
use crate::ensemble;
use crate::launch;
use crate::measure::{MeasurementPlan, median};
use crate::place::JobPlace;
use crate::rank::RankArgs;
use crate::report::{BenchEvent, Receiver, STANDARD_OUTPUT};
use crate::row::Row;
use crate::suite::{self, BenchStep, Suite};

/// The rounds of the strategies where the arguments name none.
const ROUNDS: u32 = 5;

/// The reason why a job measured nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// The command cannot find its own program.
    #[error("cannot find the program of this command, to start it as ranks: {0}")]
    OwnProgram(#[source] io::Error),
    /// No pipe could be made, or an input from it was no event.
    #[error("cannot hear from the ranks: {0}")]
    Hear(#[source] io::Error),
    /// A process could not be started.
    #[error("cannot start a job of {ranks} ranks: {why}")]
    Start {
        /// The number of ranks.
        ranks: u32,
        /// The system's error.
        #[source]
        why: io::Error,
    },
    /// A job failed; its ranks have printed the reason.
    #[error("a job of {ranks} ranks failed ({status}); its messages are above")]
    Failed {
        /// The number of ranks.
        ranks: u32,
        /// The status of the job.
        status: ExitStatus,
    },
    /// Endpoints could not be measured.
    #[error(transparent)]
    Endpoints(#[from] EndpointBenchError),
    /// The rivals could not be measured.
    #[error(transparent)]
    Beside(#[from] MpiError),
}

/// Runs every step of the bench, in turns with `others`. Returns the rows in the order of
/// measurement.
pub(crate) fn measure(
    args: &BenchArgs,
    cores: u32,
    others: Option<&Programs>,
) -> Result<Vec<Row>, JobError> {
    let mut receiver = Receiver::new().map_err(JobError::Hear)?;
    let steps: Vec<BenchStep> = (0..rounds(args))
        .flat_map(|_| match (args.is_on_hosts(), args.bytes) {
            (true, _) => suite::steps_on_hosts(args.bench, args.ranks()),
            (false, Some(_)) => suite::steps_at_once(args.ranks()),
            (false, None) => suite::steps(args.bench, args.network(), args.ranks()),
        })
        // The default protocol only.
        .filter(|step| match step {
            BenchStep::Send(protocol, _) => {
                args.beside.is_none() || *protocol == MessageProtocol::Auto
            }
            _ => true,
        })
        .collect();
    let bar = progress(steps.len() as u64);
    // Goals want a core for each rank; every host is taken to have as many as this one.
    let cores = cores * (args.remote.hosts.len() as u32).max(1);
    let report = match args.is_on_hosts() {
        true => STANDARD_OUTPUT.to_owned(),
        false => receiver.path(),
    };
    let (all_hosts, pair) = (args.remote.hosts.clone(), pair_of(&args.remote.hosts));
    let (mut rows, mut samples) = (Vec::new(), Vec::new());
    for step in steps {
        let launch = Launch {
            conduit: args.conduit.as_deref(),
            strategy: None,
            protocol: None,
            remote: &args.remote,
            hosts: if suite::is_of_a_pair(step) {
                &pair
            } else {
                &all_hosts
            },
        };
        match step {
            BenchStep::Measure(suite, ranks) => {
                let words = RankArgs::measure(suite, &report, cores, args);
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            BenchStep::Scatter(strategy, ranks) => {
                let words = RankArgs::measure(Suite::Scattered, &report, cores, args);
                let limits = scattered::limits(strategy);
                let launch = Launch {
                    strategy: Some((strategy, &limits)),
                    ..launch
                };
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            BenchStep::AtOnce(threads, ranks) => {
                let words = RankArgs::measure(Suite::AtOnce, &report, cores, args);
                let limits = at_once::limits(threads, args.bytes.unwrap_or(0));
                let launch = Launch {
                    strategy: Some((Strategy::Firehose, &limits)),
                    ..launch
                };
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            BenchStep::Try(strategy, ranks) => {
                let only = &args.strategies;
                if !only.is_empty() && !only.contains(&strategy) {
                    bar.inc(1);
                    continue;
                }
                let words = RankArgs::measure(Suite::Strategies, &report, cores, args);
                let limits = strategies::limits();
                let launch = Launch {
                    strategy: Some((strategy, &limits)),
                    ..launch
                };
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            BenchStep::Send(protocol, ranks) => {
                let words = RankArgs::measure(Suite::Messages, &report, cores, args);
                let launch = Launch {
                    protocol: Some(protocol),
                    ..launch
                };
                rows.extend(run_job(&launch, ranks, words, &mut receiver, &bar)?);
            }
            BenchStep::StartUp(ranks) => {
                bar.set_message(format!("start-up of {ranks} ranks"));
                rows.push(start_up(&launch, ranks, args.quick)?);
            }
            BenchStep::Endpoints => {
                let repetitions = args.repetitions().map(|count| count as usize);
                let name = |what: &str| bar.set_message(what.to_owned());
                rows.extend(endpoints::measure(repetitions, args.quick, &name)?);
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

/// The rivals' measurement beside a step.
fn request(step: BenchStep, args: &BenchArgs) -> Option<MpiRequest> {
    let (suite, ranks) = match step {
        BenchStep::Measure(suite, ranks) => (suite, ranks),
        BenchStep::Send(_, ranks) => (Suite::Messages, ranks),
        _ => return None,
    };
    let bench = beside::name_of(suite)?;
    let plan = MeasurementPlan::new(args.repetitions().map(|count| count as usize), args.quick);
    let sizes = match suite {
        Suite::Messages => ensemble::sizes(8, messages::MAX_BYTES, args.quick),
        Suite::Rma => beside::access_sizes(args.quick),
        _ => beside::sizes(args.quick),
    };
    Some(MpiRequest {
        bench,
        ranks,
        sizes,
        plan,
        over_tcp: args.is_over_tcp(),
    })
}

/// The rounds of the strategies. In turns, a disturbance of the machine disturbs all of them.
/// Virtual time has no disturbance, so one round is enough.
fn rounds(args: &BenchArgs) -> u32 {
    match args.bench {
        Bench::Strategies if !args.quick && !args.is_played() => args.reps.unwrap_or(ROUNDS),
        _ if args.beside.is_some() && !args.quick => TURNS,
        _ => 1,
    }
}

/// A progress bar on standard error, if that is a terminal. It is drawn when the ranks name their
/// next measurement, between two measurements, and never by itself.
fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} jobs, {elapsed}  {msg}");
    match style {
        Ok(style) => ProgressBar::new(steps).with_style(style),
        Err(_) => ProgressBar::hidden(),
    }
}

/// Runs one job whose ranks measure.
fn run_job(
    launch: &Launch<'_>,
    ranks: u32,
    words: Vec<String>,
    receiver: &mut Receiver,
    bar: &ProgressBar,
) -> Result<Vec<Row>, JobError> {
    let over = receiver.own_sender().map_err(JobError::Hear)?;
    let printed = receiver.writing_end().map_err(JobError::Hear)?;
    let reached = RemoteArgs {
        hosts: launch.hosts.to_vec(),
        ..launch.remote.clone()
    };
    let counts = (reached.reach()).place(ranks).unwrap_or_default();
    std::thread::scope(|scope| {
        let rows = scope.spawn(move || {
            let (mut rows, mut place) = (Vec::new(), None);
            loop {
                match receiver.next()? {
                    BenchEvent::Next(what) => bar.set_message(what),
                    BenchEvent::Place(conduit, ranks) => {
                        place = Some(JobPlace::new(conduit, launch.hosts, &counts, &ranks));
                    }
                    BenchEvent::Row(mut row) => {
                        row.place = place.clone();
                        rows.push(*row);
                    }
                    BenchEvent::Over => return Ok(rows),
                }
            }
        });
        let ended = launch.run(ranks, words, Some(printed));
        over.send(&BenchEvent::Over).map_err(JobError::Hear)?;
        let rows = rows
            .join()
            .map_err(|_| JobError::Hear(io::Error::other("the receiver panicked")))?;
        ended?;
        rows.map_err(JobError::Hear)
    })
}

/// The time from the start of a launcher to its end, with ranks that only start and end a job. The
/// reference is as many plain processes of the same program, started at once.
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
        launch.run(ranks, RankArgs::nothing(), None)?;
        ours.push(begin.elapsed().as_secs_f64() * 1e9);
    }
    let case = format!("start and end, {ranks} ranks");
    Ok(Row::new("cost", case, "ns", median(&mut ours)).against(median(&mut bare)))
}

/// The settings that the jobs of a bench share.
#[derive(Clone, Copy)]
struct Launch<'a> {
    conduit: Option<&'a str>,
    /// The strategy and its small limits: settings and their values.
    strategy: Option<(Strategy, &'a [(&'static str, String)])>,
    /// The protocol of two-sided messages.
    protocol: Option<MessageProtocol>,
    /// The way to other hosts, and those of this job; none for a job on this host.
    remote: &'a RemoteArgs,
    hosts: &'a [Host],
}

impl Launch<'_> {
    /// Runs a whole job of this program's ranks. Another process of this program becomes the
    /// launcher. Ranks on other hosts print their reports to `printed`.
    fn run(
        &self,
        ranks: u32,
        words: Vec<String>,
        printed: Option<OwnedFd>,
    ) -> Result<(), JobError> {
        let mut run = Command::new(own_program()?);
        run.arg(launch::LAUNCH);
        run.args(launch::words(ranks, self.remote, self.hosts));
        if let (Some(printed), false) = (printed, self.hosts.is_empty()) {
            run.stdout(printed);
        }
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

/// The hosts of a job of two ranks: the first two of the list, with a rank on each.
fn pair_of(hosts: &[Host]) -> Vec<Host> {
    let pair = hosts.iter().take(2).cloned();
    pair.map(|host| Host {
        slots: Some(1),
        ..host
    })
    .collect()
}

fn own_program() -> Result<PathBuf, JobError> {
    std::env::current_exe().map_err(JobError::OwnProgram)
}
