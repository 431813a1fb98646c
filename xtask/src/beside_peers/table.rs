//! The figures of all sides, their medians, and the output.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cases::{ComparedCase, MIB, PeerUnit};
use super::sides::{BARE, PeerSide, PeerSides};

/// The figures of all sides, as they are printed.
#[derive(Debug, Default)]
pub(super) struct PeerFigures {
    /// Those of each run, by the row's number and the side's name.
    runs: BTreeMap<(usize, &'static str), Vec<f64>>,
    /// The side that prints now, and its number of ranks.
    now: Option<(&'static str, u32)>,
}

impl PeerFigures {
    /// Takes a line of the output.
    pub(super) fn listen(&mut self, sides: &PeerSides, line: &str) {
        if let Some(begun) = line.strip_prefix("side ") {
            self.now = begun.split_once(' ').and_then(|(name, ranks)| {
                let side = sides.all().find(|side| side.name == name)?;
                Some((side.name, ranks.parse().ok()?))
            });
            return;
        }
        let Some((side, ranks)) = self.now else {
            return;
        };
        if line.starts_with('{') {
            if let Ok(row) = serde_json::from_str(line) {
                self.take_ours(sides.rows(), side, ranks, &row);
            }
            return;
        }
        let mut words = line.split('\t');
        let mut next = || words.next();
        let (Some(case), Some(bytes), Some(figure)) = (next(), next(), next()) else {
            return;
        };
        let (Ok(bytes), Ok(nanos)) = (bytes.parse::<u64>(), figure.parse::<f64>()) else {
            return;
        };
        for (number, row) in sides.rows().iter().enumerate() {
            if (row.case, row.bytes, row.ranks) == (case, bytes, ranks) {
                let figure = match row.unit {
                    PeerUnit::Nanoseconds => nanos,
                    PeerUnit::MegabytesPerSecond => bytes as f64 / nanos * 1e3,
                };
                self.runs.entry((number, side)).or_default().push(figure);
            }
        }
    }

    /// A row of `hydrant bench`, with the bare network or memory that it measured beside.
    fn take_ours(&mut self, rows: &[ComparedCase], side: &'static str, ranks: u32, row: &Value) {
        let text = |key| row[key].as_str().unwrap_or_default();
        let (bench, case) = (text("bench"), text("case"));
        let bytes = row["bytes"].as_u64().unwrap_or_default();
        for (number, it) in rows.iter().enumerate() {
            let (its_bench, its_case) = it.ours;
            let same_case =
                case == its_case || its_case.ends_with(' ') && case.starts_with(its_case);
            if (it.bytes, it.ranks, its_bench) != (bytes, ranks, bench) || !same_case {
                continue;
            }
            for (name, key) in [(side, "median"), (BARE, "reference")] {
                // A reference of collectives is another operation.
                let is_operation = key == "median" || ["rma", "am"].contains(&bench);
                if let Some(figure) = row[key].as_f64().filter(|_| is_operation) {
                    self.runs.entry((number, name)).or_default().push(figure);
                }
            }
        }
    }

    /// The figures of a cell, from the least.
    fn sorted(&self, number: usize, side: &PeerSide) -> Vec<f64> {
        let mut runs = self
            .runs
            .get(&(number, side.name))
            .cloned()
            .unwrap_or_default();
        runs.sort_by(f64::total_cmp);
        runs
    }

    /// True if the side gave a figure.
    pub(super) fn has(&self, side: &PeerSide) -> bool {
        self.runs.keys().any(|(_, name)| *name == side.name)
    }

    /// The table as Markdown. A tilde marks a cell whose runs differ by more than a quarter, without the least
    /// and the greatest.
    pub(super) fn markdown(&self, sides: &PeerSides) -> String {
        let shown: Vec<&PeerSide> = sides.all().filter(|side| self.has(side)).collect();
        let mut text = "| operation | bytes |".to_owned();
        shown
            .iter()
            .for_each(|side| text += &format!(" {} |", side.label));
        text += &format!("\n|---|---|{}\n", "--:|".repeat(shown.len()));
        for (number, row) in sides.rows().iter().enumerate() {
            let ranks = match row.case {
                "barrier" | "all-reduce" => format!(", {} ranks", row.ranks),
                _ => String::new(),
            };
            text += &format!("| {}{ranks} | {} |", row.case, short_bytes(row.bytes));
            for side in &shown {
                let runs = self.sorted(number, side);
                text += &match median(&runs) {
                    Some(figure) => format!(" {}{} |", spread_mark(&runs), row.unit.show(figure)),
                    None => " |".to_owned(),
                };
            }
            text.push('\n');
        }
        text
    }

    /// An object for each cell.
    pub(super) fn json(&self, sides: &PeerSides) -> Vec<Value> {
        let mut all = Vec::new();
        for (number, row) in sides.rows().iter().enumerate() {
            for side in sides.all() {
                let runs = self.sorted(number, side);
                if let Some(median) = median(&runs) {
                    all.push(json!({
                        "case": row.case, "bytes": row.bytes, "ranks": row.ranks, "side": side.name,
                        "unit": row.unit.name(), "median": median, "runs": runs,
                    }));
                }
            }
        }
        all
    }
}

fn short_bytes(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        _ if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ if bytes.is_multiple_of(1024) => format!("{} KiB", bytes / 1024),
        _ => bytes.to_string(),
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

fn spread_mark(sorted: &[f64]) -> &'static str {
    let inner = sorted
        .get(1..sorted.len().saturating_sub(1))
        .unwrap_or_default();
    match inner {
        [least, .., most] if *most > least * 1.25 => "~",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{SMP, TCP};
    use super::super::sides::PeerNetwork;
    use super::*;

    #[test]
    fn lines_of_all_sides_meet_in_rows() {
        let sides = PeerSides::of(PeerNetwork::Tcp);
        let mut figures = PeerFigures::default();
        for line in [
            "side ucx 2",
            "put\t8\t12000",
            "a warning",
            "put bandwidth\t65536\t65536",
            "side hydrant 4",
            r#"{"bench":"barrier","case":"barrier, 4 ranks","bytes":null,"median":7000.0,"reference":3.0}"#,
            "side hydrant 2",
            r#"{"bench":"rma","case":"put, hit","bytes":8,"median":11000.0,"reference":10000.0}"#,
            "side nobody 2",
            "put\t8\t1",
        ] {
            figures.listen(&sides, line);
        }
        let table = figures.markdown(&sides);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "| operation | bytes | bare libfabric | Hydrant | UCX |"
        );
        assert_eq!(lines[2], "| put | 8 | 10.0 µs | 11.0 µs | 12.0 µs |");
        assert_eq!(lines[7], "| put bandwidth | 64 KiB | | | 1000 MB/s |");
        assert_eq!(lines[16], "| barrier, 4 ranks |  | | 7.00 µs | |");
        assert_eq!(figures.json(&sides).len(), 5);
    }

    #[test]
    fn the_extremes_of_five_runs_do_not_count() {
        assert_eq!(spread_mark(&[1.0, 10.0, 11.0, 12.0, 90.0]), "");
        assert_eq!(spread_mark(&[10.0, 10.0, 11.0, 13.0, 13.0]), "~");
        assert_eq!(spread_mark(&[10.0]), "");
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
    }

    #[test]
    fn every_row_is_told_from_the_others() {
        for rows in [SMP, TCP] {
            for (at, row) in rows.iter().enumerate() {
                let key = |it: &ComparedCase| (it.case, it.bytes, it.ranks);
                assert!(rows[..at].iter().all(|it| key(it) != key(row)), "{row:?}");
            }
        }
    }
}
