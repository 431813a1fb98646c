//! All operations of the API, at random, from several threads of every rank at once. Each result is
//! checked against a serial model or a pattern that identifies itself. `cargo xtask soak` runs it
//! for any time.
//!
//! | | is checked by |
//! |---|---|
//! | `region`: puts and gets by every way | a serial model that the one thread that writes keeps |
//! | `lender`, `borrower`: buffers lent and taken back, pointers gone stale | words that name owner, buffer and writer |
//! | `words`: atomic operations | sums, and a serial model |
//! | `calls`: messages, calls | numbers and patterns |
//! | `collectives`: collectives, teams, memory that comes and goes, signals | what one rank computes alone |
//! | `background`: collectives that nobody waits for | the same |
//! | `ending`: operations in flight at the end of the job, and a wait for a rank at its end | patterns |
//! | `anywhere`: memory by its address | a serial model |
//! | `changing`: memory that is unmapped, emptied and moved between uses | a serial model |
//! | `forks`: forked children that take no part | errors, and all the rest |
//! | `watch`: hangs | an operation that takes a minute ends the process |
//!
//! A seed repeats the operations; only in virtual time it also repeats their interleaving.

mod anywhere;
mod background;
mod borrower;
mod calls;
mod changing;
mod collectives;
mod ending;
mod forks;
mod hand;
mod heap;
mod lender;
mod lists;
mod region;
mod report;
mod round;
mod stamp;
mod watch;
mod words;

use std::{
    io::Write,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use hydrant::{Error, Job, Rank, Result, Symmetric};

use crate::options::SummaryFormat;
use anywhere::{Anywhere, MemoryAddresses};
use borrower::Borrower;
use calls::{Handlers, ThreadCalls};
use changing::{Changing, ChangingParts};
use collectives::Collectives;
use ending::OperationsLeft;
use forks::Forks;
use hand::{Crew, Hand, TortureTally, is_simulated};
pub use heap::Heap;
use lender::Lender;
use region::WrittenRegion;
use report::TortureReport;
use watch::locked;
use words::Words;

/// The most operations of the first thread between two common steps of all ranks.
const ROUND: usize = 24;
/// Of the draws for rare operations, one in this many is a fork.
const FORK: usize = 3;

/// Runs random operations and checks their results.
#[derive(Debug, Clone, Parser)]
#[command(name = "torture", version)]
pub struct Arguments {
    /// How long to go on
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 3.0,
        conflicts_with = "rounds"
    )]
    seconds: f64,

    /// How many common steps the ranks take, instead of a time
    #[arg(long, value_name = "COUNT")]
    rounds: Option<u64>,

    /// The seed of all random choices
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Threads of each rank; one in virtual time
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    threads: u8,

    /// Leak handles and guards at times; their memory stays pinned until the process ends
    #[arg(long)]
    leak: bool,

    /// How many percent of the operations use memory that is changed between its uses, beside the usual ones
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    changes: u8,

    /// How long an operation may take before it counts as a hang
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    patience: f64,

    /// How to print the report of each rank
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = SummaryFormat::Table)]
    format: SummaryFormat,
}

