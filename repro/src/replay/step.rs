//! The steps of a rank in a replay.

/// The memory of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessagePlace {
    /// Memory that the trace names.
    Traced { addr: u64, bytes: u64 },
    /// Memory of the library itself, which the trace does not name.
    Scratch { bytes: u64 },
}

impl MessagePlace {
    /// The number of bytes.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            MessagePlace::Traced { bytes, .. } | MessagePlace::Scratch { bytes } => bytes,
        }
    }
}

/// One end of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageEnd {
    /// The other rank.
    pub(crate) peer: u32,
    /// The number of the message at both ends, which is unique.
    pub(crate) tag: u64,
    pub(crate) place: MessagePlace,
}

/// One step of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplayStep {
    /// A call begins, at this call site, after this computation.
    Call {
        site: u64,
        computed_ns: u64,
    },
    Send(MessageEnd),
    Receive(MessageEnd),
    /// Sends and receives at once.
    SendReceive(MessageEnd, MessageEnd),
    /// Begins to send, under the number of a request.
    BeginSend(u64, MessageEnd),
    BeginReceive(u64, MessageEnd),
    /// Waits for the end of a request.
    Complete(u64),
    /// Copies the rank's own part of an exchange.
    Copy {
        bytes: u64,
    },
}
