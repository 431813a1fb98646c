//! The figures of all sides, and the output.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::EnginePlace;
use super::cases::{CASES, EngineCase};
use super::sides::{EngineSide, SIDES, SideKind};

/// A line of `tools/engines/measure.py`.
#[derive(Debug, Deserialize)]
struct PrintedFigure {
    side: String,
    place: String,
    case: String,
    #[serde(default)]
    values: Vec<f64>,
    note: Option<String>,
}

/// What the rounds of a side gave for a row.
#[derive(Debug, Default)]
struct EngineCell {
    values: Vec<f64>,
    note: Option<String>,
}

impl EngineCell {
    fn median(&self) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let lower = if sorted.len().is_multiple_of(2) {
            sorted[middle - 1]
        } else {
            upper
        };
        Some((lower + upper) / 2.0)
    }
}

/// The figures of all sides, as they are printed.
#[derive(Debug, Default)]
pub(super) struct EngineFigures {
    /// By place, the row's number and the side's name.
    cells: BTreeMap<(EnginePlace, usize, &'static str), EngineCell>,
    /// The first line that names no row, side or place.
    unknown: Option<String>,
}

impl EngineFigures {
    /// Takes a line of the output.
    pub(super) fn listen(&mut self, line: &str) {
        let Ok(printed) = serde_json::from_str::<PrintedFigure>(line) else {
            return;
        };
        let place = (EnginePlace::ALL.into_iter()).find(|it| it.name() == printed.place);
        let row = CASES.iter().position(|(name, _)| *name == printed.case);
        let side = SIDES.iter().find(|side| side.name == printed.side);
        let (Some(place), Some(row), Some(side)) = (place, row, side) else {
            self.unknown.get_or_insert_with(|| line.to_owned());
            return;
        };
        let cell = self.cells.entry((place, row, side.name)).or_default();
        cell.values.extend(printed.values);
        if printed.note.is_some() {
            cell.note = printed.note;
        }
    }

    /// True if a side has printed a figure of this place.
    pub(super) fn has(&self, side: &EngineSide, place: EnginePlace) -> bool {
        let mut keys = self.cells.keys();
        keys.any(|(at, _, name)| *at == place && *name == side.name)
    }

    pub(super) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    fn median(&self, place: EnginePlace, row: usize, side: &EngineSide) -> Option<f64> {
        self.cells.get(&(place, row, side.name))?.median()
    }

    /// The figure of a side of ours, divided by the best of others.
    fn ratio(&self, place: EnginePlace, row: usize, side: &EngineSide) -> Option<f64> {
        let others = SIDES.iter().filter(|side| side.kind == SideKind::Other);
        let figures = others.filter_map(|other| self.median(place, row, other));
        let best = figures.min_by(f64::total_cmp)?;
        let ratio = self.median(place, row, side)? / best;
        (side.kind == SideKind::Ours && ratio.is_finite()).then_some(ratio)
    }

    /// The sides that printed something, and the rows of each place.
    fn shown(&self) -> (Vec<&'static EngineSide>, BTreeSet<(EnginePlace, usize)>) {
        let is_there = |side: &&EngineSide| self.cells.keys().any(|key| key.2 == side.name);
        let rows = self.cells.keys().map(|(place, row, _)| (*place, *row));
        (SIDES.iter().filter(is_there).collect(), rows.collect())
    }

    /// A table of Markdown, whose columns line up.
    pub(super) fn table(&self) -> String {
        let (sides, rows) = self.shown();
        let ours: Vec<_> = (sides.iter())
            .filter(|side| side.kind == SideKind::Ours)
            .collect();
        let labels = sides.iter().map(|side| side.label.to_owned());
        let ratios = ours
            .iter()
            .map(|side| format!("{} / best other", side.label));
        let mut lines: Vec<Vec<String>> = vec![
            ["median".to_owned()]
                .into_iter()
                .chain(labels)
                .chain(ratios)
                .collect(),
        ];
        let columns = lines[0].len();
        let mut before = None;
        for (place, row) in rows {
            if before.replace(place) != Some(place) {
                let mut line = vec![String::new(); columns];
                line[0] = format!("**{}**", place.label());
                lines.push(line);
            }
            let case = &CASES[row];
            let figures = sides.iter().map(|side| self.cell(place, row, case, side));
            let ratio = |side| match self.ratio(place, row, side) {
                Some(ratio) => significant(ratio),
                None => String::new(),
            };
            let ratios = ours.iter().map(|side| ratio(side));
            lines.push(
                [case.0.to_owned()]
                    .into_iter()
                    .chain(figures)
                    .chain(ratios)
                    .collect(),
            );
        }
        aligned(&lines)
    }