/// Joins the job and works. The status is 0 if everything was right, and 1 if anything was wrong.
/// It is 3 if a rank was lost and nothing else was wrong, and 4 if an operation hung.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(usage) => {
            let _ = usage.print();
            return ExitCode::from(u8::from(usage.use_stderr()) * 2);
        }
    };
    watch::start(Duration::from_secs_f64(arguments.patience), arguments.seed);
    let (told, left) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let builder = match hydrant::log_to_stderr().and_then(|()| Job::builder()) {
        // Ranks also name each other's memory by its address.
        Ok(builder) => builder.anywhere(true),
        Err(cause) => {
            eprintln!("torture: {cause}");
            return ExitCode::FAILURE;
        }
    };
    let ended = builder.run_spmd(|job| {
        let (tally, mut outcome) = work(job, &arguments);
        if outcome.is_ok() {
            outcome = OperationsLeft::begin(job, arguments.seed).map(|it| locked(&left).push(it));
        }
        locked(&told).push(TortureReport::new(job, &arguments, tally, &outcome));
        outcome
    });
    let mut told = std::mem::take(&mut *locked(&told));
    if told.is_empty() {
        let cause = ended.err().map(|cause| cause.to_string());
        eprintln!("torture: {}", cause.unwrap_or_default());
        return ExitCode::FAILURE;
    }
    // In virtual time all ranks are in this process.
    told.sort_by_key(|report| report.rank);
    let cause = ended.as_ref().err();
    for left in std::mem::take(&mut *locked(&left)) {
        let report = told.iter_mut().find(|report| report.rank == left.rank);
        if let (Some(report), None, Some(sentence)) = (report, cause, left.wrong()) {
            report.note_wrong(sentence);
        }
    }
    told.iter_mut().for_each(|report| report.note_after(cause));
    let text: String = told.iter().map(|report| report.text(&arguments)).collect();
    // One write, because the ranks share the output.
    let printed = std::io::stdout().write_all(text.as_bytes());
    let bad = told
        .iter()
        .find(|report| report.status() != ExitCode::SUCCESS);
    match (bad, printed) {
        (_, Err(_)) => ExitCode::FAILURE,
        (None, _) => ExitCode::SUCCESS,
        (Some(report), _) => report.status(),
    }
}

/// The state that all threads of a rank share.
struct TortureState {
    region: Symmetric<u8>,
    board: Symmetric<u64>,
    words: words::SharedWords,
    handlers: Handlers,
    places: MemoryAddresses,
    changing: ChangingParts,
    stop: AtomicBool,
}

impl TortureState {
    /// Sets the state up. Collective.
    fn new(job: &Job, crew: Crew) -> Result<Self> {
        Ok(Self {
            region: job.alloc(crew.workers() * region::BYTES)?,
            board: job.alloc(crew.workers() * lender::RECORD)?,
            words: words::SharedWords::new(job, crew)?,
            handlers: Handlers::new(job, crew)?,
            places: MemoryAddresses::new(job, crew)?,
            changing: ChangingParts::new(job, crew)?,
            stop: AtomicBool::new(false),
        })
    }
}

/// A thread with all its state.
struct Worker<'job> {
    hand: Hand<'job>,
    region: WrittenRegion,
    lender: Lender,
    borrower: Borrower,
    words: Words,
    calls: ThreadCalls,
    anywhere: Anywhere,
    changing: Changing,
    forks: Forks,
    /// The percentage of additional steps that change memory.
    changes: u8,
}

impl<'job> Worker<'job> {
    fn new(mut hand: Hand<'job>, shared: &TortureState, changes: u8) -> Self {
        Self {
            region: WrittenRegion::new(&shared.region, &hand),
            lender: Lender::new(&shared.board),
            borrower: Borrower::new(&shared.board, &hand),
            words: Words::new(&shared.words, hand.crew),
            calls: ThreadCalls::new(&shared.handlers, hand.crew),
            anywhere: Anywhere::new(&shared.places),
            changing: Changing::new(&shared.changing, &mut hand),
            forks: Forks::new(&shared.board),
            changes,
            hand,
        }
    }

    /// Runs one random operation.
    fn step(&mut self) -> Result<()> {
        let hand = &mut self.hand;
        if self.changes > 0 && hand.dice.below(100) < usize::from(self.changes) {
            return self.changing.step(hand);
        }
        match hand.dice.below(100) {
            0..36 => self.region.step(hand),
            36..60 => self.borrower.step(hand),
            60..70 => self.lender.step(hand),
            70..80 => self.words.step(hand),
            80..90 => self.calls.step(hand, &mut self.region),
            90..93 => self.anywhere.step(hand),
            93..96 => self.changing.step(hand),
            96..98 => {
                hand.compute();
                Ok(())
            }
            // Rarely: a fork copies all of the process's mappings.
            98 if hand.dice.one_in(FORK) => {
                (self.forks).step(hand, &mut self.lender, &mut self.anywhere)
            }
            _ => hand.must("quiet", Job::quiet).map(drop),
        }
    }

    /// Works until the end, or until a rank is lost.
    fn work(&mut self, shared: &TortureState) -> Result<()> {
        while !shared.stop.load(Relaxed) {
            self.step()?;
        }
        Ok(())
    }

