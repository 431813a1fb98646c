//! The messages between the launcher and its agents.
//!
//! A frame is its length in four bytes, little-endian, its value as `postcard` encodes it, and a
//! newline. Slurm's `srun` passes on whole lines only, and would hold back other ends of frames.
//! Before its first frame an agent writes [`GREETING`]. The launcher skips the output of a login
//! shell before the greeting.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::launcher::supervise::Behind;
use crate::launcher::{Bind, Ending, Prefix};

/// The words of [`GREETING`] before the version.
pub(super) const GREETING_WORDS: &str = "hydrant agent ";

/// An agent's first bytes. They name the version, which must be the launcher's.
pub(super) const GREETING: &[u8] =
    concat!("\nhydrant agent ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// A value that frames carry.
pub(super) trait Framed: DeserializeOwned {
    /// The longest frame in bytes.
    const LONGEST: usize;
}

impl Framed for AgentOrder {
    // A start order carries arguments and an environment.
    const LONGEST: usize = 16 << 20;
}

impl Framed for AgentReport {
    // A rank's line is the longest report.
    const LONGEST: usize = 1 << 20;
}

/// The bytes of a piece of input or output.
pub(super) const PIECE: usize = 32 << 10;

/// The bytes of output that an agent may send before the launcher has acknowledged the first.
pub(super) const WINDOW: usize = 256 << 10;

/// A message from the launcher to an agent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum AgentOrder {
    /// Start these ranks.
    Start(Box<Start>),
    /// Send a line to a rank.
    Line { rank: u32, line: String },
    /// Read no more from a rank.
    HangUp { rank: u32 },
    /// Send a signal to all ranks.
    Signal(i32),
    /// Kill all ranks and the processes that they started.
    Kill,
    /// Input for rank 0. An empty piece is its end.
    Input(Vec<u8>),
    /// The launcher has written this many bytes of output.
    Written(u64),
    /// The stream has no reader any more.
    Deaf(RankStream),
    /// Every rank of the job has ended. End the processes left behind, send the rest, and exit.
    Finish { gently: bool },
    /// A heartbeat.
    Beat,
}

/// A message from an agent to the launcher.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum AgentReport {
    /// The ranks have begun.
    Begun,
    /// The ranks could not be started. The launcher would exit with the same status.
    Refused { status: u8, why: String },
    /// A rank sent a line.
    Line { rank: u32, line: Vec<u8> },
    /// A rank closed its connection.
    Closed { rank: u32 },
    /// A rank broke the protocol.
    Wrong { rank: u32, why: String },
    /// A rank ended.
    Ended { rank: u32, ending: Ending },
    /// A rank printed bytes.
    Printed {
        rank: u32,
        stream: RankStream,
        bytes: Vec<u8>,
    },
    /// Rank 0 read its input.
    Taken,
    /// The result of ending the processes left behind. It is the last message.
    Done(Behind),
    /// A heartbeat.
    Beat,
}

/// The ranks that an agent starts, and their program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Start {
    /// The job's name.
    pub(super) name: String,
    /// The agent's first rank.
    pub(super) first: u32,
    /// The number of ranks that the agent starts.
    pub(super) ranks: u32,
    /// The number of ranks in the job.
    pub(super) size: u32,
    pub(super) program: Vec<u8>,
    pub(super) arguments: Vec<Vec<u8>>,
    pub(super) environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// The working directory.
    pub(super) directory: Vec<u8>,
    pub(super) prefix: Prefix,
    pub(super) bind: Bind,
    /// The longest silence of the launcher, in milliseconds.
    pub(super) silence: u64,
}

/// A stream that ranks print to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RankStream {
    Out,
    Err,
}

/// The last byte of a frame.
const END: u8 = b'\n';

/// Encodes a frame.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Encoding to memory does not fail for values without maps or odd types.
    bytes = postcard::to_extend(value, bytes).unwrap_or_default();
    let len = bytes.len().saturating_sub(4) as u32;
    if let Some(head) = bytes.first_chunk_mut::<4>() {
        *head = len.to_le_bytes();
    }
    bytes.push(END);
    bytes
}

/// Decodes the first frame of `bytes`. Returns it with its length, or `None` if it is incomplete.
pub(super) fn decode<T: Framed>(bytes: &[u8]) -> Result<Option<(T, usize)>, String> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*head) as usize;
    if len > T::LONGEST {
        return Err(format!("a frame of {len} bytes"));
    }
    let Some((&end, body)) = rest.get(..=len).and_then(<[u8]>::split_last) else {
        return Ok(None);
    };
    let value = postcard::from_bytes(body).map_err(|cause| format!("a broken frame ({cause})"))?;
    if end != END {
        return Err("a broken frame (without its end)".into());
    }
    Ok(Some((value, 4 + len + 1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_decode_to_their_values() {
        let orders = [
            AgentOrder::Line {
                rank: 3,
                line: "cmd=barrier_out rc=0\n".into(),
            },
            AgentOrder::Input(vec![0xa5; PIECE]),
            AgentOrder::Finish { gently: true },
            AgentOrder::Beat,
        ];
        let bytes: Vec<u8> = orders.iter().flat_map(encode).collect();
        let mut at = 0;
        for order in orders {
            let last = bytes.len() - encode(&order).len() - at == 0;
            let cut = &bytes[at..bytes.len() - usize::from(last)];
            let whole = decode::<AgentOrder>(cut).unwrap();
            assert_eq!(whole.is_none(), last);
            let (got, taken) = decode::<AgentOrder>(&bytes[at..]).unwrap().unwrap();
            assert_eq!(got, order);
            at += taken;
        }
        assert_eq!(decode::<AgentOrder>(&bytes[at..]).unwrap(), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_incomplete(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Ok(Some((_, taken))) = decode::<AgentReport>(rest) {
                rest = &rest[taken..];
            }
            prop_assert!(decode::<AgentOrder>(&[0xff; 8]).is_err());
        }
    }
}
