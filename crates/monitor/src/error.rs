//! The reasons why memory is not watched.

use std::io;

/// An error of the system, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCause(Option<i32>);

impl From<io::Error> for SystemCause {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error())
    }
}

impl std::fmt::Display for SystemCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(number) => io::Error::from_raw_os_error(number).fmt(f),
            None => f.write_str("an unknown error"),
        }
    }
}

/// The reason why this process has no monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorAbsent {
    /// The kernel gives no userfaultfd.
    #[error(
        "userfaultfd(2) is refused ({call}), and so is /dev/userfaultfd ({device}): allow the system call, or pass the \
         device to the container and make it readable"
    )]
    Refused {
        /// The error of the system call.
        call: SystemCause,
        /// The error of the device.
        device: SystemCause,
    },
    /// The kernel has no events for changed memory.
    #[error(
        "the kernel's userfaultfd has no events for memory that is unmapped ({cause}): Linux 5.11 has them"
    )]
    NoEvents {
        /// The kernel's answer.
        cause: SystemCause,
    },
    /// The kernel gives a userfaultfd, but does not tell whether memory changes at this moment.
    #[error(
        "UFFDIO_WRITEPROTECT on a userfaultfd is refused ({cause}), which tells whether memory changes: allow that call"
    )]
    NoProbe {
        /// The error of the system call.
        cause: SystemCause,
    },
    /// The thread that reads the events was not started.
    #[error("the thread that hears of changed memory was not started: {cause}")]
    NoThread {
        /// The system's answer.
        cause: SystemCause,
    },
    /// The process was forked from one with a monitor.
    #[error("a forked child has no monitor")]
    Forked,
    /// The program has closed the descriptor of the monitor.
    #[error("the descriptor of the userfaultfd was closed by the program")]
    Ended,
    /// There are too many subscribers.
    #[error("the process has {0} jobs that listen already")]
    TooMany(usize),
}

/// Memory cannot be watched: it is not mapped, of a kind that the kernel does not watch, or watched by
/// another userfaultfd of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{len} bytes at {start:#x} cannot be watched: {cause}")]
pub struct Unwatched {
    /// The first address.
    pub start: u64,
    /// The bytes.
    pub len: u64,
    /// The kernel's answer.
    pub cause: SystemCause,
}
