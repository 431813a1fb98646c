//! Why a job could not be started.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Why a job could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A job of no ranks.
    #[error("a job has at least 1 rank, and 0 were asked for")]
    NoRanks,

    /// More ranks than a launcher starts.
    #[error("{ranks} ranks were asked for; the limit is {limit}")]
    TooManyRanks {
        /// How many were asked for.
        ranks: u32,
        /// The most there may be.
        limit: u32,
    },

    /// The hosts have no room for so many ranks.
    #[error("{ranks} ranks were asked for, and the hosts have slots for {slots}")]
    TooFewSlots {
        /// How many were asked for.
        ranks: u32,
        /// How many slots there are.
        slots: u32,
    },

    /// The remote shell could not be started.
    #[error("the remote shell for host {host} could not be started: {source}{}", hint(.source))]
    NoShell {
        /// The host.
        host: String,
        /// What the system said.
        source: io::Error,
    },

    /// The program is nowhere.
    #[error(
        "the program `{}` was not found; looked for {}",
        .program.display(),
        .looked.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NotFound {
        /// The program asked for.
        program: OsString,
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },

    /// What was found is a directory or a device.
    #[error("{} is not a file and cannot be run", .0.display())]
    NotAFile(PathBuf),

    /// The file has no permission to be executed.
    #[error("{} may not be executed by this user: {source}", .path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A program of Hydrant's workspace could not be built.
    #[error("`{command}` failed, so that {} could not be built: {why}", .program.display())]
    NotBuilt {
        /// The program asked for.
        program: OsString,
        /// The command that should have built it.
        command: String,
        /// What became of it.
        why: String,
    },

    /// The system would not start a rank.
    #[error("rank {rank} could not be started from {}: {source}{}", .program.display(), hint(.source))]
    NotStarted {
        /// The rank.
        rank: u32,
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The limit on open files is too low for so many ranks.
    #[error(
        "{ranks} ranks need {need} open files here, and the limit is {limit}; raise it (ulimit -n {need}) \
         or start fewer ranks"
    )]
    TooFewFiles {
        /// How many ranks were asked for.
        ranks: u32,
        /// How many files they need.
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

    /// Something the launcher needs for itself was refused.
    #[error("{doing} failed: {source}{}", hint(.source))]
    System {
        /// What the launcher was doing.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl LaunchError {
    /// The status to exit with: 127 and 126 as shells have it, else 125.
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

/// What the system's words do not say.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOEXEC) => {
            "; it is neither a program of this machine nor a script whose first line names its \
             interpreter (#!/bin/sh)"
        }
        Some(libc::ENOENT) => "; the file is there, so its interpreter or loader is not",
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
