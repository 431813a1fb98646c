//! Why a check did not pass.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a check did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The command ran and was not content.
    #[error("`{command}` ended with {status}{}", lines(.summary))]
    Failed {
        /// The command as one would type it.
        command: String,
        /// What it ended with.
        status: ExitStatus,
        /// The lines of its own summary, where it has one.
        summary: Vec<String>,
    },
    /// The command was content although tests failed, as nextest is that repeats one.
    #[error("tests of `{command}` failed{}", lines(.summary))]
    TestsFailed {
        /// The command as one would type it.
        command: String,
        /// The lines of its own summary.
        summary: Vec<String>,
    },
    /// The command could not be started or listened to.
    #[error("`{command}` could not be run: {source}")]
    NotRun {
        /// The command as one would type it.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// Hot paths take more instructions than committed, or are not counted.
    #[error("instructions are not as committed in {file}:{}", lines(.differences))]
    Counts {
        /// Where the committed counts are.
        file: &'static str,
        /// A sentence for each.
        differences: Vec<String>,
    },
    /// Imports run upward.
    #[error("imports run upward:{}", lines(.problems))]
    Rooms {
        /// A sentence for each, and a line about each crate.
        problems: Vec<String>,
    },
    /// Sentences, names or subjects of commits are above their budgets.
    #[error("words are not plain enough:{}", lines(.problems))]
    Prose {
        /// A sentence for each budget, the table, and the first places.
        problems: Vec<String>,
    },
    /// What the check looks at could not be read or understood.
    #[error("{what}")]
    NotRead {
        /// Which, and why.
        what: String,
    },
    /// What was broken on purpose did not end as it should.
    #[error("faults did not end as they should:{}", lines(.problems))]
    Faults {
        /// The table, and a sentence for each.
        problems: Vec<String>,
    },
    /// The torture found something wrong.
    #[error("not all was right:{}", lines(.problems))]
    Soak {
        /// The table, and what was wrong, with the commands that repeat it.
        problems: Vec<String>,
    },
    /// The command was content, but had nothing to do.
    #[error("`{command}` found no test to run")]
    NothingRan {
        /// The command as one would type it.
        command: String,
    },
    /// The machine lacks tools this check needs.
    #[error("missing: {tools}")]
    Missing {
        /// What is missing, each with what would bring it.
        tools: String,
    },
    /// There is no virtual machine, and why.
    #[error("{0}")]
    Vm(Box<dyn std::error::Error>),
    /// A file could not be put where it is to be installed.
    #[error("could not {doing} {}: {source}", path.display())]
    Install {
        /// What was to be done.
        doing: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something could not be installed, and why.
    #[error("{0}")]
    NotInstalled(String),
}

impl Error {
    /// Whether the check was refused its means, rather than run and found wanting.
    pub(crate) fn could_not_run(&self) -> bool {
        match self {
            Error::Failed { .. }
            | Error::TestsFailed { .. }
            | Error::Counts { .. }
            | Error::Rooms { .. }
            | Error::Prose { .. }
            | Error::Faults { .. }
            | Error::Soak { .. } => false,
            Error::NotRun { .. }
            | Error::NothingRan { .. }
            | Error::Missing { .. }
            | Error::NotRead { .. }
            | Error::Install { .. }
            | Error::Vm(_)
            | Error::NotInstalled(_) => true,
        }
    }
}

fn lines(summary: &[String]) -> String {
    summary.iter().map(|line| format!("\n{line}")).collect()
}
