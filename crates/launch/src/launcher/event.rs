//! Events that the launcher reports to its user while a job runs.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::Ranks;

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Ending {
    /// It exited with a status.
    Exited(u8),
    /// A signal killed it.
    Killed(u8),
}

impl Ending {
    /// Returns the status that a shell would report.
    pub fn status(self) -> u8 {
        match self {
            Ending::Exited(status) => status,
            Ending::Killed(signal) => 128 | signal,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(status) => write!(f, "ended with status {status}"),
            Ending::Killed(signal) => match signal_name(i32::from(*signal)) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

/// An event for the user. Its `Display` is one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A program of the workspace is missing or older than its sources, and is being built.
    Building {
        /// The program's file.
        program: PathBuf,
        /// The command.
        command: String,
    },
    /// A rank failed.
    Failed {
        /// The rank.
        rank: u32,
        /// The rank's end.
        ending: Ending,
        /// True for the first failure. Its status is the job's.
        first: bool,
    },
    /// A rank failed for the loss of another rank, the deserter. The deserter ended with status 0
    /// without leaving the job, as by `exit`. The job's status is that of the rank that failed.
    Deserted {
        /// The rank that ended first.
        deserter: u32,
        /// The rank that failed in consequence.
        rank: u32,
        /// The end of the rank that failed.
        ending: Ending,
    },
    /// A rank asked the launcher to end the job.
    Aborted {
        /// The rank.
        rank: u32,
        /// The requested status.
        status: u8,
        /// The rank's reason, if it gave one.
        why: Option<String>,
    },
    /// A rank broke the PMI-1 protocol.
    Misspoke {
        /// The rank.
        rank: u32,
        /// The violation.
        why: String,
    },
    /// A host could not be reached, or was lost together with its ranks.
    HostFailed {
        /// The host.
        host: String,
        /// Its ranks.
        ranks: Vec<u32>,
        /// The failure. It completes a sentence after the host's name.
        why: String,
    },
    /// The job exceeded its time limit.
    TimedOut(Duration),
    /// These ranks did not end within the grace after the first failure, and get SIGTERM.
    Terminating(Vec<u32>),
    /// These ranks ignored SIGTERM, or the user insisted. They get SIGKILL.
    Killing(Vec<u32>),
    /// A rank survived SIGKILL, and the job ends without it.
    CannotEnd {
        /// The rank.
        rank: u32,
        /// The reason.
        why: String,
    },
    /// The launcher ended this many processes that ranks had left behind.
    LeftBehind(usize),
    /// A process that a rank had left behind could not be ended, for this reason.
    Stray(String),
    /// The output of the ranks could not be written.
    OutputLost(io::Error),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Building { program, command } => {
                write!(f, "building {} ({command})", program.display())
            }
            Event::Failed {
                rank,
                ending,
                first,
            } => {
                write!(f, "rank {rank} {ending}")?;
                if *first {
                    write!(
                        f,
                        "; it was the first to fail, and the job's status is {}",
                        ending.status()
                    )?;
                }
                Ok(())
            }
            Event::Deserted {
                deserter,
                rank,
                ending,
            } => {
                write!(
                    f,
                    "rank {deserter} ended with status 0 before it had left the job, as by `exit`, and so \
                     it was the first to fail; rank {rank}, which needed it, {ending}, and the job's \
                     status is {}",
                    ending.status()
                )
            }
            Event::Aborted {
                rank,
                status,
                why: Some(why),
            } => {
                write!(f, "rank {rank} ended the job with status {status}: {why}")
            }
            Event::Aborted {
                rank,
                status,
                why: None,
            } => {
                write!(f, "rank {rank} ended the job with status {status}")
            }
            Event::Misspoke { rank, why } => {
                write!(
                    f,
                    "rank {rank} broke the PMI-1 protocol, and the job ends: {why}"
                )
            }
            Event::HostFailed { host, ranks, why } => {
                write!(f, "host {host}, of {}, {why}", Ranks(ranks))
            }
            Event::TimedOut(limit) => {
                write!(
                    f,
                    "the job took longer than {} s and is ended",
                    limit.as_secs_f64()
                )
            }
            Event::Terminating(ranks) => {
                write!(f, "SIGTERM to {}, still running", Ranks(ranks))
            }
            Event::Killing(ranks) => write!(f, "SIGKILL to {}, still running", Ranks(ranks)),
            Event::CannotEnd { rank, why } => write!(f, "rank {rank} cannot be ended: {why}"),
            Event::Stray(why) => {
                write!(
                    f,
                    "a process that a rank left behind cannot be ended: {why}"
                )
            }
            Event::LeftBehind(count) => {
                write!(f, "{count} processes that the ranks left behind were ended")
            }
            Event::OutputLost(error) => {
                write!(f, "the output of the ranks could not be written: {error}")
            }
        }
    }
}

/// Returns the name of a signal, as `SIGTERM`.
pub(super) fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_have_the_status_of_a_shell() {
        assert_eq!(
            Ending::Killed(9).to_string(),
            "was killed by signal 9 (SIGKILL)"
        );
        assert_eq!(Ending::Killed(9).status(), 137);
        assert_eq!(Ending::Killed(40).to_string(), "was killed by signal 40");
        assert_eq!(Ending::Exited(3).status(), 3);
    }
}
