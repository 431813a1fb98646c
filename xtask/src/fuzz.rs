//! The coverage-guided fuzzer of the parsers whose input comes from other processes: `fuzz/`.
//!
//! The targets are libFuzzer's, built by the stable compiler: its coverage pass needs nothing of
//! the standard library. `cargo fuzz` does the same with the address sanitizer, which stable lacks.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::command::{at_root, cargo, run_listening, succeeded, target_folder};
use crate::dose::Dose;
use crate::error::Error;

/// The workspace of the fuzz targets, below the main one, with the seeds below it.
const FOLDER: &str = "fuzz";

/// Flags that make LLVM count the edges taken, and trace comparisons.
const COVERAGE: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// The longest that one input may take before it counts as a hang, in seconds.
const HANG: u32 = 30;

/// The most memory of a target, in mebibytes.
const MEMORY: u32 = 1024;

/// The targets to fuzz, and the time for each.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Only this target: a file of fuzz/src
    target: Option<String>,

    /// How long each target runs
    #[arg(long, default_value_t = Dose::Short.fuzz_seconds(), value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

impl Arguments {
    /// All targets, each for the time of this dose.
    pub(crate) fn of(dose: Dose) -> Self {
        let (target, seconds) = (None, dose.fuzz_seconds());
        Self { target, seconds }
    }
}

/// Builds the targets. Runs each from its seeds and from the inputs that earlier runs found.
pub(crate) fn fuzz(arguments: &Arguments) -> Result<Vec<String>, Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let all = targets(&root.join(FOLDER).join("src"))?;
    let wanted = |name: &&String| arguments.target.as_ref().is_none_or(|it| it == *name);
    let chosen: Vec<&String> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let what = format!("no such target; there are {}", all.join(", "));
        return Err(Error::NotRead { what });
    }
    let programs = build(arguments.target.as_deref())?;
    let mut notes = Vec::new();
    for target in chosen {
        notes.push(one(target, &programs, arguments.seconds)?);
    }
    Ok(notes)
}

/// The names of the targets: those of the files in `folder`.
fn targets(folder: &Path) -> Result<Vec<String>, Error> {
    let unreadable = |error| Error::NotRead {
        what: format!("{}: {error}", folder.display()),
    };
    let mut names = Vec::new();
    for file in fs::read_dir(folder).map_err(unreadable)? {
        let path = file.map_err(unreadable)?.path();
        names.extend(path.file_stem().map(|it| it.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Builds all targets or one. Returns the folder of the programs.
fn build(target: Option<&str>) -> Result<PathBuf, Error> {
    let host = host()?;
    let folder = target_folder().join("fuzz");
    let mut command = cargo("build --release --locked --manifest-path");
    command.arg(format!("{FOLDER}/Cargo.toml"));
    // With a target named, the flags do not apply to build scripts and procedural macros.
    command
        .args(["--target", &host, "--target-dir"])
        .arg(&folder);
    if let Some(target) = target {
        command.args(["--bin", target]);
    }
    command.env("RUSTFLAGS", COVERAGE.join(" "));
    crate::command::run(command)?;
    Ok(folder.join(host).join("release"))
}

/// The host platform, as the compiler in use names it.
fn host() -> Result<String, Error> {
    let mut command = cargo("--version --verbose");
    // A question must not install a toolchain.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    let printed = crate::command::output(command)?;
    let printed = String::from_utf8_lossy(&printed);
    let host = printed.lines().find_map(|it| it.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::NotRead {
        what: "cargo does not say what its host is".into(),
    })
}

/// Runs one target. Returns the last line that it prints.
fn one(target: &str, programs: &Path, seconds: u32) -> Result<String, Error> {
    // New inputs go to an untracked folder. The seeds are chosen by hand.
    let found = target_folder().join("fuzz/corpus").join(target);
    let crashes = target_folder().join("fuzz/crashes").join(target);
    for folder in [&found, &crashes] {
        fs::create_dir_all(folder).map_err(|source| Error::NotRun {
            command: format!("mkdir {}", folder.display()),
            source,
        })?;
    }
    let mut command = at_root(&programs.join(target).to_string_lossy());
    command.arg(&found).arg(format!("{FOLDER}/seeds/{target}"));
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-timeout={HANG}"));
    command.arg(format!("-rss_limit_mb={MEMORY}"));
    command.arg(format!("-artifact_prefix={}/", crashes.display()));
    command.arg("-print_final_stats=1");
    let (mut done, mut summary) = (None, Vec::new());
    let (command, status) = run_listening(command, |line| {
        done = inputs(line).or(done);
        if says_what_is_wrong(line) {
            summary.push(line.to_owned());
        }
    })?;
    if status.success() && done.is_none_or(|inputs| inputs == 0) {
        return Err(Error::NothingRan { command });
    }
    succeeded(command, status, summary)?;
    let inputs = done.unwrap_or_default();
    Ok(format!("{target}: {inputs} inputs in {seconds} s"))
}

/// The number in `stat::number_of_executed_units: 1234`.
fn inputs(line: &str) -> Option<u64> {
    let (name, count) = line
        .split_once(':')
        .and_then(|(_, rest)| rest.split_once(": "))?;
    (name == ":number_of_executed_units").then(|| count.trim().parse().ok())?
}

/// True if the line names the fault that a target found, or the file that repeats it.
fn says_what_is_wrong(line: &str) -> bool {
    ["SUMMARY:", "thread '", "assertion", "artifact_prefix="]
        .iter()
        .any(|it| line.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_a_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(FOLDER);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let targets = targets(&folder.join("src")).unwrap();
        assert!(!targets.is_empty());
        for target in targets {
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "{target}"
            );
            let seeds = fs::read_dir(folder.join("seeds").join(&target));
            assert!(seeds.is_ok_and(|mut it| it.next().is_some()), "{target}");
        }
    }

    #[test]
    fn the_counts_of_libfuzzer_are_parsed() {
        assert_eq!(inputs("stat::number_of_executed_units: 1234"), Some(1234));
        assert_eq!(inputs("stat::average_exec_per_sec:     12"), None);
        assert_eq!(inputs("#1234 DONE cov: 12"), None);
    }
}
