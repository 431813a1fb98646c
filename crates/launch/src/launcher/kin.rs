//! Which processes belong to the job, among those that descend from this one.
//!
//! A launcher that a script became by `exec` has the script's children, and as a subreaper it gets
//! their orphans. The first process of a PID namespace gets the orphans of all others there. None
//! of these are the job's to end.

use std::collections::HashSet;

use rustix::process::{Pid, getpid};

use super::guard::MARK;
use super::processes::{self, Process};
use crate::proc_is_own;

/// How processes of a job are told from what else descends from this process.
#[derive(Debug)]
pub(super) struct Kin {
    /// The job's mark in the environment, as `NAME=value`.
    mark: String,
    /// The children that were there before the job.
    earlier: HashSet<Process>,
}

impl Kin {
    /// Those of `job`, of which nothing has begun yet.
    pub(super) fn of(job: &str) -> Kin {
        let mark = format!("{MARK}={job}");
        let earlier = processes::children(getpid());
        Kin { mark, earlier }
    }

    /// Every process of the job that lives, except the guard.
    ///
    /// Where others may have left orphans to this process, a child of it is the job's by the mark
    /// in its environment, or as one of `known`. So one that neither shows is left alone.
    pub(super) fn living(&self, guard: Pid, known: impl Fn(Process) -> bool) -> Vec<Process> {
        let alone = !self.has_others();
        processes::descendants(getpid(), |child| {
            child.pid() != guard
                && !self.earlier.contains(&child)
                && (alone || known(child) || child.has_variable(&self.mark))
        })
    }

    /// Whether there may be processes of the job that are not among the [living](Self::living).
    pub(super) fn may_be_hidden(&self) -> bool {
        self.has_others() || !proc_is_own()
    }

    /// Whether processes of others may leave orphans to this one.
    fn has_others(&self) -> bool {
        !self.earlier.is_empty() || getpid() == Pid::INIT
    }
}
