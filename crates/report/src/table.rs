//! Text tables with aligned columns.

use std::fmt;

/// The side of the column that a cell is aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of text under a title and column names.
#[derive(Debug)]
pub struct Table {
    title: String,
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(title: impl Into<String>, columns: &[(&str, Align)]) -> Self {
        Table {
            title: title.into(),
            columns: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty, cells beyond the last column are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The columns to show: empty columns are left out.
    fn shown_columns(&self) -> Vec<usize> {
        let filled = |column: usize| self.rows.iter().any(|row| !row[column].is_empty());
        (0..self.columns.len())
            .filter(|&column| filled(column))
            .collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| width(&row[column]));
        cells
            .chain([width(&self.columns[column].0)])
            .max()
            .unwrap_or(0)
    }
}

/// The terminal cells of `text`: no printed character is wider than one cell.
fn width(text: &str) -> usize {
    text.chars().count()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<(usize, usize)> = self
            .shown_columns()
            .into_iter()
            .map(|column| (column, self.width(column)))
            .collect();
        let line = |f: &mut fmt::Formatter<'_>, cell: &dyn Fn(usize) -> String| {
            let mut line = String::new();
            for &(column, wide) in &columns {
                let text = cell(column);
                let gap = " ".repeat(wide.saturating_sub(width(&text)));
                line += "  ";
                line += &match self.columns[column].1 {
                    Align::Left => text + &gap,
                    Align::Right => gap + &text,
                };
            }
            writeln!(f, "{}", line.trim_end())
        };
        if !self.title.is_empty() {
            writeln!(f, "{}", self.title)?;
        }
        line(f, &|column| self.columns[column].0.clone())?;
        let wide = |column| {
            columns
                .iter()
                .find(|(c, _)| *c == column)
                .map_or(0, |(_, wide)| *wide)
        };
        line(f, &|column| "─".repeat(wide(column)))?;
        for row in &self.rows {
            line(f, &|column| row[column].clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(
            "things",
            &[
                ("name", Align::Left),
                ("time", Align::Right),
                ("note", Align::Left),
                ("met", Align::Left),
            ],
        );
        table.row(["put", "3.1 ns", "", "✓"].map(String::from));
        table.row(["round trip", "1.25 µs", "", "✗"].map(String::from));
        table
    }

    #[test]
    fn columns_line_up_by_characters_not_bytes() {
        let text = sample().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "things",
                "  name           time  met",
                "  ──────────  ───────  ───",
                "  put          3.1 ns  ✓",
                "  round trip  1.25 µs  ✗",
            ]
        );
    }

    #[test]
    fn empty_column_is_left_out_and_short_row_filled() {
        let mut table = sample();
        assert!(!table.to_string().contains("note"));
        table.row(["get".to_owned()]);
        assert!(table.to_string().ends_with("  get\n"));
    }
}