    /// Checks, after all threads have stopped their operations.
    fn check(&mut self) -> Result<()> {
        self.region.check_all(&mut self.hand)?;
        self.words.check_own(&mut self.hand)?;
        self.calls.check_all(&mut self.hand)?;
        self.lender.finish(&mut self.hand)?;
        self.anywhere.finish();
        Ok(())
    }
}

fn work(job: &Job, arguments: &Arguments) -> (TortureTally, Result<()>) {
    let mut tally = TortureTally::default();
    let outcome = torture(job, arguments, &mut tally);
    (tally, outcome)
}

fn torture(job: &Job, arguments: &Arguments, tally: &mut TortureTally) -> Result<()> {
    // Ranks begin in any order; after this one thread runs at a time.
    job.barrier()?;
    if is_simulated(job) {
        // Until the thread ends: at the end of the job this rank still allocates buffers for the
        // calls of others.
        heap::place(job.rank(), job.size() as usize);
    }
    let crew = Crew {
        ranks: job.size() as usize,
        threads: if is_simulated(job) {
            1
        } else {
            usize::from(arguments.threads)
        },
        leaks: arguments.leak,
    };
    if crew.workers() >= stamp::OWNER {
        let most = stamp::OWNER - 1;
        return Err(Error::other(format!(
            "all ranks have more than {most} threads"
        )));
    }
    let shared = TortureState::new(job, crew)?;
    let mut collectives = Collectives::new(job, arguments.seed)?;
    let hand = |thread| Hand::new(job, crew, thread, arguments.seed);
    let mut first = Worker::new(hand(0), &shared, arguments.changes);
    eprintln!(
        "torture: rank {} is process {}",
        job.rank(),
        std::process::id()
    );
    job.barrier()?;

    let (mut others, mut outcome) = (Vec::new(), Ok(()));
    thread::scope(|threads| {
        let spawn = |thread| {
            let (shared, hand) = (&shared, hand(thread));
            threads.spawn(move || {
                let mut worker = Worker::new(hand, shared, arguments.changes);
                let ended = worker.work(shared);
                (worker, ended)
            })
        };
        let spawned: Vec<_> = (1..crew.threads).map(spawn).collect();
        outcome = lead(&mut first, &mut collectives, arguments);
        shared.stop.store(true, Relaxed);
        for thread in spawned {
            match thread.join() {
                Ok((worker, ended)) => {
                    others.push(worker);
                    if outcome.is_ok() {
                        outcome = ended;
                    }
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    let outcome = (outcome.and_then(|()| collectives.finish(&mut first.hand)))
        .and_then(|()| finish(job, &shared, &mut first, &mut others));
    tally.add(first.hand.tally);
    for worker in others {
        tally.add(worker.hand.tally);
    }
    if outcome.is_ok() {
        tally.confirm();
    }
    outcome
}

/// The first thread: its own operations, and the common steps of all ranks. The first rank decides
/// the end.
fn lead(first: &mut Worker, collectives: &mut Collectives, arguments: &Arguments) -> Result<()> {
    let begun = Instant::now();
    let mut rounds = 0;
    loop {
        for _ in 0..first.hand.dice.below(ROUND) {
            first.step()?;
        }
        collectives.step(&mut first.hand)?;
        rounds += 1;
        let enough = match arguments.rounds {
            Some(count) => rounds >= count,
            None => begun.elapsed().as_secs_f64() >= arguments.seconds,
        };
        let mut said = [u64::from(enough)];
        first
            .hand
            .attempt("broadcast", |job| job.broadcast(Rank(0), &mut said))?;
        if said == [1] {
            return Ok(());
        }
    }
}

/// Checks everything once more, after all threads of all ranks have stopped.
fn finish(
    job: &Job,
    shared: &TortureState,
    first: &mut Worker,
    others: &mut [Worker],
) -> Result<()> {
    first.hand.attempt("barrier", Job::barrier)?;
    let mut added = first.words.added.clone();
    for worker in others.iter() {
        let pairs = added.iter_mut().zip(&worker.words.added);
        pairs.for_each(|(sum, other)| *sum += other);
    }
    words::check_sums(&mut first.hand, &shared.words, added)?;
    first.check()?;
    for worker in others {
        worker.check()?;
    }
    job.barrier()
}
