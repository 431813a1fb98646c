//! The programs that checks start outside of nextest: those for users, and tests.
//!
//! Cargo rebuilds dependencies for each set of features, and a package alone wants other features
//! than the tests of all packages together. So these programs are built with the features of
//! `unit`, and after `unit` nothing is left to build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, output, run, target_folder, typed};
use crate::error::Error;
use crate::packages;

/// Tests of the packages that have programs for users: cargo builds those programs with the tests.
const BESIDE_THE_SHIPPED: [&str; 2] = ["run", "hammer"];

/// A test program, and the folder that it expects to run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// The folder of its package.
    pub(crate) folder: PathBuf,
    /// The program.
    pub(crate) file: PathBuf,
}

/// Builds the `hydrant` command and the apps.
pub(crate) fn build_shipped() -> Result<(), Error> {
    run(build(&BESIDE_THE_SHIPPED))
}

/// The path of a program that [`build_shipped`] has built.
pub(crate) fn shipped(name: &str) -> PathBuf {
    target_folder().join("debug").join(name)
}

/// Builds tests, each named by package and file in its `tests` folder. Returns their programs in
/// that order.
pub(crate) fn build_tests(tests: &[(&str, &str)]) -> Result<Vec<TestProgram>, Error> {
    let targets: Vec<&str> = tests.iter().map(|(_, target)| *target).collect();
    let mut command = build(&targets);
    command.arg("--message-format=json-render-diagnostics");
    let name = typed(&command);
    let packages = packages::all()?;
    let said = output(command)?;
    let said = String::from_utf8_lossy(&said);
    let built: Vec<_> = said.lines().filter_map(test_program).collect();
    let find = |(package, target): &(&str, &str)| {
        let package = packages.iter().find(|it| it.name == *package)?;
        let found = built
            .iter()
            .find(|(name, program)| name == target && program.folder.ends_with(&package.folder));
        found.map(|(_, program)| program.clone())
    };
    let found = tests.iter().map(|test| {
        find(test).ok_or_else(|| Error::NothingRan {
            command: name.clone(),
        })
    });
    found.collect()
}

/// Builds the tests of these names in every package that has one.
fn build(targets: &[&str]) -> Command {
    let mut command = cargo("test --no-run --workspace");
    for target in BTreeSet::from_iter(targets) {
        command.args(["--test", target]);
    }
    command
}

/// The target and its program, from the line in which cargo reports a built test.
fn test_program(line: &str) -> Option<(String, TestProgram)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let program = TestProgram {
        folder: manifest.parent()?.to_owned(),
        file: message["executable"].as_str()?.into(),
    };
    Some((message["target"]["name"].as_str()?.to_owned(), program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_told_from_all_else_that_cargo_builds() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml",
            "target":{"name":"b"},"profile":{"test":true},"executable":"/t/b-1"}"#;
        let program = TestProgram {
            folder: "/w/a".into(),
            file: "/t/b-1".into(),
        };
        assert_eq!(test_program(line), Some(("b".to_owned(), program)));
        assert_eq!(test_program(&line.replace("true", "false")), None);
        assert_eq!(test_program(&line.replace("\"/t/b-1\"", "null")), None);
        assert_eq!(test_program("not of cargo"), None);
    }

    #[test]
    fn each_target_is_named_once_and_features_are_those_of_all_packages() {
        let command = typed(&build(&["b", "a", "b"]));
        let expected = "cargo test --no-run --workspace --test a --test b";
        assert_eq!(command, expected);
    }
}
