//! Tests that start themselves again: `BINARY --role NAME ARGUMENTS` is a rank, or what else
//! the test needs a process for.

use std::{env, process::ExitCode};

use libtest_mimic::{Arguments, Trial};

/// Plays the role that the command line names, or runs the tests. `roles` knows those of the test,
/// by name and arguments; the kit has those of its own.
pub fn main(
    roles: impl FnOnce(&str, &[String]) -> Option<ExitCode>,
    tests: Vec<Trial>,
) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [flag, role, rest @ ..] if flag == "--role" => play(roles, role, rest),
        _ => libtest_mimic::run(&Arguments::from_args(), tests).exit_code(),
    }
}

fn play(
    roles: impl FnOnce(&str, &[String]) -> Option<ExitCode>,
    role: &str,
    arguments: &[String],
) -> ExitCode {
    if role == crate::launcher::ROLE {
        return crate::launcher::launch(arguments);
    }
    roles(role, arguments).unwrap_or_else(|| {
        eprintln!("no role {role}");
        ExitCode::FAILURE
    })
}

/// A test that passes unless it panics.
pub fn test(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        body();
        Ok(())
    })
}

/// What starts this binary in a role: the program and its arguments.
///
/// # Panics
/// If the path of the binary is no text.
pub fn role(arguments: &[&str]) -> Vec<String> {
    let binary = env::current_exe().expect("the test binary has a path");
    let binary = binary.into_os_string().into_string();
    let mut command = vec![binary.expect("the path is UTF-8"), "--role".to_owned()];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    command
}
