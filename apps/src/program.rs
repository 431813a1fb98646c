//! The path from the command line to the exit status, for programs that report once for all ranks.

use std::{error::Error, io, process::ExitCode};

use clap::Parser;
use hydrant::{Job, Rank};

/// The reason why a program failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A cause that every rank knows. Rank 0 prints it.
    #[error(transparent)]
    Common(Box<dyn Error + Send + Sync>),

    /// A cause that this rank found and prints for all; the others have [`Failure::Elsewhere`].
    #[error(transparent)]
    Here(Box<dyn Error + Send + Sync>),

    /// Another rank found the cause and prints it.
    #[error("rank {0} has said why")]
    Elsewhere(Rank),

    /// An error of this rank's job, which then cannot end in good order.
    #[error(transparent)]
    Job(#[from] hydrant::Error),
}

impl Failure {
    /// A cause that every rank knows.
    pub fn common(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Common(cause.into())
    }

    /// A failure to allocate: every rank gets it if there is no memory.
    pub fn of_allocation(cause: hydrant::Error) -> Self {
        match cause {
            hydrant::Error::OutOfMemory { .. } => Self::common(cause),
            cause => Self::Job(cause),
        }
    }
}

/// Runs `body` as a rank of the job that this process was started in.
///
/// Arguments are parsed after the job is joined, so that a usage error is reported once and not by
/// every rank.
pub fn run<A: Parser>(
    name: &str,
    body: impl Fn(&Job, A) -> Result<(), Failure> + Sync,
) -> ExitCode {
    if let Err(cause) = hydrant::log_to_stderr() {
        return failed(name, &cause);
    }
    let ended = hydrant::run_spmd(|job| {
        let speaks = job.rank() == Rank(0);
        let arguments = match A::try_parse() {
            Ok(arguments) => arguments,
            Err(usage) => {
                if speaks {
                    ignore_closed_reader(usage.print())?;
                }
                // 0 if the user asked for help, 2 after a usage error.
                return Ok(ExitCode::from(u8::from(usage.use_stderr()) * 2));
            }
        };
        match body(job, arguments) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(Failure::Job(cause)) => Err(cause),
            Err(Failure::Common(cause)) if speaks => Ok(failed(name, &*cause)),
            Err(Failure::Here(cause)) => Ok(failed(name, &*cause)),
            Err(Failure::Common(_) | Failure::Elsewhere(_)) => Ok(ExitCode::FAILURE),
        }
    });
    ended.unwrap_or_else(|cause| failed(name, &cause))
}

/// The result of printing. It is success as well if the reader has closed the pipe, as `head` does.
///
/// # Errors
/// Any other error.
pub(crate) fn ignore_closed_reader(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

fn failed(name: &str, cause: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("{name}: {cause}");
    ExitCode::FAILURE
}
