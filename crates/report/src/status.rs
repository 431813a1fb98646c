//! The end of a command: its exit status, and its error on the standard error output.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Returns the exit status, and prints the error if there is one.
///
/// A reader that closes the standard output, such as `head`, has all that it wants, so that is no
/// error.
pub fn status<E: Error + 'static>(result: Result<(), E>) -> ExitCode {
    match result {
        Err(error) if is_unread(&error) => ExitCode::SUCCESS,
        other => strict_status(other),
    }
}

/// Like [`status`], but a closed pipe is an error like any other.
pub fn strict_status<E: Error + 'static>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If nobody can read the error, the exit status still reports it.
            let _ = io::stderr().write_all(format!("hydrant: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Writes a line of a subcommand to the standard error output. The line goes in one piece, since ranks write there too.
/// A failure is ignored: the status is the job's all the same.
pub fn print_message(command: &str, what: &dyn Display) {
    let line = format!("hydrant {command}: {what}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// True if the error means that the reader of the output has closed it.
fn is_unread(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(it) = cause {
        let of_output = it.downcast_ref::<io::Error>();
        if of_output.is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = it.source();
    }
    false
}
