//! The launcher's library as a process of its own, for it takes its process over.

use std::process::{Command, ExitCode};

use hydrant_launch::launcher::{self, Prefix, Spec};

use crate::support;

/// The command that starts `ranks` ranks in a role: this binary in the role `launch`.
pub(crate) fn command(ranks: u32, arguments: &[&str]) -> Command {
    let ranks = ranks.to_string();
    let mut words = support::role(&[&["launch", ranks.as_str()], arguments].concat()).into_iter();
    let mut command = Command::new(words.next().expect("the program"));
    command.args(words);
    command
}

/// The role: `launch N ROLE ARGUMENTS`.
pub(crate) fn launch(arguments: &[String]) -> ExitCode {
    let [ranks, arguments @ ..] = arguments else {
        panic!("usage: --role launch N ROLE ARGUMENTS");
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut words = support::role(&arguments).into_iter();
    let ranks = ranks.parse().expect("a number of ranks");
    let mut spec = Spec::new(ranks, words.next().expect("the program"));
    spec.arguments = words.map(Into::into).collect();
    spec.prefix = Prefix::None;
    // In one piece: the ranks write to the same place meanwhile.
    let mut report = |event| {
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("launcher: {event}\n").as_bytes(),
        );
    };
    match launcher::run(&spec, &mut report) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("launcher: {error}");
            ExitCode::from(error.status())
        }
    }
}
