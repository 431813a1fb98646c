//! Tests that start themselves again: `BINARY --role NAME ARGUMENTS` is a rank, or what else
//! the test needs a process for.

use std::{env, process::ExitCode};

use libtest_mimic::{Arguments, Trial};

/// Plays the role that the command line names, or runs the tests.
pub(crate) fn main(roles: fn(&str, &[String]) -> ExitCode, tests: Vec<Trial>) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [flag, role, rest @ ..] if flag == "--role" => roles(role, rest),
        _ => libtest_mimic::run(&Arguments::from_args(), tests).exit_code(),
    }
}

/// A test that passes unless it panics.
pub(crate) fn test(name: String, body: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        body();
        Ok(())
    })
}

/// What starts this binary in a role.
pub(crate) fn role(arguments: &[&str]) -> Vec<String> {
    let binary = env::current_exe().expect("the test binary has a path");
    let binary = binary.into_os_string().into_string();
    let mut command = vec![binary.expect("the path is UTF-8"), "--role".to_owned()];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    command
}
