//! The table: a line for each scenario, or for each of its cases.

use std::collections::BTreeMap;

use serde_json::Value;

use super::runs::{Tried, errors, list};
use super::scenarios::Expected;

/// One line.
#[derive(Debug, PartialEq)]
struct ScenarioRow {
    cells: [String; COLUMNS],
}

const COLUMNS: usize = 8;
/// The headings but the last, which is about the resources that are counted.
const HEADINGS: [&str; COLUMNS - 1] = [
    "what was broken",
    "runs",
    "what callers got",
    "after, median",
    "worst",
    "operations",
    "wrong",
];

/// The lines of a scenario.
fn rows(tried: &Tried) -> Vec<ScenarioRow> {
    if let Some(why) = tried.runs.iter().find_map(|run| run.skipped.as_deref()) {
        let got = format!("not tried here: {why}");
        return vec![row(tried, tried.scenario.name, 0, got, Vec::new())];
    }
    match tried.scenario.expected {
        Expected::Cases(_) => cases(tried),
        expected => {
            let runs = || tried.runs.iter();
            let times = runs().flat_map(|run| run.times(expected)).collect();
            vec![row(
                tried,
                tried.scenario.name,
                tried.runs.len(),
                got(tried),
                times,
            )]
        }
    }
}

fn cases(tried: &Tried) -> Vec<ScenarioRow> {
    let mut names: Vec<String> = Vec::new();
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut kinds: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let ranks = tried.runs.iter().flat_map(|run| &run.ranks);
    for case in ranks.flat_map(|rank| list(&rank["cases"])) {
        let text = |field: &str| case[field].as_str().unwrap_or("?").to_owned();
        let (name, kind) = (text("name"), text("got"));
        if !names.contains(&name) {
            names.push(name.clone());
        }
        let waited = case["waited"].as_f64().unwrap_or_default();
        times.entry(name.clone()).or_default().push(waited);
        *kinds.entry(name).or_default().entry(kind).or_default() += 1;
    }
    let line = |name: String| {
        let times = times.remove(&name).unwrap_or_default();
        let kinds = kinds.remove(&name).unwrap_or_default();
        row(tried, &name, times.len(), counted(&kinds), times)
    };
    names.into_iter().map(line).collect()
}

fn row(tried: &Tried, name: &str, runs: usize, got: String, mut times: Vec<f64>) -> ScenarioRow {
    let ranks = || tried.runs.iter().flat_map(|run| &run.ranks);
    let sum = |of: &dyn Fn(&Value) -> u64| ranks().map(of).sum::<u64>();
    let number = |rank: &Value, field: &str| rank[field].as_u64().unwrap_or(0);
    let right = |case: &&Value| case["right"] == true;
    let wrong = sum(&|rank| {
        let cases = list(&rank["cases"]);
        let of_name = cases.iter().filter(|case| case["name"] == name);
        number(rank, "wrong") + (of_name.clone().count() - of_name.filter(right).count()) as u64
    });
    let operations = match tried.scenario.expected {
        Expected::Cases(_) => runs as u64,
        _ => sum(&|rank| {
            let fields = ["puts", "gets", "requests", "operations"].iter();
            fields.map(|field| number(rank, field)).sum()
        }),
    };
    let pages: i64 = tried.runs.iter().filter_map(|run| run.pages).sum();
    times.sort_by(f64::total_cmp);
    let time = |at: usize| {
        times
            .get(at)
            .map_or_else(|| "–".to_owned(), |time| seconds(*time))
    };
    ScenarioRow {
        cells: [
            name.to_owned(),
            runs.to_string(),
            got,
            time(times.len() / 2),
            time(times.len().saturating_sub(1)),
            operations.to_string(),
            wrong.to_string(),
            pages.to_string(),
        ],
    }
}

/// The errors that callers got at all ranks and runs, each kind with the ranks that got it.
fn got(tried: &Tried) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    if let Expected::Refused(texts) = tried.scenario.expected {
        let named = tried.runs.iter().filter(|run| run.says(texts)).count();
        return format!("no job; {named} × {} named", texts[0]);
    }
    let ranks = || tried.runs.iter().flat_map(|run| &run.ranks);
    for kind in ranks().flat_map(errors) {
        *kinds.entry(kind).or_default() += 1;
    }
    let refused: u64 = ranks().filter_map(|rank| rank["refused"].as_u64()).sum();
    match (kinds.is_empty(), refused) {
        (true, 0) => "no error".to_owned(),
        (true, refused) => format!("no error; {refused} registrations refused"),
        (false, _) => counted(&kinds),
    }
}

fn counted(kinds: &BTreeMap<String, usize>) -> String {
    let each = kinds
        .iter()
        .map(|(kind, times)| format!("{times} × `{kind}`"));
    each.collect::<Vec<_>>().join(", ")
}

fn seconds(time: f64) -> String {
    match time {
        it if it >= 10.0 => format!("{it:.0} s"),
        it if it >= 1.0 => format!("{it:.1} s"),
        it if it >= 0.01 => format!("{:.0} ms", it * 1e3),
        it => format!("{:.1} ms", it * 1e3),
    }
}

/// The table of these runs, aligned, as Markdown.
pub(crate) fn of_all(tried: &[Tried]) -> String {
    let heading = tried.first().map_or("", |it| it.scenario.machine.heading());
    let rows: Vec<ScenarioRow> = tried.iter().flat_map(rows).collect();
    text(heading, &rows)
}

fn text(heading: &str, rows: &[ScenarioRow]) -> String {
    let last = |at: usize| HEADINGS.get(at).copied().unwrap_or(heading).to_owned();
    let headings: [String; COLUMNS] = std::array::from_fn(last);
    let lines = || std::iter::once(&headings).chain(rows.iter().map(|row| &row.cells));
    let width = |column: usize| {
        lines()
            .map(|it| it[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |cells: &[String; COLUMNS]| {
        let mut text = String::from("|");
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            text += &if is_number(column) {
                format!(" {cell:>width$} |")
            } else {
                format!(" {cell:<width$} |")
            };
        }
        text + "\n"
    };
    let mut table = line(&headings);
    table.push('|');
    for (column, width) in widths.iter().enumerate() {
        let end = if is_number(column) { ":" } else { "-" };
        table += &format!("{}{end}|", "-".repeat(width + 1));
    }
    table.push('\n');
    rows.iter().for_each(|row| table += &line(&row.cells));
    table
}

fn is_number(column: usize) -> bool {
    ![0, 2].contains(&column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lines_up() {
        let row = |name: &str| ScenarioRow {
            cells: [name, "3", "1 × `Ok`", "2.0 s", "10 s", "77", "0", "0"].map(str::to_owned),
        };
        let table = text("left", &[row("short"), row("5 % of packets – twice")]);
        let widths: Vec<_> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 4);
        assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let times = [0.0004, 0.05, 1.25, 12.6].map(seconds);
        assert_eq!(times, ["0.4 ms", "50 ms", "1.2 s", "13 s"]);
    }
}
