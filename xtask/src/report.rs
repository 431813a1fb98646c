//! The output for a person or a script: headings while checks run, and a table when they are done.

use std::io::{IsTerminal, stderr};
use std::time::Instant;

use clap::ValueEnum;

use crate::command::take_building;
use crate::error::Error;

/// The format of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Aligned columns, with the runners' own summaries below.
    Table,
    /// One JSON object a row.
    Json,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The check ran and found no fault.
    Passed,
    /// The check ran and found a fault.
    Failed,
    /// The check lacked a tool, or found nothing to run.
    CouldNotRun,
    /// The check is optional, and the machine lacks its tools or does not allow it.
    LeftOut,
}

impl Verdict {
    /// True if the verdict makes the whole run fail.
    pub(crate) fn fails(self) -> bool {
        matches!(self, Verdict::Failed | Verdict::CouldNotRun)
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::CouldNotRun => "could not run",
            Verdict::LeftOut => "left out",
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct CheckRow {
    /// The check's name.
    pub(crate) check: &'static str,
    /// The result of the check.
    pub(crate) result: Verdict,
    /// The time that the check took.
    pub(crate) seconds: f64,
    /// The part of it in which cargo compiled.
    pub(crate) building: f64,
    /// The runner's summary, or the reason why the check did not pass.
    pub(crate) notes: Vec<String>,
}

/// Runs `work` under the heading `name`, and makes a row of its result.
///
/// `work` returns the lines that are repeated below the table.
pub(crate) fn timed(
    name: &'static str,
    work: impl FnOnce() -> Result<Vec<String>, Error>,
) -> CheckRow {
    heading(name);
    let start = Instant::now();
    take_building();
    let outcome = work();
    let seconds = start.elapsed().as_secs_f64();
    let building = take_building().as_secs_f64().min(seconds);
    let (result, notes) = match outcome {
        Ok(notes) => (Verdict::Passed, notes),
        Err(error) => {
            eprintln!("{name}: {error}");
            let verdict = if matches!(error, Error::LeftOut(_)) {
                Verdict::LeftOut
            } else if error.could_not_run() {
                Verdict::CouldNotRun
            } else {
                Verdict::Failed
            };
            let notes = error.to_string();
            (verdict, notes.lines().map(str::to_owned).collect())
        }
    };
    CheckRow {
        check: name,
        result,
        seconds,
        building,
        notes,
    }
}

/// Prints the heading of a check on standard error, like everything that is not the table.
pub(crate) fn heading(name: &str) {
    if stderr().is_terminal() {
        eprintln!("\n\x1b[1m── {name} ──\x1b[0m");
    } else {
        eprintln!("\n== {name} ==");
    }
}

/// Prints the table on standard output.
pub(crate) fn print(rows: &[CheckRow], format: TableFormat) {
    match format {
        TableFormat::Table => print!("\n{}", table(rows)),
        TableFormat::Json => {
            for row in rows {
                println!("{}", json(row));
            }
        }
    }
}

fn json(row: &CheckRow) -> serde_json::Value {
    serde_json::json!({
        "check": row.check,
        "result": row.result.words(),
        "seconds": tenths(row.seconds),
        "building_seconds": tenths(row.building),
        "running_seconds": tenths(row.seconds - row.building),
        "notes": row.notes,
    })
}

fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

fn table(rows: &[CheckRow]) -> String {
    let width = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
    let check = width(&mut rows.iter().map(|row| row.check.len())).max("check".len());
    let result = width(&mut rows.iter().map(|row| row.result.words().len())).max("result".len());

    let mut text = format!(
        "{:<check$}  {:<result$}  {:>8}  {:>8}  {:>8}\n",
        "check", "result", "seconds", "building", "running"
    );
    for row in rows {
        let words = row.result.words();
        text += &format!(
            "{:<check$}  {words:<result$}  {:>8.1}  {:>8.1}  {:>8.1}\n",
            row.check,
            row.seconds,
            row.building,
            row.seconds - row.building,
        );
    }
    if rows.len() > 1 {
        let sum = |of: fn(&CheckRow) -> f64| rows.iter().map(of).sum::<f64>();
        let (all, building) = (sum(|row| row.seconds), sum(|row| row.building));
        text += &format!(
            "{:<check$}  {:<result$}  {all:>8.1}  {building:>8.1}  {:>8.1}\n",
            "all",
            "",
            all - building,
        );
    }
    if rows.iter().any(|row| !row.notes.is_empty()) {
        text.push('\n');
    }
    for row in rows {
        for note in &row.notes {
            text += &format!("{:<check$}  {note}\n", row.check);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<CheckRow> {
        vec![
            CheckRow {
                check: "fmt",
                result: Verdict::Passed,
                seconds: 0.52,
                building: 0.41,
                notes: vec![],
            },
            CheckRow {
                check: "launchers",
                result: Verdict::CouldNotRun,
                seconds: 0.0,
                building: 0.0,
                notes: vec!["missing: \"mpirun\"".into()],
            },
        ]
    }

    #[test]
    fn the_table_is_aligned_and_repeats_the_notes() {
        let expected = "\
check      result          seconds  building   running
fmt        passed              0.5       0.4       0.1
launchers  could not run       0.0       0.0       0.0
all                            0.5       0.4       0.1

launchers  missing: \"mpirun\"
";
        assert_eq!(table(&rows()), expected);
    }

    #[test]
    fn json_has_one_complete_object_for_a_row() {
        let object = json(&rows()[1]);
        assert_eq!(object["check"], "launchers");
        assert_eq!(object["result"], "could not run");
        assert_eq!(object["seconds"], 0.0);
        assert_eq!(object["notes"][0], "missing: \"mpirun\"");
    }

    #[test]
    fn only_what_passed_or_was_optional_leaves_the_run_clean() {
        assert!(!Verdict::Passed.fails());
        assert!(!Verdict::LeftOut.fails());
        assert!(Verdict::Failed.fails());
        assert!(Verdict::CouldNotRun.fails());
    }
}
