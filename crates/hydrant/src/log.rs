//! The log to stderr, for programs without a subscriber of their own.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt};

use crate::settings::log_filter;
use crate::{Error, Result, Settings};

const VARIABLE: &str = "HYDRANT_LOG";

/// Writes the log of this process to standard error, filtered by `HYDRANT_LOG`: warnings and errors
/// by default. Call it once, at the start of `main`.
///
/// Hydrant logs through `tracing`, and never installs a subscriber unless this is called. A program
/// with a subscriber of its own receives Hydrant's log at any level, and does not call this. A
/// program with neither logs nothing, and `HYDRANT_LOG` has no effect in it. The `hydrant` command
/// and the programs that come with it call this.
///
/// The log has colours on a terminal unless `NO_COLOR` is set, and is plain text in a pipe or a
/// file.
///
/// ```
/// fn main() -> hydrant::Result<()> {
///     hydrant::log_to_stderr()?;
///     hydrant::run(|job| job.barrier())
/// }
/// ```
///
/// # Errors
/// [`Error::Setting`] if `HYDRANT_LOG` is not a filter; [`Error::LogTaken`] if the program has a
/// subscriber already, which then stays.
pub fn log_to_stderr() -> Result<()> {
    let said = std::env::var_os(VARIABLE).map(|said| said.to_string_lossy().into_owned());
    let settings = Settings::from_vars(said.map(|said| (VARIABLE.to_owned(), said)))?;
    // The text was tried when the setting was made.
    let filter = log_filter::parse(&settings.log)
        .unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    let output = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(has_colours())
        .without_time();
    let subscriber = tracing_subscriber::registry().with(filter).with(output);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| Error::LogTaken)
}

/// Returns whether the output is a terminal and its user allows colours (<https://no-color.org>).
fn has_colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !refused
}
