//! How two-sided messages go.

use std::{fmt, str::FromStr};

/// How two-sided messages go, whatever their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MessageProtocol {
    /// Short ones at once, long ones by rendezvous, by what copying and registering cost; all in copies where
    /// nothing is registered.
    #[default]
    Auto,
    /// Copied through the network's own buffers: long ones in parts, when they were asked for.
    Eager,
    /// Written into the receiver's buffer, which is registered as the source is, both whole.
    Rendezvous,
    /// The same in chunks, each registered while those before it go (Woodall; Li §6).
    Pipeline,
}

impl MessageProtocol {
    /// Every protocol.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Eager, Self::Rendezvous, Self::Pipeline];

    /// The name by which users choose it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Eager => "eager",
            Self::Rendezvous => "rendezvous",
            Self::Pipeline => "pipeline",
        }
    }
}

impl FromStr for MessageProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        (Self::ALL.into_iter())
            .find(|protocol| protocol.name() == text)
            .ok_or_else(|| "auto, eager, rendezvous or pipeline".to_owned())
    }
}

impl fmt::Display for MessageProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
