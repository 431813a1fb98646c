//! What holds for a process that is started, from before its program begins.
#![allow(unsafe_code, reason = "what a rank needs is set between fork and exec")]

use std::env;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

use rustix::io::FdFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

use super::group::Group;
use super::guard::Care;
use super::image::Image;
use super::signals::Before;

/// How a process is tied to the launcher.
#[derive(Clone)]
pub(super) struct Tie {
    /// What it does with signals: what the launcher did before the job.
    pub(super) before: Before,
    /// Who ends it, and its process group, where the launcher is killed.
    pub(super) care: Arc<Care>,
    /// What the kernel sends it where the launcher is killed.
    pub(super) farewell: Signal,
}

/// What holds for a rank's process from before its program begins.
pub(super) struct Setup {
    pub(super) tie: Tie,
    /// Its end of the PMI-1 socket.
    pub(super) pmi: OwnedFd,
    /// Where it may run, if not everywhere.
    pub(super) cpus: Option<CpuSet>,
    /// Its limit on open files: what the launcher had before the job.
    pub(super) files: Rlimit,
    /// The control group of the job, if there is one.
    pub(super) group: Option<Arc<Group>>,
}

/// Variables that other launchers leave, by the beginnings of their names.
const FOREIGN: [&str; 4] = ["PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL"];

/// Removes what another launcher told us from what a rank will see.
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

/// Starts `command` as a rank, by the kernel and not by a shell.
///
/// The kernel kills the rank when the calling thread ends, so this is called
/// from the thread that supervises the job.
pub(super) fn spawn(mut command: Command, setup: Setup) -> io::Result<Child> {
    let Setup {
        tie,
        pmi,
        cpus,
        files,
        group,
    } = setup;
    command.env("PMI_FD", pmi.as_raw_fd().to_string());
    let mut run = Image::of(&command)?.ready();
    tie_to(&mut command, tie);
    let before_exec = move || {
        if let Some(group) = &group {
            group.enter();
        }
        if let Some(cpus) = &cpus {
            // A core taken from us meanwhile is no reason not to run.
            let _ = rustix::thread::sched_setaffinity(None::<Pid>, cpus);
        }
        rustix::process::setrlimit(Resource::Nofile, files)?;
        rustix::io::fcntl_setfd(&pmi, FdFlags::empty())?;
        Err(run())
    };
    // SAFETY: between fork and exec it makes system calls on values it owns,
    // and neither allocates, locks nor panics.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

/// Has what `command` starts lead a process group, end with the launcher, and begin with the
/// signals that the launcher began with.
pub(super) fn tie_to(command: &mut Command, tie: Tie) {
    let launcher = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::setpgid(None, None)?;
        rustix::process::set_parent_process_death_signal(Some(tie.farewell))?;
        // A launcher that died before that line sends no signal.
        if rustix::process::getppid() != Some(launcher) {
            rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
        }
        // From here on the guard knows of it, whatever becomes of the launcher.
        tie.care.enter();
        tie.before.restore()
    };
    // SAFETY: between fork and exec it makes system calls on values it owns,
    // and neither allocates, locks nor panics.
    unsafe { command.pre_exec(before_exec) };
}
