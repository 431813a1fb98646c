//! The process of one rank.

use rustix::process::Pid;

use super::connection::RankConnection;
use super::leader::Leader;
use super::processes::Process;

/// A rank's process.
#[derive(Debug)]
pub(super) struct RankProcess {
    pub(super) pid: Pid,
    pub(super) running: bool,
    /// The rank's socket, until either side closes it.
    pub(super) connection: Option<RankConnection>,
    /// The rank's process group. It may have other members after the leader has ended.
    pub(super) leader: Option<Leader>,
}

impl RankProcess {
    /// Returns true if `process` is the rank's process, not reaped yet.
    pub(super) fn is(&self, process: Process) -> bool {
        self.running && process.pid() == self.pid
    }

    /// Sends a signal, or 0, to the rank's process group. Returns true if the group has a process.
    pub(super) fn signal_group(&self, signal: i32) -> bool {
        (self.leader.as_ref()).is_some_and(|leader| leader.signal_group(signal))
    }
}
