//! `cargo xtask prose`: how plain the words of the tree are.
//!
//! It counts the sentences of comments, rustdoc and Markdown that are too long or begin with a
//! relative word, and the types that share a name. No subject of a commit may be too long. The
//! budgets are in `budget.rs`, and the check fails above them.

mod budget;
mod comments;
mod counts;
mod names;
mod subjects;
mod text;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use self::counts::{Breach, SentenceCounts, aligned};
use self::names::SharedNames;
use crate::command::{at_root, output};
use crate::error::Error;
use crate::report::TableFormat;
use crate::rooms;

/// The lists that are printed below the table.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The places of the sentences that break a rule, all or those below a file or folder
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = ".")]
    places: Option<PathBuf>,

    /// The commonest first words of sentences in comments
    #[arg(long)]
    words: bool,

    /// The type names that several modules declare, with the places
    #[arg(long)]
    names: bool,
}

/// The first words that `--words` prints.
const WORDS_SHOWN: usize = 15;

/// The places that a failure prints.
const PLACES_SHOWN: usize = 40;

/// The folders that hold no text of ours where git cannot tell.
const SKIPPED: [&str; 3] = ["target", "fuzz/target", ".git"];

/// The result of a look at the tree.
struct Findings {
    counts: SentenceCounts,
    names: SharedNames,
    /// None where there is no history.
    subjects: Option<Vec<String>>,
}

/// Prints the table and the lists asked for. Returns success if the tree keeps to the budgets.
pub(crate) fn report(arguments: &Arguments, format: TableFormat) -> ExitCode {
    let findings = match examine() {
        Ok(findings) => findings,
        Err(cause) => {
            eprintln!("prose: {cause}");
            return ExitCode::FAILURE;
        }
    };
    match format {
        TableFormat::Table => findings
            .lines(arguments)
            .iter()
            .for_each(|it| println!("{it}")),
        TableFormat::Json => findings
            .json(arguments)
            .iter()
            .for_each(|it| println!("{it}")),
    }
    let problems = findings.problems();
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    if arguments.places.is_none() && format == TableFormat::Table {
        findings
            .some_places()
            .iter()
            .for_each(|it| println!("{it}"));
    }
    problems.iter().for_each(|it| eprintln!("prose: {it}"));
    ExitCode::FAILURE
}

/// The part of `quick`, `test` and `full`.
pub(crate) fn check() -> Result<Vec<String>, Error> {
    let findings = examine()?;
    let lines = findings.lines(&Arguments::default());
    let problems = findings.problems();
    if problems.is_empty() {
        return Ok(lines);
    }
    Err(Error::Prose {
        problems: [problems, lines, findings.some_places()].concat(),
    })
}

fn examine() -> Result<Findings, Error> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut counts = SentenceCounts::default();
    for file in files(&workspace)? {
        match fs::read_to_string(workspace.join(&file)) {
            Ok(text) => counts.add(&file, &text),
            // Git still lists a file that was just removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&file, &error)),
        }
    }
    if counts.is_empty() {
        return Err(Error::NotRead {
            what: format!("no sentence below {}", workspace.display()),
        });
    }
    Ok(Findings {
        counts,
        names: SharedNames::among(rooms::types()?),
        subjects: subjects::problems(),
    })
}

/// The files with text: those that git tracks or would add, or all files where there is no git.
fn files(workspace: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut git = at_root("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let mut files: Vec<PathBuf> = match output(git) {
        Ok(printed) => {
            let printed = String::from_utf8_lossy(&printed);
            printed.split_terminator('\0').map(PathBuf::from).collect()
        }
        Err(_) => files_below(workspace)?,
    };
    let has_text = |it: &PathBuf| {
        it.extension()
            .is_some_and(|it| ["rs", "h", "md"].iter().any(|end| it == *end))
    };
    files.retain(has_text);
    files.sort();
    Ok(files)
}

