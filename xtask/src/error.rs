//! Why a check did not pass.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a check did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The command ran and failed.
    #[error("`{command}` ended with {status}{}", lines(.summary))]
    Failed {
        /// The command as a shell would read it.
        command: String,
        /// The status that the command ended with.
        status: ExitStatus,
        /// The lines of the command's own summary, if it prints one.
        summary: Vec<String>,
    },
    /// The command succeeded although tests failed, as nextest does when a repeated test passes.
    #[error("tests of `{command}` failed{}", lines(.summary))]
    TestsFailed {
        /// The command as a shell would read it.
        command: String,
        /// The lines of the command's own summary.
        summary: Vec<String>,
    },
    /// The command could not be started or listened to.
    #[error("`{command}` could not be run: {source}")]
    NotRun {
        /// The command as a shell would read it.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// Hot paths take more instructions than committed, or are not counted.
    #[error("the counts of instructions differ from those committed in {file}:{}", lines(.differences))]
    Counts {
        /// The file of the committed counts.
        file: &'static str,
        /// A sentence for each difference.
        differences: Vec<String>,
    },
    /// Imports run upward.
    #[error("imports run upward:{}", lines(.problems))]
    Rooms {
        /// A sentence for each import, and a line about each crate.
        problems: Vec<String>,
    },
    /// Sentences, names or subjects of commits are above their budgets.
    #[error("words are not plain enough:{}", lines(.problems))]
    Prose {
        /// A sentence for each budget, the table, and the first places.
        problems: Vec<String>,
    },
    /// The input of the check could not be read or parsed.
    #[error("{what}")]
    NotRead {
        /// The input and the cause.
        what: String,
    },
    /// A fault injected on purpose did not end as expected.
    #[error("faults did not end as expected:{}", lines(.problems))]
    Faults {
        /// The table, and a sentence for each problem.
        problems: Vec<String>,
    },
    /// The torture found a fault.
    #[error("the torture found faults:{}", lines(.problems))]
    Soak {
        /// The table, and the faults, with the commands that repeat them.
        problems: Vec<String>,
    },
    /// Jobs on Slurm did not end as expected.
    #[error("jobs on Slurm did not end as expected:{}", lines(.problems))]
    Slurm {
        /// The table, and the output of the cases that failed.
        problems: Vec<String>,
    },
    /// The machine does not allow the check, which may then be left out.
    #[error("left out: {0}")]
    LeftOut(String),
    /// The command succeeded, but had nothing to do.
    #[error("`{command}` found no test to run")]
    NothingRan {
        /// The command as a shell would read it.
        command: String,
    },
    /// The machine lacks tools that this check needs.
    #[error("missing: {tools}")]
    Missing {
        /// The missing tools, each with its source.
        tools: String,
    },
    /// The virtual machine could not run, with the cause.
    #[error("{0}")]
    Vm(Box<dyn std::error::Error>),
    /// A file could not be installed.
    #[error("could not {doing} {}: {source}", path.display())]
    Install {
        /// The action that failed.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A tool could not be installed, with the cause.
    #[error("{0}")]
    NotInstalled(String),
}

impl Error {
    /// True if the check could not run, rather than ran and failed.
    pub(crate) fn could_not_run(&self) -> bool {
        match self {
            Error::Failed { .. }
            | Error::TestsFailed { .. }
            | Error::Counts { .. }
            | Error::Rooms { .. }
            | Error::Prose { .. }
            | Error::Faults { .. }
            | Error::Soak { .. }
            | Error::Slurm { .. } => false,
            Error::LeftOut(_)
            | Error::NotRun { .. }
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
