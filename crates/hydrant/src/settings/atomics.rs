//! The executors of atomic operations.

use std::{fmt, str::FromStr};

/// The executor that changes words of 64 bits of symmetric memory atomically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AtomicsKind {
    /// NICs if they can, otherwise processors.
    #[default]
    Auto,
    /// The NIC of the word's owner, for every rank, the owner included. It is an error if the
    /// network cannot do that.
    Native,
    /// A processor of the owner's host: that of the caller if the word is mapped there, otherwise
    /// that of the owner, at the request of a message.
    Messages,
}

impl FromStr for AtomicsKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "native" => Ok(Self::Native),
            "messages" => Ok(Self::Messages),
            _ => Err("auto, native or messages".to_owned()),
        }
    }
}

impl fmt::Display for AtomicsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Messages => "messages",
        })
    }
}
