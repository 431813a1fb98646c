//! The results of an experiment: tables, pictures, and a comparison with the expectations.

use serde::Serialize;

use hydrant_report::plot;
use hydrant_report::units;

/// The result of an experiment: a chapter of the page.
#[derive(Debug)]
pub(crate) struct Part {
    /// The stem of its file names.
    pub(crate) id: &'static str,
    /// The heading.
    pub(crate) title: String,
    /// Paragraphs about the experiment, and about the differences from the paper and their causes.
    pub(crate) notes: Vec<String>,
    /// The tables in the order of the page.
    pub(crate) sheets: Vec<Sheet>,
    /// The pictures in the order of the page.
    pub(crate) pictures: Vec<Picture>,
    /// The expectations, and whether they are met.
    pub(crate) criteria: Vec<Criterion>,
}

impl Part {
    /// An empty part.
    pub(crate) fn new(id: &'static str, title: impl Into<String>) -> Self {
        Self {
            id,
            title: title.into(),
            notes: Vec::new(),
            sheets: Vec::new(),
            pictures: Vec::new(),
            criteria: Vec::new(),
        }
    }

    /// Adds a paragraph.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// A picture and the name of its file.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The file name without the ending.
    pub(crate) name: String,
    /// The picture itself.
    pub(crate) figure: plot::Figure,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct Sheet {
    /// The file name without the ending.
    pub(crate) name: String,
    /// The title.
    pub(crate) title: String,
    /// Names of the columns, as in the file: `put_us`.
    pub(crate) columns: Vec<String>,
    /// The cells.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// True for a table that appears only as a file, because it is too long for a reader.
    pub(crate) hidden: bool,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    /// An empty cell.
    Empty,
    /// Words.
    Text(String),
    /// A number.
    Number(f64),
}

impl Sheet {
    /// An empty table.
    pub(crate) fn new(name: impl Into<String>, title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
            hidden: false,
        }
    }

    /// A table of series over one axis, for the file behind a picture. It has one row for each
    /// position, and one column for each series.
    pub(crate) fn of_series(
        name: impl Into<String>,
        title: impl Into<String>,
        axis: &str,
        unit: &str,
        series: &[plot::Series],
    ) -> Self {
        let mut places: Vec<f64> = (series.iter())
            .flat_map(|series| series.points.iter().map(|(x, _)| *x))
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let columns = std::iter::once(axis.to_owned())
            .chain(series.iter().map(|series| {
                let name = series.name.replace([' ', ',', '%', '+'], "_");
                format!("{name}_{unit}").replace("__", "_")
            }))
            .collect();
        let rows = (places.into_iter())
            .map(|place| {
                let of = |series: &plot::Series| {
                    let found = series.points.iter().find(|(x, _)| *x == place);
                    found.map_or(Cell::Empty, |(_, y)| Cell::Number(*y))
                };
                std::iter::once(Cell::Number(place))
                    .chain(series.iter().map(of))
                    .collect()
            })
            .collect();
        Self {
            name: name.into(),
            title: title.into(),
            columns,
            rows,
            hidden: true,
        }
    }

    /// Adds a row; it has a cell for each column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize(self.columns.len(), Cell::Empty);
        self.rows.push(cells);
    }

    /// As comma-separated values.
    pub(crate) fn csv(&self) -> String {
        let mut text = self
            .columns
            .iter()
            .map(|name| quoted(name))
            .collect::<Vec<_>>()
            .join(",");
        text.push('\n');
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::csv).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

impl Cell {
    /// The cell as text for a reader.
    pub(crate) fn words(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                grouped(*number)
            }
            Cell::Number(number) => units::digits(*number),
        }
    }

    fn csv(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => quoted(text),
            Cell::Number(number) => format!("{number}"),
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Cell::Number(number)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Cell::Empty, Cell::Number)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Cell::Number(number as f64)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

/// A whole number with a thin space between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    if number < 0.0 {
        format!("-{text}")
    } else {
        text
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

/// An expectation of a reproduction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Criterion {
    /// The experiment.
    pub(crate) part: String,
    /// The quantity.
    pub(crate) what: String,
    /// The paper's result.
    pub(crate) paper: String,
    /// Our result.
    pub(crate) ours: String,
    /// True if the expectation is met.
    pub(crate) met: bool,
    /// The reason why not, or a remark.
    pub(crate) why: String,
}

impl Part {
    /// Records an expectation and its result.
    pub(crate) fn expect(
        &mut self,
        what: impl Into<String>,
        paper: impl Into<String>,
        ours: impl Into<String>,
        met: bool,
        why: impl Into<String>,
    ) {
        self.criteria.push(Criterion {
            part: self.id.to_owned(),
            what: what.into(),
            paper: paper.into(),
            ours: ours.into(),
            met,
            why: why.into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_plain_in_files_and_readable_on_pages() {
        let mut sheet = Sheet::new("a", "A", &["kind", "puts", "put_us"]);
        sheet.row(["pin, put".into(), 2_125_000_u64.into(), 14.25.into()]);
        sheet.row(["none".into()]);
        assert_eq!(
            sheet.csv(),
            "kind,puts,put_us\n\"pin, put\",2125000,14.25\nnone,,\n"
        );
        assert_eq!(sheet.rows[0][1].words(), "2\u{2009}125\u{2009}000");
        assert_eq!(sheet.rows[0][2].words(), "14.2");
    }

    #[test]
    fn series_become_columns() {
        let series = |name: &str, points: &[(f64, f64)]| plot::Series {
            name: name.to_owned(),
            kind: plot::SeriesKind::Ours,
            colour: 0,
            points: points.to_vec(),
        };
        let all = [
            series("a b", &[(1.0, 2.0), (2.0, 3.0)]),
            series("c", &[(2.0, 4.0)]),
        ];
        let sheet = Sheet::of_series("s", "S", "bytes", "us", &all);
        assert_eq!(sheet.csv(), "bytes,a_b_us,c_us\n1,2,\n2,3,4\n");
    }
}
