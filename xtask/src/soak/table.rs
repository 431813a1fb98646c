//! The table: a line for each conduit.

use serde_json::{Value, json};

use super::job::{Trial, TrialOutcome};
use super::kind::SoakedConduit;

/// The most problems that are printed for one conduit.
const MAX_TOLD: usize = 20;

/// The results of a conduit.
#[derive(Debug)]
pub(super) struct ConduitRow {
    kind: SoakedConduit,
    pub(super) seconds: f64,
    pub(super) runs: u64,
    killed: u64,
    operations: u64,
    checks: u64,
    longest: f64,
    /// Runs with a problem.
    failed: u64,
    /// The problems, each with the command that repeats it.
    pub(super) problems: Vec<String>,
}

const COLUMNS: usize = 8;
const HEADINGS: [&str; COLUMNS] = [
    "conduit",
    "minutes",
    "runs",
    "ranks killed",
    "operations",
    "checks",
    "longest",
    "wrong",
];

impl ConduitRow {
    pub(super) fn new(kind: SoakedConduit) -> Self {
        Self {
            kind,
            seconds: 0.0,
            runs: 0,
            killed: 0,
            operations: 0,
            checks: 0,
            longest: 0.0,
            failed: 0,
            problems: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, trial: &Trial, outcome: TrialOutcome) {
        self.runs += 1;
        self.killed += u64::from(outcome.killed);
        self.operations += outcome.operations;
        self.checks += outcome.checks;
        self.longest = self.longest.max(outcome.longest);
        if !outcome.problems.is_empty() {
            self.wrong(trial, &outcome.problems.join("\n"));
        }
    }

    pub(super) fn wrong(&mut self, trial: &Trial, problem: &str) {
        self.failed += 1;
        let told = format!("seed {}: {problem}\n$ {}", trial.seed, trial.typed());
        // Printed at once, because a long soak may be ended early.
        eprintln!("\n{told}");
        if self.problems.len() < MAX_TOLD {
            self.problems.push(told);
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.failed == 0
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "conduit": self.kind.name(),
            "seconds": self.seconds,
            "runs": self.runs,
            "killed": self.killed,
            "operations": self.operations,
            "checks": self.checks,
            "longest": self.longest,
            "wrong": self.failed,
            "problems": self.problems,
        })
    }

    /// The row of a line, if the line holds one.
    pub(super) fn from_json(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |field: &str| value[field].as_u64();
        let problems = value["problems"].as_array()?.iter();
        Some(Self {
            kind: SoakedConduit::named(value["conduit"].as_str()?)?,
            seconds: value["seconds"].as_f64()?,
            runs: number("runs")?,
            killed: number("killed")?,
            operations: number("operations")?,
            checks: number("checks")?,
            longest: value["longest"].as_f64()?,
            failed: number("wrong")?,
            problems: problems
                .filter_map(|it| Some(it.as_str()?.to_owned()))
                .collect(),
        })
    }

    fn cells(&self) -> [String; COLUMNS] {
        let longest = match self.kind {
            // The time is virtual.
            SoakedConduit::Sim => "–".to_owned(),
            _ => format!("{:.1} s", self.longest),
        };
        [
            format!("`{}`", self.kind.name()),
            format!("{:.1}", self.seconds / 60.0),
            self.runs.to_string(),
            self.killed.to_string(),
            self.operations.to_string(),
            self.checks.to_string(),
            longest,
            self.failed.to_string(),
        ]
    }
}

/// The table, aligned, as Markdown.
pub(super) fn text(rows: &[ConduitRow]) -> String {
    let headings = HEADINGS.map(str::to_owned);
    let lines: Vec<_> = [headings]
        .into_iter()
        .chain(rows.iter().map(ConduitRow::cells))
        .collect();
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for (number, cells) in lines.iter().enumerate() {
        text.push('|');
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            text += &match column {
                0 => format!(" {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            };
        }
        text.push('\n');
        if number == 0 {
            text.push('|');
            for (column, width) in widths.iter().enumerate() {
                let end = if column == 0 { "-" } else { ":" };
                text += &format!("{}{end}|", "-".repeat(width + 1));
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_back_as_it_was_printed() {
        let mut row = ConduitRow::new(SoakedConduit::Verbs);
        let trial = Trial::draw(SoakedConduit::Verbs, 77);
        let problems = vec!["something was wrong".to_owned()];
        row.add(
            &trial,
            TrialOutcome {
                operations: 5,
                problems,
                ..TrialOutcome::default()
            },
        );
        let back = ConduitRow::from_json(&row.json().to_string()).unwrap();
        assert_eq!(back.json(), row.json());
        assert!(!back.is_clean());
        let problem = &back.problems[0];
        assert!(
            problem.contains("seed 77") && problem.contains("--seed 77"),
            "{problem}"
        );
        assert!(ConduitRow::from_json("{}").is_none());
    }

    #[test]
    fn the_table_lines_up() {
        let mut long = ConduitRow::new(SoakedConduit::Pinned);
        long.operations = 123_456_789;
        let table = text(&[
            ConduitRow::new(SoakedConduit::Smp),
            long,
            ConduitRow::new(SoakedConduit::Sim),
        ]);
        let widths: Vec<_> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 5);
        assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
    }
}
