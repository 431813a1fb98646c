//! Starting one rank.
#![allow(unsafe_code, reason = "what a rank needs is set between fork and exec")]

use std::env;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::FdFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

use super::signals::Mask;

/// What holds for a rank's process from before its program begins.
pub(super) struct Setup {
    /// Its end of the PMI-1 socket.
    pub(super) pmi: OwnedFd,
    /// Where it may run, if not everywhere.
    pub(super) cpus: Option<CpuSet>,
    /// The signals it blocks: what the launcher did before the job.
    pub(super) mask: Mask,
    /// Its limit on open files: what the launcher had before the job.
    pub(super) files: Rlimit,
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

/// Starts `command` as a rank: in a process group of its own, and dying with the launcher.
///
/// The kernel kills the rank when the calling thread ends, so this is called
/// from the thread that supervises the job.
pub(super) fn spawn(mut command: Command, setup: Setup) -> io::Result<Child> {
    let launcher = rustix::process::getpid();
    let Setup {
        pmi,
        cpus,
        mask,
        files,
    } = setup;
    command.env("PMI_FD", pmi.as_raw_fd().to_string());
    let before_exec = move || {
        rustix::process::setpgid(None, None)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // A launcher that died before that line sends no signal.
        if rustix::process::getppid() != Some(launcher) {
            rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
        }
        if let Some(cpus) = &cpus {
            // A core taken from us meanwhile is no reason not to run.
            let _ = rustix::thread::sched_setaffinity(None::<Pid>, cpus);
        }
        rustix::process::setrlimit(Resource::Nofile, files)?;
        rustix::io::fcntl_setfd(&pmi, FdFlags::empty())?;
        mask.set()
    };
    // SAFETY: between fork and exec it makes system calls on values it owns,
    // and neither allocates, locks nor panics.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}
