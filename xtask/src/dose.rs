//! The dose of a check: short with every change, long before a release.

use std::time::Duration;

use clap::ValueEnum;

/// `cargo xtask test` takes the short dose of every check, `cargo xtask full` the long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dose {
    /// Enough to see that nothing is broken
    #[default]
    Short,
    /// Long enough to meet what happens rarely
    Long,
}

impl Dose {
    /// The time that `soak` runs on the conduits that need no virtual machine.
    pub(crate) fn soak(self) -> Duration {
        Duration::from_secs(match self {
            Dose::Short => 24,
            Dose::Long => 1200,
        })
    }

    /// The time that `soak` runs on RDMA, in the virtual machine of `verbs`.
    pub(crate) fn soak_on_verbs(self) -> Duration {
        Duration::from_secs(match self {
            Dose::Short => 15,
            Dose::Long => 300,
        })
    }

    /// The number of times that `kill-loop` kills a rank.
    pub(crate) fn kills(self) -> u32 {
        match self {
            Dose::Short => 25,
            Dose::Long => 300,
        }
    }

    /// The number of seconds that each target of `fuzz` runs.
    pub(crate) fn fuzz_seconds(self) -> u32 {
        match self {
            Dose::Short => 2,
            Dose::Long => 60,
        }
    }
}
