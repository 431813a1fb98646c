//! `cargo xtask soak`: torture, kills and repeated runs of `torture` of `apps`, on every conduit by
//! every strategy, for any time.
//!
//! Each run draws from a seed of its own. A failure prints the seed, with the command that repeats
//! the run. `docs/faults.md` has the table of a long soak.

mod job;
mod kind;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use clap::Args;

use crate::command::{at_root, run_listening, succeeded};
use crate::dose::Dose;
use crate::error::Error;
use crate::programs;
use crate::report::TableFormat;
use crate::tool::{lacking, missing};
use crate::vm;
use job::{SoakJob, Trial};
use kind::SoakedConduit;
use table::ConduitRow;

/// The time, the conduits, and the first seed.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// How long it takes in all, divided among the conduits
    #[arg(long, value_name = "MINUTES", default_value = "0.4", value_parser = minutes)]
    minutes: Duration,

    /// Only this conduit
    #[arg(long, value_enum, value_name = "CONDUIT")]
    only: Option<SoakedConduit>,

    /// The seed of the first run; the clock's if not given
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,

    /// Also write the table, as Markdown, to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Use what is built, and the devices that are here: what this command runs in the machine
    #[arg(long, hide = true)]
    here: bool,
}

impl Arguments {
    /// The arguments with the time of this dose.
    pub(crate) fn of(dose: Dose) -> Self {
        Self {
            minutes: dose.soak(),
            only: None,
            seed: None,
            markdown: None,
            here: false,
        }
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    (text.parse().ok())
        .filter(|minutes| (0.01..=10_000.0).contains(minutes))
        .map(|minutes: f64| Duration::from_secs_f64(minutes * 60.0))
        .ok_or_else(|| "it is a number of minutes from 0.01 to 10000".to_owned())
}

/// The longest time that a machine takes to boot, beyond the time of its runs.
const BOOT: f64 = 300.0;

/// Runs the soak and prints the table. Returns success if nothing was wrong.
pub(crate) fn report(arguments: &Arguments, format: TableFormat) -> ExitCode {
    match soak(arguments) {
        Ok(rows) => {
            print(&rows, format);
            let written = (arguments.markdown.as_ref()).map(|file| {
                fs::write(file, table::text(&rows)).map_err(vm::Error::file("write", file))
            });
            if let Some(Err(cause)) = written {
                eprintln!("soak: {cause}");
                return ExitCode::FAILURE;
            }
            if rows.iter().all(ConduitRow::is_clean) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(cause) => {
            eprintln!("soak: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn print(rows: &[ConduitRow], format: TableFormat) {
    match format {
        TableFormat::Json => rows.iter().for_each(|row| println!("{}", row.json())),
        TableFormat::Table => {
            print!("\n{}", table::text(rows));
            for problem in rows.iter().flat_map(|row| &row.problems) {
                println!("\n{problem}");
            }
        }
    }
}

/// The part of `test` and `full` that needs no virtual machine.
pub(crate) fn check(arguments: &Arguments) -> Result<Vec<String>, Error> {
    let rows = soak_on(
        &SoakedConduit::without_machine(),
        arguments.minutes,
        None,
        false,
    )?;
    let lines: Vec<String> = table::text(&rows).lines().map(str::to_owned).collect();
    let problems: Vec<String> = rows.into_iter().flat_map(|row| row.problems).collect();
    if problems.is_empty() {
        Ok(lines)
    } else {
        Err(Error::Soak {
            problems: [lines, problems].concat(),
        })
    }
}

fn soak(arguments: &Arguments) -> Result<Vec<ConduitRow>, Error> {
    let kinds = match arguments.only {
        Some(kind) => vec![kind],
        None => SoakedConduit::all(),
    };
    let missing = missing(vm::TOOLS);
    if kinds.contains(&SoakedConduit::Verbs) && !arguments.here && !missing.is_empty() {
        // The check for tools comes first, not after all other runs.
        return Err(lacking(&missing));
    }
    soak_on(&kinds, arguments.minutes, arguments.seed, arguments.here)
}

fn soak_on(
    kinds: &[SoakedConduit],
    time: Duration,
    seed: Option<u64>,
    here: bool,
) -> Result<Vec<ConduitRow>, Error> {
    if !here {
        programs::build_shipped()?;
    }
    let seed = seed.unwrap_or_else(seed_of_clock);
    let share = time / kinds.len() as u32;
    let mut rows = Vec::new();
    for kind in kinds {
        rows.push(match kind {
            SoakedConduit::Verbs if !here => in_machine(share, seed)?,
            kind => soak_one(*kind, share, seed)?,
        });
    }
    Ok(rows)
}

/// Soaks one conduit for this time: a run by each strategy in turn.
fn soak_one(kind: SoakedConduit, share: Duration, first: u64) -> Result<ConduitRow, Error> {
    let mut row = ConduitRow::new(kind);
    let begun = Instant::now();
    let mut number = 0;
    // At least one run happens, however short the time is.
    while number == 0 || begun.elapsed() < share {
        let trial = Trial::draw(kind, first + number);
        show(kind, begun, share, &row);
        let before = job::pages_pinned();
        for outcome in run_trial(&trial)? {
            row.add(&trial, outcome);
        }
        if let Some(left) = job::pages_left(before) {
            row.wrong(&trial, &format!("{left} pages were left pinned"));
        }
        number += 1;
    }
    row.seconds = begun.elapsed().as_secs_f64();
    show(kind, begun, share, &row);
    eprintln!();
    Ok(row)
}

/// Runs the trial: twice at once where both runs must print the same.
fn run_trial(trial: &Trial) -> Result<Vec<job::TrialOutcome>, Error> {
    let start = || {
        SoakJob::start(trial).map_err(|source| Error::NotRun {
            command: trial.typed(),
            source,
        })
    };
    let first = start()?;
    if !trial.repeats() {
        return Ok(vec![first.end(trial)]);
    }
    // Each run is load for the other.
    let second = start()?;
    let (first, mut second) = (first.end(trial), second.end(trial));
    if first.said != second.said {
        let differs = job::first_difference(&first.said, &second.said);
        second
            .problems
            .push(format!("two runs of one seed differ: {differs}"));
    }
    Ok(vec![first, second])
}

/// Shows the progress in one line that is overwritten.
fn show(kind: SoakedConduit, begun: Instant, share: Duration, row: &ConduitRow) {
    use io::{IsTerminal, Write};
    const WIDTH: usize = 20;
    let (done, all) = (begun.elapsed().as_secs_f64(), share.as_secs_f64());
    let filled = ((done / all).min(1.0) * WIDTH as f64) as usize;
    let bar: String = (0..WIDTH)
        .map(|at| if at < filled { '#' } else { '.' })
        .collect();
    let wrong = row.problems.len();
    let line = format!(
        "{:<8} [{bar}] {done:5.0} of {all:.0} s, {} runs, {wrong} wrong",
        kind.name(),
        row.runs
    );
    let mut out = io::stderr();
    let _ = if out.is_terminal() {
        write!(out, "\r{line} ")
    } else if row.runs.is_multiple_of(20) {
        // A log needs no line for each run.
        writeln!(out, "{line}")
    } else {
        Ok(())
    };
}

/// Soaks RDMA, in a virtual machine that runs this command.
fn in_machine(share: Duration, seed: u64) -> Result<ConduitRow, Error> {
    let this = env::current_exe().map_err(|source| Error::NotRun {
        command: "xtask vm".into(),
        source,
    })?;
    let seconds = share.as_secs_f64();
    let mut command = at_root("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(&this);
    command.args([
        "vm",
        "--timeout",
        &format!("{:.0}", seconds * 1.5 + BOOT),
        "--",
    ]);
    command
        .arg(&this)
        .args(["soak", "--here", "--only", "verbs", "--format", "json"]);
    command.args(["--minutes", &(seconds / 60.0).to_string()]);
    command.args(["--seed", &seed.to_string()]);
    let mut row = None;
    let (command, status) = run_listening(command, |line| {
        row = ConduitRow::from_json(line).or(row.take());
    })?;
    match row {
        // The command fails if a run failed, and the row says so.
        Some(row) => Ok(row),
        None => {
            succeeded(command.clone(), status, vec![])?;
            Err(Error::NothingRan { command })
        }
    }
}

fn seed_of_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // Few digits, so that a person can type the seed again.
    since.map_or(1, |since| since.as_secs() % 10_000_000 * 100)
}
