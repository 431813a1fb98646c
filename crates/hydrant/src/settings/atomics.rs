//! Who does atomic operations.

use std::{fmt, str::FromStr};

/// Who changes words of 64 bits of symmetric memory atomically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AtomicsKind {
    /// NICs, where they can.
    #[default]
    Auto,
    /// The NIC of the word's owner, whoever asks, the owner included; an error where that
    /// cannot be.
    Native,
    /// A processor of the owner's host: of who asks, if the word is mapped there, else of the
    /// owner, on behalf of who asks it by a message.
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
