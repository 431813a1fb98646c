//! The setup of a new process between fork and exec.
#![allow(unsafe_code, reason = "a rank is set up between fork and exec")]

use std::env;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

use rustix::io::FdFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

use super::group::JobGroup;
use super::guard::Care;
use super::image::ProgramImage;
use super::signals::Before;

/// The ties between a process and the launcher.
#[derive(Clone)]
pub(super) struct Tie {
    /// The signal dispositions that the launcher had before the job.
    pub(super) before: Before,
    /// The guard that ends the process and its process group if the launcher is killed.
    pub(super) care: Arc<Care>,
    /// The signal that the kernel sends to the process if the launcher is killed.
    pub(super) farewell: Signal,
}

/// The setup of a rank's process, applied before its program begins.
pub(super) struct RankSetup {
    pub(super) tie: Tie,
    /// The rank's end of the PMI-1 socket.
    pub(super) pmi: OwnedFd,
    /// The processors on which the rank may run, unless it may use all.
    pub(super) cpus: Option<CpuSet>,
    /// The rank's limit on open files: the launcher's limit before the job.
    pub(super) files: Rlimit,
    /// The job's control group, if there is one.
    pub(super) group: Option<Arc<JobGroup>>,
}

/// Prefixes of variables that other launchers set.
const FOREIGN: [&str; 4] = ["PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL"];

/// Removes the variables of other launchers from the environment of a rank.
pub(super) fn forget_other_launchers(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if FOREIGN
            .iter()
            .any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
        {
            command.env_remove(name);
        }
    }
}

/// Starts `command` as a rank. The kernel runs it, not a shell.
///
/// The kernel kills the rank when the calling thread ends. The thread that supervises the job must
/// therefore make the call.
pub(super) fn spawn(mut command: Command, setup: RankSetup) -> io::Result<Child> {
    let RankSetup {
        tie,
        pmi,
        cpus,
        files,
        group,
    } = setup;
    command.env("PMI_FD", pmi.as_raw_fd().to_string());
    let mut run = ProgramImage::of(&command)?.ready();
    tie_to(&mut command, tie);
    let before_exec = move || {
        if let Some(group) = &group {
            group.enter();
        }
        if let Some(cpus) = &cpus {
            // A core that was taken away meanwhile does not stop the rank.
            let _ = rustix::thread::sched_setaffinity(None::<Pid>, cpus);
        }
        rustix::process::setrlimit(Resource::Nofile, files)?;
        rustix::io::fcntl_setfd(&pmi, FdFlags::empty())?;
        Err(run())
    };
    // SAFETY: between fork and exec the closure makes system calls on values it owns. It neither
    // allocates, locks nor panics.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

/// Makes the process of `command` lead a process group and end with the launcher. It begins with
/// the signal dispositions that the launcher began with.
pub(super) fn tie_to(command: &mut Command, tie: Tie) {
    let launcher = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::setpgid(None, None)?;
        rustix::process::set_parent_process_death_signal(Some(tie.farewell))?;
        // A launcher that died before the line above sends no signal.
        if rustix::process::getppid() != Some(launcher) {
            rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
        }
        // From here on the guard knows the process, even if the launcher dies.
        tie.care.enter();
        tie.before.restore()
    };
    // SAFETY: between fork and exec the closure makes system calls on values it owns. It neither
    // allocates, locks nor panics.
    unsafe { command.pre_exec(before_exec) };
}
