//! How a process joins its job.

use std::path::PathBuf;
use std::time::Duration;

use crate::Kind;

/// How [`join_with`](crate::join_with) shall join.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Which service to use.
    pub kind: Kind,
    /// The communicator of the program's MPI whose processes are the job's ranks, in its order, as its handle in C.
    /// None for all processes of MPI, or for another service.
    pub mpi_communicator: Option<usize>,
    /// The libpmix to open, instead of `libpmix.so.2` and `libpmix.so`.
    pub libpmix: Option<PathBuf>,
    /// How long the launcher may take to answer anything but a fence.
    pub answer_within: Duration,
    /// How long a fence may take, which waits for the slowest rank to start.
    pub fence_within: Duration,
}

impl Default for JoinOptions {
    fn default() -> JoinOptions {
        JoinOptions {
            kind: Kind::Auto,
            mpi_communicator: None,
            libpmix: None,
            answer_within: Duration::from_secs(60),
            fence_within: Duration::from_secs(600),
        }
    }
}
