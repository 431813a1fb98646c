//! The table, and the figures in it.

use std::fs;
use std::path::{Path, PathBuf};

use super::sides::ComparedSide;
use crate::error::Error;

/// A line of the table.
#[derive(Debug)]
pub(super) struct ProgramRow {
    pub(super) name: &'static str,
    pub(super) ranks: u32,
    /// Lines of code, in Rust and in C.
    pub(super) lines: [usize; 2],
    /// Medians of seconds, as [`ComparedSide::ALL`] orders them.
    pub(super) seconds: [f64; 3],
}

impl ProgramRow {
    /// The time of the better MPI, divided by Hydrant's.
    fn ratio(&self) -> f64 {
        let [ours, mpich, open_mpi] = self.seconds;
        mpich.min(open_mpi) / ours
    }
}

pub(super) fn table(rows: &[ProgramRow]) -> String {
    let mut text = format!(
        "{:<13} {:>5} {:>10} {:>8}",
        "program", "ranks", "lines Rust", "lines C"
    );
    for side in ComparedSide::ALL {
        text += &format!(" {:>12}", format!("{} ms", side.name()));
    }
    text += &format!(" {:>11}\n", "MPI/Hydrant");
    for row in rows {
        let [rust, c] = row.lines;
        text += &format!("{:<13} {:>5} {rust:>10} {c:>8}", row.name, row.ranks);
        for seconds in row.seconds {
            text += &format!(" {:>12.2}", seconds * 1e3);
        }
        text += &format!(" {:>11.2}\n", row.ratio());
    }
    text
}

pub(super) fn json(row: &ProgramRow, runs: u32, a_host_each: bool) -> serde_json::Value {
    let mut object = serde_json::json!({
        "program": row.name,
        "ranks": row.ranks,
        "hosts": if a_host_each { row.ranks } else { 1 },
        "runs": runs,
        "lines_rust": row.lines[0],
        "lines_c": row.lines[1],
        "ratio": row.ratio(),
    });
    for (side, seconds) in ComparedSide::ALL.iter().zip(row.seconds) {
        object[format!("seconds_{}", side.key())] = seconds.into();
    }
    object
}

/// The number of lines of a file that are neither blank nor comments.
pub(super) fn lines(file: &Path) -> Result<usize, Error> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(file);
    let text = fs::read_to_string(&path).map_err(|cause| unreadable(&path, &cause))?;
    Ok(code_lines(&text))
}

fn code_lines(text: &str) -> usize {
    let mut in_comment = false;
    let is_code = |line: &&str| {
        let line = line.trim();
        let begins = line.starts_with("/*");
        let was_in = in_comment;
        in_comment = (in_comment || begins) && !line.ends_with("*/");
        !(line.is_empty() || was_in || begins || line.starts_with("//"))
    };
    text.lines().filter(is_code).count()
}

pub(super) fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

pub(super) fn unreadable(file: &Path, cause: &std::io::Error) -> Error {
    Error::NotRead {
        what: format!("{}: {cause}", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_are_no_code() {
        let text = "/* One,\n * two. */\n#include <mpi.h>\n\nint x; /* why */\n// three\n  /* four */\n}\n";
        assert_eq!(code_lines(text), 3);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn the_better_mpi_is_set_beside_hydrant() {
        let row = ProgramRow {
            name: "halo",
            ranks: 2,
            lines: [124, 98],
            seconds: [0.5, 2.0, 1.0],
        };
        assert_eq!(row.ratio(), 2.0);
        let object = json(&row, 5, true);
        assert_eq!(object["seconds_open_mpi"], 1.0);
        assert!(table(&[row]).ends_with("1000.00        2.00\n"));
    }
}
