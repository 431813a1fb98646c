//! Counts instructions on the hot paths with valgrind, and compares the counts with those
//! committed. Times vary from run to run; counts do not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::command::{cargo, run_listening, succeeded};
use crate::error::Error;
use crate::tool::{Tool, gungraun_runner, lacking};

/// The packages with such a benchmark, and the committed counts of each: a line `name count` for
/// each measurement.
const BENCHES: [(&str, &str); 2] = [
    ("hydrant-pinning", "crates/pinning/benches/instructions.txt"),
    ("hydrant", "crates/hydrant/benches/instructions.txt"),
];

/// The rise of a count that is accepted, in percent: another compiler orders code otherwise.
const SLACK: u64 = 5;

type InstructionCounts = BTreeMap<String, u64>;

/// Counts, and compares with the committed counts.
pub(crate) fn compare() -> Result<Vec<String>, Error> {
    let Some(runner) = gungraun_runner() else {
        return Err(lacking(&[Tool::GungraunRunner]));
    };
    let mut notes = Vec::new();
    for (package, committed) in BENCHES {
        let counted = counted(package, &runner)?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = fs::read_to_string(root.join(committed)).map_err(|source| Error::NotRun {
            command: format!("cat {committed}"),
            source,
        })?;
        notes.extend(judge(&counted, &parse(&text), committed)?);
    }
    Ok(notes)
}

/// The counts that the benchmark of a package prints.
fn counted(package: &str, runner: &Path) -> Result<InstructionCounts, Error> {
    let mut command = cargo("bench --bench instructions");
    command.args(["-p", package]);
    command.env("GUNGRAUN_RUNNER", runner);
    command.env("GUNGRAUN_COLOR", "never");
    let mut counted = InstructionCounts::new();
    let mut name = None;
    let (command, status) = run_listening(command, |line| {
        if let Some(title) = title(line) {
            name = Some(title);
        } else if let Some(count) = count(line) {
            counted.extend(name.take().map(|name| (name, count)));
        }
    })?;
    if status.success() && counted.is_empty() {
        return Err(Error::NothingRan { command });
    }
    succeeded(command, status, vec![])?;
    Ok(counted)
}

/// Returns notes if all is well, and the differences where a count rose or is missing.
fn judge(
    counted: &InstructionCounts,
    committed: &InstructionCounts,
    file: &'static str,
) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    let mut differences = Vec::new();
    for (name, count) in counted {
        match committed.get(name) {
            None => differences.push(format!("{name} {count} is not in the file")),
            Some(old) if *count * 100 > old * (100 + SLACK) => {
                differences.push(format!("{name} takes {count}, more than {old}"));
            }
            Some(old) if *count * (100 + SLACK) < old * 100 => {
                notes.push(format!("{name} {count}; lower the {old} in {file}"));
            }
            Some(_) => notes.push(format!("{name} {count}")),
        }
    }
    for name in committed.keys().filter(|it| !counted.contains_key(*it)) {
        differences.push(format!("{name} was not counted"));
    }
    if differences.is_empty() {
        return Ok(notes);
    }
    Err(Error::Counts { file, differences })
}

/// The name in a heading: `instructions::table::miss of_256:(filled(256))`.
fn title(line: &str) -> Option<String> {
    let name = line.strip_prefix("instructions::")?;
    let (name, _) = name.split_once(":(").unwrap_or((name, ""));
    Some(name.replace(' ', "/"))
}

/// The count in `  Instructions:    179116|N/A    (*********)`.
fn count(line: &str) -> Option<u64> {
    let counts = line.trim_start().strip_prefix("Instructions:")?;
    let (now, _) = counts.split_once('|')?;
    now.trim().parse().ok()
}

fn parse(text: &str) -> InstructionCounts {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    let counts = pairs.filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "counts.txt";

    fn counts(text: &str) -> InstructionCounts {
        parse(text)
    }

    #[test]
    fn the_output_of_the_runner_is_parsed() {
        let heading = "instructions::table::miss of_256:(filled(256))";
        assert_eq!(title(heading).unwrap(), "table::miss/of_256");
        let line = "  Instructions:                179116|180000       (-0.49%) [-1.0x]";
        assert_eq!(count(line), Some(179_116));
        assert_eq!(count("  L1 Hits:      238140|N/A   (*********)"), None);
        assert_eq!(title("  Instructions: 1|2"), None);
    }

    #[test]
    fn a_little_more_passes_and_much_more_does_not() {
        let committed = counts("a 1000");
        assert!(judge(&counts("a 1050"), &committed, FILE).is_ok());
        let error = judge(&counts("a 1051"), &committed, FILE).unwrap_err();
        assert!(!error.could_not_run());
        assert!(error.to_string().contains("a takes 1051, more than 1000"));
    }

    #[test]
    fn an_improvement_is_reported() {
        let notes = judge(&counts("a 900"), &counts("a 1000"), FILE).unwrap();
        assert!(notes[0].contains("lower the 1000"));
    }

    #[test]
    fn both_sides_must_name_the_same() {
        assert!(judge(&counts("a 1\nb 1"), &counts("a 1"), FILE).is_err());
        assert!(judge(&counts("a 1"), &counts("a 1\nb 1"), FILE).is_err());
    }
}
