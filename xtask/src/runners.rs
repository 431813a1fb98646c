//! The checks that run tests: unit, documentation, real launchers, the kill loop.

use std::process::Command;

use clap::Args;

use crate::command::{cargo, run_listening, succeeded};
use crate::error::Error;

/// The tests that start ranks under foreign launchers, as a nextest filter. Their names mark them.
/// `unit` runs all others, so that each test belongs to exactly one check.
const LAUNCHER_TESTS: &str = "test(/mpiexec|hydra_|mpich|mpirun|openmpi|pmix|launcher/)";

/// The test that kills a rank in mid-flight once; ignored in an ordinary run.
const KILL_TEST: &str = "package(hydrant-cli) and test(kill_loop)";

/// Open MPI refuses root, more ranks than cores, and machines without ssh, unless its settings
/// allow them. MPICH's hydra needs no such settings.
const LAUNCHER_SETTINGS: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_plm_rsh_agent", "sh"),
];

/// The exit code of nextest if its filter matched no test.
const NEXTEST_NO_TESTS: i32 = 4;

/// The tests that `unit` runs: by default all of them.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Only those of this package; may be given again
    #[arg(short, long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,

    /// Only those with this in their name, or an expression of nextest: 'kind(lib)'
    filter: Option<String>,
}

impl Unit {
    fn command(&self) -> Command {
        let mut command = cargo("nextest run");
        for package in &self.packages {
            command.args(["-p", package]);
        }
        if self.packages.is_empty() {
            command.arg("--workspace");
        }
        let others = format!("not ({LAUNCHER_TESTS})");
        let expression = match &self.filter {
            None => others,
            Some(expression) if expression.contains('(') => format!("{others} and ({expression})"),
            Some(name) => format!("{others} and test({name})"),
        };
        command.args(["-E", &expression]);
        command
    }
}

/// Every test except those of the launchers, or those that the arguments select.
pub(crate) fn unit(unit: &Unit) -> Result<Vec<String>, Error> {
    nextest(unit.command())
}

/// The tests of these packages that start no process: the tests beside the code.
pub(crate) fn quick(packages: &[String], library: bool) -> Result<Vec<String>, Error> {
    let unit = Unit {
        packages: packages.to_vec(),
        filter: None,
    };
    let mut command = unit.command();
    // A crate may have no such tests, and cargo refuses `--lib` where there is no library.
    command.args(["--bins", "--no-tests=pass"]);
    if library {
        command.arg("--lib");
    }
    nextest(command)
}

/// The examples in the documentation.
pub(crate) fn doc_tests() -> Result<Vec<String>, Error> {
    libtest(cargo("test --doc --workspace"))
}

/// The tests of the launchers. No test may skip itself, so the launchers must be found.
pub(crate) fn launchers() -> Result<Vec<String>, Error> {
    let mut command = cargo("nextest run --workspace");
    command.args(["-E", LAUNCHER_TESTS]);
    command.env("HYDRANT_TEST_REQUIRE", "1");
    command.envs(LAUNCHER_SETTINGS);
    nextest(command)
}

/// Runs the kill test `times` times, with the programs that `unit` built.
pub(crate) fn kill_loop(times: u32) -> Result<Vec<String>, Error> {
    let mut command = cargo("nextest run --workspace --run-ignored only");
    command.args(["-E", KILL_TEST, "--stress-count", &times.to_string()]);
    nextest(command)
}

/// Runs nextest. Returns its summary, with the tests that it names below the summary.
fn nextest(command: Command) -> Result<Vec<String>, Error> {
    let mut summary = Vec::new();
    let (command, status) = run_listening(command, |line| {
        let line = line.trim();
        if line.starts_with("Summary [") || !summary.is_empty() && names_a_failure(line) {
            summary.push(line.to_owned());
        }
    })?;
    if status.code() == Some(NEXTEST_NO_TESTS) {
        return Err(Error::NothingRan { command });
    }
    if status.success() && summary.iter().any(|line| names_a_failure(line)) {
        return Err(Error::TestsFailed { command, summary });
    }
    succeeded(command, status, summary)
}

/// True if this line of nextest reports the end of a failed test: `FAIL [   0.012s] …`, `SIGKILL [
/// …`, `TIMEOUT [ …`.
fn names_a_failure(line: &str) -> bool {
    let is_verdict = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || c == '-');
    line.split_once(" [")
        .is_some_and(|(word, _)| !word.is_empty() && is_verdict(word))
}

/// Runs the standard test harness. Returns the results of each crate that has tests.
pub(crate) fn libtest(command: Command) -> Result<Vec<String>, Error> {
    let mut results = Vec::new();
    let (command, status) = run_listening(command, |line| {
        if ran_something(line) {
            results.push(line.to_owned());
        }
    })?;
    if status.success() && results.is_empty() {
        return Err(Error::NothingRan { command });
    }
    succeeded(command, status, results)
}

/// True if this line of the harness counts tests that ran.
pub(crate) fn ran_something(line: &str) -> bool {
    line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{at_root, typed};

    fn shell_that_prints(text: &str, status: i32) -> Command {
        let mut command = at_root("sh");
        command.args(["-c", &format!("printf '{text}'; exit {status}")]);
        command
    }

    fn expression(packages: &[&str], filter: Option<&str>) -> String {
        let unit = Unit {
            packages: packages.iter().map(|it| (*it).to_owned()).collect(),
            filter: filter.map(str::to_owned),
        };
        typed(&unit.command()).replace(LAUNCHER_TESTS, "…")
    }

    #[test]
    fn unit_takes_packages_and_a_name_or_an_expression() {
        let all = "cargo nextest run --workspace -E 'not (…)'";
        assert_eq!(expression(&[], None), all);
        let some = "cargo nextest run -p a -p b -E 'not (…) and test(x)'";
        assert_eq!(expression(&["a", "b"], Some("x")), some);
        let some = "cargo nextest run -p a -E 'not (…) and (kind(lib))'";
        assert_eq!(expression(&["a"], Some("kind(lib)")), some);
    }

    #[test]
    fn the_summary_of_nextest_is_kept() {
        let text = "    PASS [0.1s] a b\\n     Summary [0.1s] 1 test run: 1 passed\\n";
        let summary = nextest(shell_that_prints(text, 0)).unwrap();
        assert_eq!(summary, ["Summary [0.1s] 1 test run: 1 passed"]);
    }

    #[test]
    fn the_tests_that_failed_are_kept_with_the_summary() {
        let text =
            "FAIL [0.1s] early\\nSummary [0.1s] 2 tests run\\n  FAIL [0.1s] a b\\n  noise\\n";
        let error = nextest(shell_that_prints(text, 100)).unwrap_err();
        assert!(!error.could_not_run());
        let told = error.to_string();
        assert!(told.ends_with("\nSummary [0.1s] 2 tests run\nFAIL [0.1s] a b"));
    }

    #[test]
    fn nextest_without_tests_did_not_check_anything() {
        let error = nextest(shell_that_prints("", NEXTEST_NO_TESTS)).unwrap_err();
        assert!(matches!(error, Error::NothingRan { .. }));
    }

    #[test]
    fn a_harness_that_ran_no_test_did_not_check_anything() {
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored\\n";
        let error = libtest(shell_that_prints(none, 0)).unwrap_err();
        assert!(matches!(error, Error::NothingRan { .. }));

        let some = "test result: ok. 10 passed; 0 failed; 0 ignored\\n";
        assert_eq!(libtest(shell_that_prints(some, 0)).unwrap().len(), 1);
    }
}