fn files_below(workspace: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(workspace.join(&folder));
        for entry in entries.map_err(|error| unreadable(&folder, &error))? {
            let entry = entry.map_err(|error| unreadable(&folder, &error))?;
            let path = folder.join(entry.file_name());
            let kind = entry
                .file_type()
                .map_err(|error| unreadable(&path, &error))?;
            if kind.is_file() {
                files.push(path);
            } else if kind.is_dir() && !SKIPPED.iter().any(|it| path == Path::new(it)) {
                open.push(path);
            }
        }
    }
    Ok(files)
}

fn unreadable(file: &Path, error: &io::Error) -> Error {
    Error::NotRead {
        what: format!("{}: {error}", file.display()),
    }
}

impl Findings {
    fn problems(&self) -> Vec<String> {
        let subjects = self.subjects.iter().flatten().cloned();
        [
            self.counts.problems(),
            self.names.problems(),
            subjects.collect(),
        ]
        .concat()
    }

    fn lines(&self, arguments: &Arguments) -> Vec<String> {
        let mut lines = self.counts.table();
        lines.push(self.names.summary());
        if self.subjects.is_none() {
            lines.push("subjects of commits not checked: there is no history here".to_owned());
        }
        if arguments.words {
            let words = self.counts.first_words(WORDS_SHOWN);
            let row = |(word, count): (&str, usize)| [word.to_owned(), count.to_string()];
            let rows: Vec<_> = words.into_iter().map(row).collect();
            lines.extend(aligned(&rows));
        }
        if arguments.names {
            lines.extend(self.names.list());
        }
        lines.extend(self.places(arguments).map(Breach::line));
        lines
    }

    fn json(&self, arguments: &Arguments) -> Vec<Value> {
        let mut rows = self.counts.json();
        if arguments.words {
            let words = self.counts.first_words(WORDS_SHOWN).into_iter();
            rows.extend(words.map(|(word, count)| json!({"word": word, "count": count})));
        }
        if arguments.names {
            rows.extend(self.names.json());
        }
        rows.extend(self.places(arguments).map(Breach::json));
        rows
    }

    /// The places that the arguments ask for.
    fn places<'a>(&'a self, arguments: &'a Arguments) -> impl Iterator<Item = &'a Breach> {
        let asked = arguments.places.as_deref();
        let asked = asked.map(|path| path.strip_prefix(".").unwrap_or(path));
        let below = move |it: &&Breach| asked.is_some_and(|path| it.file.starts_with(path));
        self.counts.places.iter().filter(below)
    }

    /// The first places, which a failure prints.
    fn some_places(&self) -> Vec<String> {
        let places = &self.counts.places;
        let mut lines: Vec<String> = places.iter().take(PLACES_SHOWN).map(Breach::line).collect();
        if places.len() > PLACES_SHOWN {
            lines.push(format!(
                "{} places in all: cargo xtask prose --places [PATH]",
                places.len()
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_found_with_and_without_git() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let own = PathBuf::from("xtask/src/prose/mod.rs");
        let known = files(&workspace).unwrap();
        assert!(known.contains(&own));
        let walked = files_below(&workspace).unwrap();
        // A file may be removed from disk while git still lists it.
        let is_there = |it: &&PathBuf| workspace.join(it).is_file();
        let missed: Vec<_> = known
            .iter()
            .filter(is_there)
            .filter(|it| !walked.contains(it))
            .collect();
        assert!(missed.is_empty(), "{missed:?}");
        assert!(!walked.iter().any(|it| it.starts_with("target")));
    }

    #[test]
    fn places_are_those_below_a_path() {
        let mut counts = SentenceCounts::default();
        counts.add(Path::new("crates/a/src/lib.rs"), "// What is it.");
        counts.add(Path::new("crates/ab/src/lib.rs"), "// Who is it.");
        let findings = Findings {
            counts,
            names: SharedNames::among([]),
            subjects: Some(vec!["commit a is long".into()]),
        };
        let asked = |path: &str| Arguments {
            places: Some(path.into()),
            ..Arguments::default()
        };
        assert_eq!(findings.places(&asked(".")).count(), 2);
        assert_eq!(findings.places(&asked("./crates/ab")).count(), 1);
        assert_eq!(findings.places(&asked("crates/a")).count(), 1);
        assert_eq!(findings.places(&Arguments::default()).count(), 0);
        assert!(findings.problems().contains(&"commit a is long".to_owned()));
    }
}
