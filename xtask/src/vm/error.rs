//! Why a virtual machine did not run a command to its end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::tool::{Tool, with_sources};

/// Why a virtual machine did not run a command to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// This machine lacks tools.
    #[error("missing: {}; `cargo xtask setup` installs them", with_sources(.tools))]
    Missing {
        /// What is missing.
        tools: Vec<Tool>,
    },
    /// A program we need did not do what we needed.
    #[error("`{command}` {problem}")]
    Helper {
        /// The command as one would type it.
        command: String,
        /// How it ended, and what it said.
        problem: String,
    },
    /// No kernel is known under the names Debian gives its packages.
    #[error(
        "{package} depends on no package of a kernel, as Debian's does; apt-cache said:\n{said}"
    )]
    NoKernelPackage {
        /// The package we asked about.
        package: &'static str,
        /// What it was said to depend on.
        said: String,
    },
    /// A file or folder could not be used.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// What we wanted with it.
        action: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused a channel, a thread or the like.
    #[error("cannot {action}: {source}")]
    System {
        /// What we wanted.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// What a word was to be, it cannot be.
    #[error("{0}")]
    Unusable(String),
    /// The time was up.
    #[error("no end after {} s: the machine was killed", .0.as_secs())]
    TimedOut(Duration),
    /// A machine ended before the command did.
    #[error("host{host} ended before the command did{said}\nits kernel's log is {}", .log.display())]
    Died {
        /// Which of the machines.
        host: usize,
        /// What QEMU and the end of the kernel's log say.
        said: String,
        /// Where the log is.
        log: PathBuf,
    },
}

impl From<Error> for crate::error::Error {
    fn from(error: Error) -> Self {
        Self::Vm(Box::new(error))
    }
}

impl Error {
    /// An error with a file; for `map_err`.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File {
            action,
            path,
            source,
        }
    }

    /// An error of the system; for `map_err`.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System {
            action,
            source: source.into(),
        }
    }
}
