//! The errors of input and output files.

use std::{io, path::PathBuf};

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// It cannot be opened or read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },

    /// It cannot be created or written.
    #[error("cannot write {}: {cause}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },

    /// The file is empty.
    #[error("{} is empty: it must hold {what}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The expected elements.
        what: &'static str,
    },

    /// A raw file ends within an element.
    #[error("{} is no list of {what}: its {bytes} bytes are no multiple of 8", path.display())]
    Torn {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The expected elements.
        what: &'static str,
    },

    /// A text file has a word that is no element.
    #[error(
        "line {line} of {} has \"{word}\", which is none of the {what} it must hold",
        path.display()
    )]
    Garbage {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// The word.
        word: String,
        /// The expected elements.
        what: &'static str,
    },

    /// A raw file has an element that is no finite number.
    #[error(
        "element {at} of {} is {value}, which is none of the {what} it must hold",
        path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The element, from 0 on.
        at: usize,
        /// Its value.
        value: String,
        /// The expected elements.
        what: &'static str,
    },

    /// The elements make no square matrix.
    #[error(
        "{} holds {elements} numbers, which make no square matrix: the nearest has {nearest} x \
         {nearest}",
        path.display()
    )]
    NotSquare {
        /// The file.
        path: PathBuf,
        /// The number of elements.
        elements: usize,
        /// The side of the nearest square.
        nearest: usize,
    },

    /// A row of a matrix is longer or shorter than there are rows.
    #[error("row {row} of {} has {found} numbers, but its matrix has {side} rows", path.display())]
    Ragged {
        /// The file.
        path: PathBuf,
        /// The row, from 1 on.
        row: usize,
        /// The numbers in the row.
        found: usize,
        /// The rows of the matrix.
        side: usize,
    },

    /// The file has another size than asked for.
    #[error("{} holds {found} {what}, not the {wanted} of {by}", path.display())]
    OtherSize {
        /// The file.
        path: PathBuf,
        /// The counted elements.
        what: &'static str,
        /// The number in the file.
        found: usize,
        /// The number expected.
        wanted: usize,
        /// The source of the expectation.
        by: String,
    },
}
