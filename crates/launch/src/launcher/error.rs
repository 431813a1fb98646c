//! Errors of a job's start.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The reason why a job could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The job has no ranks.
    #[error("a job has at least 1 rank, and 0 were asked for")]
    NoRanks,

    /// The job has more ranks than the launcher starts.
    #[error("{ranks} ranks were asked for; the limit is {limit}")]
    TooManyRanks {
        /// The requested number of ranks.
        ranks: u32,
        /// The limit.
        limit: u32,
    },

    /// The hosts have too few slots for the ranks.
    #[error("{ranks} ranks were asked for, and the hosts have slots for {slots}")]
    TooFewSlots {
        /// The requested number of ranks.
        ranks: u32,
        /// The number of slots.
        slots: u32,
    },

    /// The program of the remote shell is not on this host.
    #[error("the remote shell `{}` cannot be used (--rsh, HYDRANT_RSH): {source}", .shell.display())]
    NoRemoteShell {
        /// The remote shell and its options.
        shell: OsString,
        /// The reason.
        source: Box<LaunchError>,
    },

    /// The remote shell could not be started.
    #[error("the remote shell for host {host} could not be started: {source}{}", hint(.source))]
    NoShell {
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },

    /// No such program was found.
    #[error(
        "the program `{}` was not found; looked for {}",
        .program.display(),
        .looked.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NotFound {
        /// The requested program.
        program: OsString,
        /// The paths that were tried.
        looked: Vec<PathBuf>,
    },

    /// The path names a directory or a device.
    #[error("{} is not a file and cannot be run", .0.display())]
    NotAFile(PathBuf),

    /// The file has no permission to be executed.
    #[error("{} may not be executed by this user: {source}", .path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// A program of Hydrant's workspace could not be built.
    #[error("`{command}` failed, so that {} could not be built: {why}", .program.display())]
    NotBuilt {
        /// The requested program.
        program: OsString,
        /// The command that builds it.
        command: String,
        /// The result of the command.
        why: String,
    },

    /// The system refused to start a rank.
    #[error("rank {rank} could not be started from {}: {source}{}", .program.display(), hint(.source))]
    NotStarted {
        /// The rank.
        rank: u32,
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The limit on open files is too low for so many ranks.
    #[error(
        "{ranks} ranks need {need} open files here, and the limit is {limit}; raise it (ulimit -n {need}) \
         or start fewer ranks"
    )]
    TooFewFiles {
        /// The requested number of ranks.
        ranks: u32,
        /// The number of open files that they need.
        need: u64,
        /// The hard limit of this process.
        limit: u64,
    },

    /// The launcher's new processes would begin in another PID namespace than its own.
    #[error(
        "processes that the launcher starts would begin in another PID namespace than its own; start it \
         in that one (unshare --pid --fork)"
    )]
    OtherNamespace,

    /// A host lacks the job's working directory, or this user may not enter it.
    #[error(
        "the working directory {} cannot be entered: {source}; make it on this host, or start the job in a directory \
         that all hosts have", .directory.display()
    )]
    NoDirectory {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The system refused a resource that the launcher itself needs.
    #[error("{doing} failed: {source}{}", limit_hint(.source))]
    System {
        /// The launcher's activity.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl LaunchError {
    /// Returns the launcher's exit status: 127 and 126 as in shells, else 125.
    pub fn status(&self) -> u8 {
        match self {
            LaunchError::NotFound { .. } => 127,
            LaunchError::NotAFile(_)
            | LaunchError::NotExecutable { .. }
            | LaunchError::NotStarted { .. } => 126,
            _ => 125,
        }
    }

    pub(super) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> LaunchError {
        move |source| LaunchError::System {
            doing,
            source: source.into(),
        }
    }
}

/// Returns a remedy that the system's text lacks, where a program could not be executed.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOEXEC) => {
            "; it is neither a program of this machine nor a script whose first line names its \
             interpreter (#!/bin/sh)"
        }
        Some(libc::ENOENT) => "; the file is there, so its interpreter or loader is not",
        _ => limit_hint(source),
    }
}

/// Returns the limit that the system's text does not name.
fn limit_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EAGAIN) => {
            "; the user's limit on processes and threads is reached, or that of the control group: \
             raise it (ulimit -u, pids.max; for threads also ulimit -v) or start fewer ranks"
        }
        Some(libc::ENOMEM) => {
            "; there is no memory, or the address space is limited: raise the limit (ulimit -v) or \
             start fewer ranks"
        }
        Some(libc::EMFILE | libc::ENFILE) => "; raise the limit on open files (ulimit -n)",
        _ => "",
    }
}
