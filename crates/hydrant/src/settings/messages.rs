//! The protocols of two-sided messages.

use std::{fmt, str::FromStr};

/// The protocol of two-sided messages, for any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MessageProtocol {
    /// Short messages are sent eagerly and long ones by rendezvous, by the costs of copies and
    /// registrations. If the network needs no registration, all messages are copied.
    #[default]
    Auto,
    /// Messages are copied through the network's own buffers. Long ones are sent in parts, once
    /// they are asked for.
    Eager,
    /// Messages are written into the receiver's buffer. It is registered whole, as is the source.
    Rendezvous,
    /// As `Rendezvous`, in chunks. Each chunk is registered while those before it are in flight
    /// (Woodall; Li §6).
    Pipeline,
}

impl MessageProtocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Eager, Self::Rendezvous, Self::Pipeline];

    /// Returns the name by which users choose it.
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
