//! `hydrant probe`: the programs that `hydrant info --hosts` runs on other hosts. People do not call it.

mod here;
mod pairs;
mod ways;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use hydrant_report::status::status;

pub(crate) use here::{FabricEndpoint, HostFacts};
pub(crate) use pairs::PairsReport;

/// The arguments of `hydrant probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// The question.
    #[arg(value_enum)]
    what: Question,
}

/// A question about hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Question {
    /// The resources of this host. The process takes no part in the job.
    Here,
    /// The connection between each pair of ranks.
    Pairs,
}

impl Question {
    /// Returns the arguments of the command that answers.
    pub(crate) fn words(self) -> [&'static str; 2] {
        let what = match self {
            Question::Here => "here",
            Question::Pairs => "pairs",
        };
        ["probe", what]
    }
}

/// Prints the answer as one line of JSON.
pub(crate) fn run(args: &ProbeArgs) -> ExitCode {
    match args.what {
        Question::Here => status(print(&HostFacts::gather())),
        Question::Pairs => status(pairs::run()),
    }
}

fn print(answer: &impl serde::Serialize) -> io::Result<()> {
    let line = serde_json::to_string(answer)? + "\n";
    io::stdout().lock().write_all(line.as_bytes())
}
