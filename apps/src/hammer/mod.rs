//! Ranks that put, get and send to each other without rest, check everything that they read, and
//! report the effect of a fault. `cargo xtask faults` runs them.
//!
//! Every rank owns parts of everybody's memory (`field`). It alone knows their content, and checks
//! it after every get. A rank that gets a loss goes on with the survivors, and leaves only when all
//! of them have got it. So survivors show that they still reach each other. Each rank prints one
//! JSON object (`report`) after the job, when no memory may be pinned any more.

mod die;
mod field;
mod finish;
pub(crate) mod log;
mod messages;
mod report;
mod targets;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use hydrant::{Error, Job, Rank, Result};
use hydrant_base::Random;

use crate::{options::SummaryFormat, seed::Seed};
use die::{RankPhase, Situation};
use field::{Field, FieldArea};
use log::RankLog;
use messages::HammerMessages;
use report::HammerReport;

/// Accesses all other ranks' memory, checks the data, and reports faults.
#[derive(Debug, Clone, Parser)]
#[command(name = "hammer", version)]
pub struct Arguments {
    /// How long to work without a fault
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,

    /// Stop the work when this file exists
    #[arg(long, value_name = "FILE")]
    until: Option<PathBuf>,

    /// How long to go on with the others once a rank was lost
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    after: f64,

    /// Have a rank kill itself in the middle of this
    #[arg(long, value_enum, value_name = "WHAT")]
    die: Option<Situation>,

    /// The rank that kills itself
    #[arg(long, value_name = "RANK", default_value_t = 1)]
    victim: u32,

    /// How long the rank works before that
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    at: f64,

    /// Only try memory that is read-only, not mapped, or partly mapped, a few times
    #[arg(long)]
    targets: bool,

    /// The seed of all random choices
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// How to print the report of each rank
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = SummaryFormat::Table)]
    format: SummaryFormat,
}

fn seconds(text: &str) -> Result<f64, String> {
    (text.parse().ok())
        .filter(|seconds| (0.0..=86_400.0).contains(seconds))
        .ok_or_else(|| "it is a number of seconds from 0 to 86400".to_owned())
}

/// Joins the job and works. The status is 0 without a fault, and 3 if ranks were lost or operations
/// failed. It is 1 if any data was wrong or the job could not be joined.
pub fn main() -> ExitCode {
    let told = Mutex::new(None);
    let since = Instant::now();
    let builder = match hydrant::log_to_stderr().and_then(|()| Job::builder()) {
        // One of the targets is named by address.
        Ok(builder) => builder.anywhere(true),
        Err(cause) => return not_begun(&cause, since.elapsed()),
    };
    let ended = builder.run_spmd(|job| {
        let arguments = match Arguments::try_parse() {
            Ok(arguments) => arguments,
            Err(usage) => {
                if job.rank() == Rank(0) {
                    usage.print()?;
                }
                // 0 if the user asked for help, 2 after a usage error.
                return Ok(ExitCode::from(u8::from(usage.use_stderr()) * 2));
            }
        };
        let mut report = HammerReport::new(job, &arguments);
        let outcome = work(job, &arguments, &mut report);
        report.note_end(job, &outcome);
        let broken = report.status();
        *told.lock().unwrap_or_else(PoisonError::into_inner) = Some((report, arguments.format));
        outcome.map(|()| broken)
    });
    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Some((mut report, format)) = told else {
        return ended.unwrap_or_else(|cause| not_begun(&cause, since.elapsed()));
    };
    report.note_after();
    if let Err(cause) = &ended {
        report.note_failure(cause);
    }
    // One write, because the ranks share the output.
    let printed = std::io::stdout().write_all(report.text(format).as_bytes());
    match (ended, printed) {
        (Ok(_), Ok(())) => report.status(),
        (Err(_), _) => report.status_of_loss(),
        (_, Err(_)) => ExitCode::FAILURE,
    }
}

/// Reports that the job could not be joined.
fn not_begun(cause: &Error, waited: Duration) -> ExitCode {
    let format = Arguments::try_parse().map_or(SummaryFormat::Table, |arguments| arguments.format);
    if format == SummaryFormat::Json {
        println!("{}", report::not_begun(cause, waited));
    }
    eprintln!("hammer: {cause}");
    ExitCode::FAILURE
}

fn work(job: &Job, arguments: &Arguments, report: &mut HammerReport) -> Result<()> {
    if arguments.targets {
        return targets::try_all(job, report);
    }
    let mut log = RankLog::new(job);
    let outcome = work_until_end(job, arguments, &mut log);
    report.take(log);
    outcome
}

/// Works until the end, then checks everything once more.
fn work_until_end(job: &Job, arguments: &Arguments, log: &mut RankLog) -> Result<()> {
    let mut field = Field::new(job)?;
    let mut messages = HammerMessages::new(job)?;
    let done = job.alloc::<u64>(job.size() as usize)?;
    job.barrier()?;
    print_line(&format!(
        "rank {} is process {}",
        job.rank(),
        std::process::id()
    ));

    let situation = arguments
        .die
        .filter(|_| job.rank() == Rank(arguments.victim));
    thread::scope(|threads| {
        let working = log.phase();
        if let Some(situation) = situation {
            let after = Duration::from_secs_f64(arguments.at);
            threads.spawn(move || die::kill_self_in(situation, job, &working, after));
        }
        let mut dice = Seed::new(arguments.seed, u64::from(job.rank().0)).random();
        let begun = Instant::now();
        let mut until = begun + Duration::from_secs_f64(arguments.seconds);
        let mut mourned = 0;
        let mut stop = Stop(arguments.until.as_deref(), begun);
        while Instant::now() < until && !log.is_alone() && !stop.check() {
            step(log, &mut field, &mut messages, &mut dice);
            if log.lost() > mourned {
                mourned = log.lost();
                until = Instant::now() + Duration::from_secs_f64(arguments.after);
            }
        }
        finish::check_all(log, &mut field, &messages);
        finish::take_leave(log, &done);
        log.set_phase(RankPhase::Over);
    });
    log.loss()
}

/// Prints a line for the script in one write, because the ranks share the output.
fn print_line(what: &str) {
    let _ = std::io::stderr().write_all(format!("hammer: {what}\n").as_bytes());
}

/// One random operation on a random rank.
fn step(log: &mut RankLog, field: &mut Field, messages: &mut HammerMessages, dice: &mut Random) {
    let Some(target) = log.draw(dice.word()) else {
        return;
    };
    let which = match dice.below(3) {
        0 => FieldArea::Lent,
        _ => FieldArea::Symmetric,
    };
    match dice.below(20) {
        0..8 => field.put(log, target, which, dice),
        8..14 => field.get(log, target, which, dice),
        14..17 => field.put_several(log, dice),
        _ => messages.send_some(log, target, dice),
    }
    log.sample();
}

/// A file that ends the work, and the time of the last check for it.
struct Stop<'a>(Option<&'a Path>, Instant);

impl Stop<'_> {
    /// Looks for the file, at most once in 50 ms. Returns whether it looked and the file exists.
    fn check(&mut self) -> bool {
        let is_due = self.1.elapsed() >= Duration::from_millis(50);
        if is_due {
            self.1 = Instant::now();
        }
        is_due && self.0.is_some_and(Path::exists)
    }
}
