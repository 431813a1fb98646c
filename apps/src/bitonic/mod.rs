//! Bitonic sort on a hypercube of ranks (Firehose §4.3).
//!
//! The keys are divided equally, and each rank sorts its run with a quick sort. Then the runs are
//! merged by compare-exchange: in each step of Batcher's [`network`] a rank and its partner put
//! their runs into each other's memory. One of them keeps the smaller half of all their keys, the
//! other the larger half.
//!
//! [`network`]: crate::sort::network

mod keys;

use std::path::PathBuf;

use clap::Parser;
use hydrant::{Job, Op, Result};
use serde::Serialize;

use crate::{
    buffer::Buffer,
    exchange::{Exchange, Hop, Putting},
    input,
    options::{Granularity, ResultArgs, Verify, positive},
    program::Failure,
    progress::ProgressDisplay,
    report::{self, PhaseTimer, Report, Rows},
    shape::Hypercube,
    sort::{self, CompareSplit, Unsorted},
    together::{self, FIRST},
};
use keys::Keys;

/// Sort integers with a bitonic network of ranks, a power of two of them
#[derive(Debug, Parser)]
#[command(name = "bitonic", version)]
pub struct BitonicArgs {
    /// Keys to sort [default: 1048576, or as the file has]
    #[arg(long, value_name = "KEYS", value_parser = positive)]
    n: Option<usize>,

    /// Make random keys of this
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 1,
        conflicts_with = "input"
    )]
    seed: u64,

    /// Read the keys: numbers between blanks if the name ends in .txt, else raw little-endian
    /// i64
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// The elements in a put: a whole run (block), or this many keys
    #[arg(long, visible_alias = "put-elements", value_name = "HOW", default_value_t = Granularity::Block, value_parser = run_or_keys)]
    put: Granularity,

    #[command(flatten)]
    result: ResultArgs,
}

/// Sorts with the user's options. Collective.
///
/// # Errors
/// [`Failure::Common`] if the number of ranks is no power of two, a file cannot be used, memory is
/// missing, or the keys come out wrong. Otherwise the error of the job.
pub fn run(job: &Job, options: BitonicArgs) -> Result<(), Failure> {
    let cube = Hypercube::new(job.size()).map_err(Failure::common)?;
    let keys = match &options.input {
        Some(path) => Keys::from_file(job, path, options.n)?,
        None => Keys::from_seed(options.n.unwrap_or(1 << 20), options.seed),
    };
    let count = keys.count();
    let run = count.div_ceil(job.size() as usize);
    let steps = sort::network(cube, job.rank());
    let put = options.put.elements(1, run);
    let plan = steps.iter().map(|step| Hop {
        to: step.partner,
        from: step.partner,
    });
    let exchange = Exchange::new(job, plan.collect(), run, put).map_err(Failure::of_allocation)?;
    let unsorted = keys.run(job, run)?;
    let before = sort::checksum(&unsorted);

    let progress = ProgressDisplay::new(job, 1 + steps.len());
    let (mine, figures) = report::measure(job, |clock| {
        sort_run(exchange, &steps, unsorted, clock, &progress)
    })?;

    progress.phase("checking");
    let verify = options.result.verify();
    if verify == Verify::Quick {
        check_in_place(job, &mine, before)?;
    }
    if verify == Verify::Full || options.result.out.is_some() {
        let sorted = keys::gather(job, &mine, count)?;
        if verify == Verify::Full {
            together::on_first(job, || sort::compare(keys.whole(), &sorted))?;
        }
        if let Some(path) = &options.result.out {
            together::on_first(job, || input::write(path, &sorted, 1))?;
        }
    }
    drop(progress);

    let problem = SortProblem {
        n: count,
        run,
        steps: steps.len(),
        put_elements: put.min(run),
        keys_per_second: count as f64 / figures.seconds,
    };
    let report = Report {
        program: "bitonic",
        ranks: job.size(),
        problem,
        verified: verify,
        figures,
    };
    together::on_first(job, || report.print(options.result.format))?;
    Ok(())
}

/// Turns this rank's keys into its run of the result. Returns the time spent in puts.
fn sort_run(
    mut exchange: Exchange<'_, i64>,
    steps: &[CompareSplit],
    mut mine: Buffer<i64>,
    clock: &mut PhaseTimer<'_>,
    progress: &ProgressDisplay,
) -> Result<(Buffer<i64>, Putting)> {
    progress.phase("sorting");
    // A quick sort whose choice of pivots avoids every bad case.
    clock.compute(sort::comparisons(mine.len()), || mine.sort_unstable());
    progress.advance(1);
    progress.phase("merging");
    let mut theirs = vec![0; mine.len()];
    let mut kept = Buffer::zeroed(mine.len());
    for step in steps {
        clock.communicate(|| {
            exchange.send(&mine)?;
            exchange.receive(&mut theirs)
        })?;
        // A comparison for each key that is kept.
        let comparisons = kept.len() as u64;
        clock.compute(comparisons, || {
            sort::merge(step.keep, &mine, &theirs, &mut kept);
        });
        std::mem::swap(&mut mine, &mut kept);
        progress.advance(1);
    }
    let putting = exchange.putting();
    exchange.close()?;
    Ok((mine, putting))
}

/// Checks without gathering: each run is in order and after the previous run, and the checksum of
/// all keys is `before`. Collective.
fn check_in_place(job: &Job, mine: &[i64], before: u64) -> Result<(), Failure> {
    let last = mine.last().copied().unwrap_or(i64::MIN);
    let edges = job.all_gather(&[last])?;
    let before_mine = (job.rank() != FIRST).then(|| edges[job.left().index()]);
    let start = job.rank().index() * mine.len();
    together::first_failure(job, sort::quick(before_mine, start, mine))?;

    let mut sums = [before, sort::checksum(mine)];
    job.all_reduce(&mut sums, Op::Sum)?;
    match sums {
        [expected, found] if expected != found => {
            Err(Failure::common(Unsorted::Keys { found, expected }))
        }
        _ => Ok(()),
    }
}

#[derive(Debug, Serialize)]
struct SortProblem {
    n: usize,
    run: usize,
    steps: usize,
    put_elements: usize,
    keys_per_second: f64,
}

impl Rows for SortProblem {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let puts = match self.put_elements {
            all if all == self.run => "a run each".to_owned(),
            1 => "a key each".to_owned(),
            some => format!("{some} keys each"),
        };
        vec![
            ("keys", format!("{} of 64 bits", self.n)),
            (
                "runs",
                format!("of {} keys, merged in {} steps", self.run, self.steps),
            ),
            ("puts carry", puts),
        ]
    }

    fn rate(&self) -> String {
        report::digits(self.keys_per_second * 1e-6, "million keys/s")
    }

    fn passed(&self, check: Verify) -> &'static str {
        match check {
            Verify::Full => "every key is that of the serial sort",
            Verify::Quick => "in order, with the checksum there was before",
            Verify::None => "not checked",
        }
    }
}

fn run_or_keys(text: &str) -> Result<Granularity, String> {
    match text.parse() {
        Ok(Granularity::Row) | Err(_) => {
            Err("it is block or a number of keys from 1 on".to_owned())
        }
        Ok(granularity) => Ok(granularity),
    }
}
