//! Runs experiments in parallel, as many as there are cores. Each has a simulation of its own.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use super::part::Part;
use super::traces::Traces;
use super::{EXPERIMENTS, Experiment, ExperimentInputs, ReproduceError};

/// The outcome of an experiment.
pub(crate) struct FinishedExperiment {
    /// The name of the experiment.
    pub(crate) id: &'static str,
    /// The result.
    pub(crate) part: Result<Part, ReproduceError>,
    /// The elapsed time on the wall clock.
    pub(crate) took: Duration,
}

/// The progress bar on standard error, if that is a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    fn new(steps: usize) -> Self {
        let style =
            ProgressStyle::with_template("{bar:24} {pos}/{len} experiments, {elapsed}  {msg}");
        let bar = match style {
            Ok(style) => ProgressBar::new(steps as u64).with_style(style),
            Err(_) => ProgressBar::hidden(),
        };
        Self(bar)
    }

    /// Shows the current work.
    pub(crate) fn doing(&self, what: String) {
        self.0.set_message(what);
        self.0.tick();
    }
}

/// Runs the experiments. The outcomes are in the order of the page, whichever ended first.
pub(crate) fn run(
    wanted: &[&Experiment],
    quick: bool,
    out: &Path,
    traces: &Traces,
) -> Vec<FinishedExperiment> {
    let bar = Bar::new(wanted.len());
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(wanted.len()) {
            scope.spawn(|| {
                while let Some(experiment) = wanted.get(next.fetch_add(1, Relaxed)) {
                    let begin = Instant::now();
                    let part = (experiment.run)(&ExperimentInputs {
                        quick,
                        out,
                        traces,
                        bar: &bar,
                    });
                    let outcome = FinishedExperiment {
                        id: experiment.id,
                        part,
                        took: begin.elapsed(),
                    };
                    outcomes.lock().push(outcome);
                    bar.0.inc(1);
                }
            });
        }
    });
    bar.0.finish_and_clear();
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by_key(|outcome| place(outcome.id));
    outcomes
}

/// The position of an experiment on the page: by paper, then in the paper's order.
fn place(id: &str) -> (usize, bool, usize, &str) {
    let papers = ["firehose-", "pindown-", "armci-", "foresight-", "scale-"];
    let paper = papers.iter().position(|paper| id.starts_with(paper));
    let figure = !id.contains("-table-");
    debug_assert!(EXPERIMENTS.iter().any(|experiment| experiment.id == id));
    // Figure 10 comes after figure 9.
    let number = id.rsplit('-').next().and_then(|it| it.parse().ok());
    (
        paper.unwrap_or(papers.len()),
        figure,
        number.unwrap_or(0),
        id,
    )
}
