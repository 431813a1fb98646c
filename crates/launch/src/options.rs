//! Options for joining a job.

use std::path::PathBuf;
use std::time::Duration;

use crate::BootstrapKind;

/// Options of [`join_with`](crate::join_with).
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The service to use.
    pub kind: BootstrapKind,
    /// The C handle of an MPI communicator. Its processes are the job's ranks, in its order. `None`
    /// means all processes of MPI, or another service.
    pub mpi_communicator: Option<usize>,
    /// The libpmix to open, instead of `libpmix.so.2` and `libpmix.so`.
    pub libpmix: Option<PathBuf>,
    /// The time limit for the launcher's answer to a request other than a fence.
    pub answer_within: Duration,
    /// The time limit for a fence, which waits for the slowest rank to start.
    pub fence_within: Duration,
}

impl Default for JoinOptions {
    fn default() -> JoinOptions {
        JoinOptions {
            kind: BootstrapKind::Auto,
            mpi_communicator: None,
            libpmix: None,
            answer_within: Duration::from_secs(60),
            fence_within: Duration::from_secs(600),
        }
    }
}
