//! Runs experiments side by side, as many as there are cores; each is a world of its own.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use super::part::Part;
use super::traces::Traces;
use super::{EXPERIMENTS, Experiment, ReproduceError, Scope};

/// How an experiment went.
pub(crate) struct Outcome {
    /// Which.
    pub(crate) id: &'static str,
    /// What it has to show.
    pub(crate) part: Result<Part, ReproduceError>,
    /// How long it took, by the clock on the wall.
    pub(crate) took: Duration,
}

/// The bar on standard error, if somebody sees it.
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

    /// Says what is being done.
    pub(crate) fn doing(&self, what: String) {
        self.0.set_message(what);
        self.0.tick();
    }
}

/// Runs them; the outcomes are in the order of the page, whatever ended first.
pub(crate) fn run(
    wanted: &[&Experiment],
    quick: bool,
    out: &Path,
    traces: &Traces,
) -> Vec<Outcome> {
    let bar = Bar::new(wanted.len());
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(wanted.len()) {
            scope.spawn(|| {
                while let Some(experiment) = wanted.get(next.fetch_add(1, Relaxed)) {
                    let begin = Instant::now();
                    let part = (experiment.run)(&Scope {
                        quick,
                        out,
                        traces,
                        bar: &bar,
                    });
                    let outcome = Outcome {
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

/// Where an experiment stands on the page: by paper, then as the paper has them.
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
