//! Finds the processes of the job among the descendants of this process.
//!
//! A script that becomes the launcher by `exec` passes on its children. As a subreaper the launcher
//! also adopts their orphans. The first process of a PID namespace adopts all other orphans there.
//! The job ends none of these.

use std::collections::HashSet;

use rustix::process::{Pid, getpid};

use super::guard::MARK;
use super::processes::{self, Process};
use crate::proc_is_own;

/// The marks by which processes of the job differ from other descendants of this process.
#[derive(Debug)]
pub(super) struct Kin {
    /// The job's mark in the environment, as `NAME=value`.
    mark: String,
    /// The children that existed before the job.
    earlier: HashSet<Process>,
}

impl Kin {
    /// Makes the marks of `job`, none of whose processes has begun yet.
    pub(super) fn of(job: &str) -> Kin {
        let mark = format!("{MARK}={job}");
        let earlier = processes::children(getpid());
        Kin { mark, earlier }
    }

    /// Returns every living process of the job, except the guard.
    ///
    /// Other processes may leave orphans to this process. In that case a child belongs to the job
    /// only if `known` accepts it or its environment has the mark. Any other child is left alone.
    pub(super) fn living(&self, guard: Pid, known: impl Fn(Process) -> bool) -> Vec<Process> {
        let alone = !self.has_others();
        processes::descendants(getpid(), |child| {
            child.pid() != guard
                && !self.earlier.contains(&child)
                && (alone || known(child) || child.has_variable(&self.mark))
        })
    }

    /// Returns true if the job may have processes that are not among the [living](Self::living).
    pub(super) fn may_be_hidden(&self) -> bool {
        self.has_others() || !proc_is_own()
    }

    /// Returns true if processes outside the job may leave orphans to this process.
    fn has_others(&self) -> bool {
        !self.earlier.is_empty() || getpid() == Pid::INIT
    }
}
