//! The errors of a virtual machine that did not run a command to its end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::tool::{Tool, with_sources};

/// The reason why a virtual machine did not run a command to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// This machine lacks tools.
    #[error("missing: {}; `cargo xtask setup` installs them", with_sources(.tools))]
    Missing {
        /// The missing tools.
        tools: Vec<Tool>,
    },
    /// A program that the machine needs failed.
    #[error("`{command}` {problem}")]
    Helper {
        /// The command as a shell would read it.
        command: String,
        /// Its exit status and its output.
        problem: String,
    },
    /// No kernel is known under the names Debian gives its packages.
    #[error(
        "{package} depends on no package of a kernel, as Debian's does; apt-cache said:\n{said}"
    )]
    NoKernelPackage {
        /// The package that was queried.
        package: &'static str,
        /// The output of apt-cache.
        said: String,
    },
    /// A file or folder could not be used.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused a channel, a thread or the like.
    #[error("cannot {action}: {source}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An argument has no usable value.
    #[error("{0}")]
    Unusable(String),
    /// The time was up.
    #[error("no end after {} s: the machine was killed", .0.as_secs())]
    TimedOut(Duration),
    /// A machine ended before the command did.
    #[error("host{host} ended before the command did{said}\nits kernel's log is {}", .log.display())]
    Died {
        /// The number of the machine.
        host: usize,
        /// The output of QEMU and the end of the kernel's log.
        said: String,
        /// The path of the log.
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
