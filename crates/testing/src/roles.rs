//! Tests that start themselves again: `BINARY --role NAME ARGUMENTS` is a rank, or another process
//! that the test needs.

use std::{env, process::ExitCode};

use libtest_mimic::{Arguments, Trial};

pub use crate::role::role;

/// Plays the role on the command line, or runs the tests. `roles` handles the test's own roles, by
/// name and arguments; this crate adds the launcher.
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
