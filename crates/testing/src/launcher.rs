//! Runs the launcher's library in a process of its own, because the library takes over its process.

use std::io::Write;
use std::process::{Command, ExitCode};

use hydrant_launch::launcher::{self, Prefix, Spec};

use crate::role::role;

/// The role of the launcher: `launch N ROLE ARGUMENTS`.
pub(crate) const ROLE: &str = "launch";

/// The command that starts `ranks` ranks in a role: this binary in the role of the launcher.
///
/// # Panics
/// If the path of the binary is not UTF-8.
pub fn command(ranks: u32, arguments: &[&str]) -> Command {
    let ranks = ranks.to_string();
    let mut words = role(&[&[ROLE, ranks.as_str()], arguments].concat()).into_iter();
    let mut command = Command::new(words.next().expect("the program"));
    command.args(words);
    command
}

pub(crate) fn launch(arguments: &[String]) -> ExitCode {
    let [ranks, arguments @ ..] = arguments else {
        panic!("usage: --role {ROLE} N ROLE ARGUMENTS");
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut words = role(&arguments).into_iter();
    let ranks = ranks.parse().expect("a number of ranks");
    let mut spec = Spec::new(ranks, words.next().expect("the program"));
    spec.arguments = words.map(Into::into).collect();
    spec.prefix = Prefix::None;
    // Survivors end by themselves, even on a busy machine; the test finds hangs.
    spec.grace = crate::HANG / 2;
    // One write, because the ranks write to the same pipe meanwhile.
    let mut report = |event| {
        let line = format!("launcher: {event}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    };
    match launcher::run(&spec, &mut report) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("launcher: {error}");
            ExitCode::from(error.status())
        }
    }
}
