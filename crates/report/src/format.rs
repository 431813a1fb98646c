//! The output format of a command.

use clap::ValueEnum;

/// For a reader or for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns that line up.
    #[default]
    Table,
    /// JSON: an object for each row, one row a line.
    Json,
}
