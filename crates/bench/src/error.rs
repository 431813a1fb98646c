//! Errors of the ranks of a measurement.

use std::io;

/// A failure of a measuring rank that is not a failure of Hydrant.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The memory for the bare references could not be created or opened.
    #[error("cannot share memory for the bare references: {0}")]
    Window(#[source] io::Error),
    /// The ranks of named hosts share memory.
    #[error(
        "the named hosts are one host, whose ranks share memory: leave out --hosts to measure that, or name the hosts \
         of several containers (--name-hosts)"
    )]
    OneHost,
    /// The pipe to `hydrant bench` is closed.
    #[error("cannot report to `hydrant bench`: {0}")]
    Report(#[source] io::Error),
    /// The bare network could not be opened, or failed.
    #[error("the bare network beside the job's own: {0}")]
    Network(#[source] io::Error),
    /// The system or a limit refused a part of the memory to register.
    #[error(
        "{registered} of {wanted} were registered: RLIMIT_MEMLOCK (ulimit -l), memory or the table of keys ends there, or \
         HYDRANT_REGISTER_TIMEOUT"
    )]
    Unregistered {
        /// The bytes registered.
        registered: String,
        /// The bytes to register.
        wanted: String,
    },
    /// The memory in use could not be read.
    #[error("cannot read the memory in use from /proc/self/smaps_rollup: {0}")]
    Memory(#[source] io::Error),
}

impl From<BenchError> for hydrant::Error {
    fn from(error: BenchError) -> Self {
        hydrant::Error::other(error)
    }
}
