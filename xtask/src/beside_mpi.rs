//! `cargo xtask beside-mpi`: five programs of the kind that users write, beside the same in C and
//! MPI.
//!
//! It compares their lines of code, and their times when both sides run in turn. Each program
//! checks its own answer, and the two answers are compared. `docs/beside-mpi.md` has a table that
//! it printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::command::{at_root, cargo, output, run, target_folder};
use crate::error::Error;
use crate::report::TableFormat;
use crate::tool::Tool;

/// The numbers of runs and ranks.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Ranks of each program
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// Runs of each side, one after the other in turn; the table has their medians
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// A program on both sides: its name and its arguments.
struct ComparedProgram {
    name: &'static str,
    arguments: &'static [&'static str],
}

const PROGRAMS: [ComparedProgram; 5] = [
    ComparedProgram {
        name: "halo",
        arguments: &["512", "500"],
    },
    ComparedProgram {
        name: "hash_table",
        arguments: &["100000"],
    },
    ComparedProgram {
        name: "integer_sort",
        arguments: &["1048576"],
    },
    ComparedProgram {
        name: "page_server",
        arguments: &["50000"],
    },
    ComparedProgram {
        name: "summa",
        arguments: &["512"],
    },
];

/// The tools that the machine must have.
const TOOLS: [Tool; 3] = [Tool::Cc, Tool::Hydra, Tool::MpichCc];

/// A line of the table.
struct ProgramRow {
    name: &'static str,
    /// Lines of code, in Rust and in C.
    lines: [usize; 2],
    /// Medians of seconds.
    seconds: [f64; 2],
}

/// Builds, runs and compares all programs. Returns success if every answer was right.
pub(crate) fn report(arguments: &Arguments, format: TableFormat) -> ExitCode {
    match compare_all(arguments) {
        Ok(rows) => {
            match format {
                TableFormat::Table => print!("\n{}", table(&rows)),
                TableFormat::Json => rows
                    .iter()
                    .for_each(|row| println!("{}", json(row, arguments))),
            }
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("beside-mpi: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn compare_all(arguments: &Arguments) -> Result<Vec<ProgramRow>, Error> {
    if let Some(tool) = TOOLS.iter().find(|tool| !tool.is_here()) {
        let what = format!("{} is not here: cargo xtask setup installs it", tool.name());
        return Err(Error::NotRead { what });
    }
    run(cargo("build --release -p hydrant-cli"))?;
    run(cargo("build --release -p hydrant --examples"))?;
    let folder = target_folder().join("beside-mpi");
    fs::create_dir_all(&folder).map_err(|cause| unreadable(&folder, &cause))?;
    PROGRAMS
        .iter()
        .map(|program| compare(program, &folder, arguments))
        .collect()
}

fn compare(
    program: &ComparedProgram,
    folder: &Path,
    arguments: &Arguments,
) -> Result<ProgramRow, Error> {
    let name = program.name;
    let rust = format!("crates/hydrant/examples/{name}.rs");
    let c = format!("docs/beside-mpi/{name}.c");
    let binary = folder.join(name);
    let mut cc = at_root("mpicc.mpich");
    // Like the compiler of the other side, which contracts no multiplications and additions.
    cc.args([
        "-O3",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
    ]);
    cc.arg(&binary).arg(&c);
    run(cc)?;

    let ranks = arguments.ranks.to_string();
    let release = target_folder().join("release");
    let ours = || {
        let mut command = at_root(&release.join("hydrant").to_string_lossy());
        command
            .args(["run", "-n", &ranks])
            .arg(release.join("examples").join(name));
        command
    };
    let theirs = || {
        let mut command = at_root("mpiexec.hydra");
        command.args(["-n", &ranks]).arg(&binary);
        command
    };
    let mut seconds = [Vec::new(), Vec::new()];
    for _ in 0..arguments.runs {
        let (answer, time) = timed(ours(), program)?;
        seconds[0].push(time);
        let (other, time) = timed(theirs(), program)?;
        seconds[1].push(time);
        if answer != other {
            let what = format!("{name} says \"{answer}\" in Rust and \"{other}\" in C");
            return Err(Error::NotRead { what });
        }
    }
    Ok(ProgramRow {
        name,
        lines: [lines(Path::new(&rust))?, lines(Path::new(&c))?],
        seconds: seconds.map(median),
    })
}

/// Runs one side. Returns its answer, without the counters that only one side prints, and its
/// seconds.
fn timed(mut command: Command, program: &ComparedProgram) -> Result<(String, f64), Error> {
    command.args(program.arguments);
    let said = output(command)?;
    let said = String::from_utf8_lossy(&said);
    let read = || {
        // A launcher may write the rank before each line.
        let (_, line) = (said.lines()).find_map(|line| line.split_once(program.name))?;
        let (answer, seconds) = line.strip_prefix(": ")?.rsplit_once(" in ")?;
        let answer = answer.split(',').next()?.to_owned();
        Some((answer, seconds.strip_suffix(" s")?.parse().ok()?))
    };
    read().ok_or_else(|| Error::NotRead {
        what: format!("{} gave no answer: {said}", program.name),
    })
}

/// The number of lines of a file that are neither blank nor comments.
fn lines(file: &Path) -> Result<usize, Error> {
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

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn unreadable(file: &Path, cause: &std::io::Error) -> Error {
    Error::NotRead {
        what: format!("{}: {cause}", file.display()),
    }
}

fn table(rows: &[ProgramRow]) -> String {
    let mut text = format!(
        "{:<13} {:>10} {:>10} {:>12} {:>12} {:>11}\n",
        "program", "lines Rust", "lines C", "Hydrant ms", "MPI ms", "MPI/Hydrant"
    );
    for ProgramRow {
        name,
        lines: [rust, c],
        seconds: [ours, theirs],
    } in rows
    {
        text += &format!(
            "{name:<13} {rust:>10} {c:>10} {:>12.2} {:>12.2} {:>11.2}\n",
            ours * 1e3,
            theirs * 1e3,
            theirs / ours
        );
    }
    text
}

fn json(row: &ProgramRow, arguments: &Arguments) -> serde_json::Value {
    serde_json::json!({
        "program": row.name,
        "ranks": arguments.ranks,
        "runs": arguments.runs,
        "lines_rust": row.lines[0],
        "lines_c": row.lines[1],
        "seconds_hydrant": row.seconds[0],
        "seconds_mpi": row.seconds[1],
    })
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
    fn both_sides_of_every_program_are_there() {
        for program in PROGRAMS {
            for file in [
                format!("crates/hydrant/examples/{}.rs", program.name),
                format!("docs/beside-mpi/{}.c", program.name),
            ] {
                assert!(lines(Path::new(&file)).unwrap() > 30, "{file}");
            }
        }
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