    fn cell(&self, place: EnginePlace, row: usize, case: &EngineCase, side: &EngineSide) -> String {
        let median = self.median(place, row, side).map(|it| case.1.show(it));
        let note = || self.cells.get(&(place, row, side.name))?.note.clone();
        median.or_else(note).unwrap_or_default()
    }

    /// An object for each cell.
    pub(super) fn json(&self) -> Vec<Value> {
        let object = |(place, row, name): &(EnginePlace, usize, &'static str),
                      cell: &EngineCell| {
            let (case, unit) = CASES[*row];
            let side = SIDES.iter().find(|side| side.name == *name)?;
            Some(json!({
                "place": place.name(), "case": case, "side": name, "unit": unit.name(),
                "median": cell.median(), "values": cell.values, "note": cell.note,
                "to_best_other": self.ratio(*place, *row, side),
            }))
        };
        let cells = self.cells.iter();
        cells.filter_map(|(key, cell)| object(key, cell)).collect()
    }
}

/// A ratio with two digits that count.
fn significant(ratio: f64) -> String {
    match ratio {
        ..0.0995 => format!("{ratio:.3}"),
        ..9.95 => format!("{ratio:.2}"),
        _ => format!("{ratio:.0}"),
    }
}

/// Lines of Markdown from lines of cells. The first is the heading. The first column is aligned at its left.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0).max(3)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            text += &match at {
                0 => format!("| {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            };
        }
        text.push('\n');
        if number == 0 {
            for (at, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                text += &match at {
                    0 => format!("|{dashes}-|"),
                    _ => format!("{dashes}:|"),
                };
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> EngineFigures {
        let mut figures = EngineFigures::default();
        for line in [
            r#"{"side": "nixl-ucx", "place": "host", "case": "write 4 KiB", "values": [3000]}"#,
            r#"{"side": "nixl-ucx", "place": "host", "case": "write 4 KiB", "values": [5000]}"#,
            r#"{"side": "mooncake", "place": "host", "case": "write 4 KiB", "values": [20000]}"#,
            r#"{"side": "hydrant", "place": "host", "case": "write 4 KiB", "values": [1000]}"#,
            "a warning",
            r#"{"side": "mooncake", "place": "hosts", "case": "link down, then a write fails", "note": "not in 10 s"}"#,
            r#"{"side": "hydrant", "place": "hosts", "case": "link down, then a write fails", "values": [3e9]}"#,
        ] {
            figures.listen(line);
        }
        figures
    }

    #[test]
    fn the_lines_of_all_sides_meet_in_a_table_that_lines_up() {
        let figures = figures();
        assert_eq!(figures.unknown(), None);
        let expected = "\
| median                        | NIXL, UCX |    Mooncake | Hydrant | Hydrant / best other |
|-------------------------------|----------:|------------:|--------:|---------------------:|
| **one host**                  |           |             |         |                      |
| write 4 KiB                   |   4.00 µs |     20.0 µs | 1.00 µs |                 0.25 |
| **two hosts**                 |           |             |         |                      |
| link down, then a write fails |           | not in 10 s |  3.00 s |                      |
";
        assert_eq!(figures.table(), expected);
    }

    #[test]
    fn json_has_an_object_for_each_cell() {
        let objects = figures().json();
        assert_eq!(objects.len(), 5);
        let ours = (objects.iter()).find(|it| it["side"] == "hydrant" && it["place"] == "host");
        assert_eq!(ours.map(|it| &it["to_best_other"]), Some(&json!(0.25)));
        let theirs = objects.iter().find(|it| it["note"] == "not in 10 s");
        assert_eq!(theirs.map(|it| &it["median"]), Some(&Value::Null));
    }

    #[test]
    fn a_figure_that_no_row_has_is_told() {
        let mut figures = EngineFigures::default();
        figures
            .listen(r#"{"side": "bare", "place": "host", "case": "write 5 KiB", "values": [1]}"#);
        assert!(
            figures
                .unknown()
                .is_some_and(|line| line.contains("write 5 KiB"))
        );
        assert!(!figures.has(&SIDES[0], EnginePlace::Host));
    }
}
