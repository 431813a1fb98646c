//! What the launcher and its agents say to each other.
//!
//! A frame is its length in four bytes, least first, and its value as `postcard` writes it.
//! Before its first frame an agent writes [`GREETING`]: what a login shell prints before that
//! is skipped.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::launcher::supervise::Behind;
use crate::launcher::{Bind, Ending, Prefix};

/// What an agent says first. It names the version: launcher and agents are of one.
pub(super) const GREETING: &[u8] =
    concat!("\nhydrant agent ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// What frames carry.
pub(super) trait Framed: DeserializeOwned {
    /// The longest frame.
    const LONGEST: usize;
}

impl Framed for Order {
    // What to start has arguments and an environment.
    const LONGEST: usize = 16 << 20;
}

impl Framed for Report {
    // A line that a rank said is the longest.
    const LONGEST: usize = 1 << 20;
}

/// The bytes of a piece of input or output.
pub(super) const PIECE: usize = 32 << 10;

/// How many bytes of output an agent sends before it hears that the first are written.
pub(super) const WINDOW: usize = 256 << 10;

/// From the launcher to an agent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Start these ranks.
    Start(Box<Start>),
    /// Send a line to a rank.
    Line { rank: u32, line: String },
    /// Hear no more of a rank.
    HangUp { rank: u32 },
    /// Send a signal to all ranks.
    Signal(i32),
    /// Kill all ranks and what they started.
    Kill,
    /// Input for rank 0; none is its end.
    Input(Vec<u8>),
    /// So many bytes of output are written.
    Written(u64),
    /// Nobody reads this stream any more.
    Deaf(Stream),
    /// Every rank of the job has ended: end what they left behind, say the rest, and go.
    Finish { gently: bool },
    /// The launcher is there.
    Beat,
}

/// From an agent to the launcher.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The ranks have begun.
    Begun,
    /// They could not be started; the status is as the launcher's own would be.
    Refused { status: u8, why: String },
    /// A rank said something.
    Line { rank: u32, line: Vec<u8> },
    /// A rank will say no more.
    Closed { rank: u32 },
    /// A rank said what is no line.
    Wrong { rank: u32, why: String },
    /// A rank ended.
    Ended { rank: u32, ending: Ending },
    /// A rank printed something.
    Printed {
        rank: u32,
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The input was taken.
    Taken,
    /// What became of what was left behind. The last word.
    Done(Behind),
    /// The agent is there.
    Beat,
}

/// What an agent starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Start {
    /// The job's name.
    pub(super) name: String,
    /// The number of its first rank.
    pub(super) first: u32,
    /// How many ranks it starts.
    pub(super) ranks: u32,
    /// The ranks of the job.
    pub(super) size: u32,
    pub(super) program: Vec<u8>,
    pub(super) arguments: Vec<Vec<u8>>,
    pub(super) environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// The working directory.
    pub(super) directory: Vec<u8>,
    pub(super) prefix: Prefix,
    pub(super) bind: Bind,
    /// How long the launcher may be silent, in milliseconds.
    pub(super) silence: u64,
}

/// A stream that ranks print to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stream {
    Out,
    Err,
}

/// A frame's bytes.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Writing to memory what has no maps or odd types does not fail.
    bytes = postcard::to_extend(value, bytes).unwrap_or_default();
    let len = bytes.len().saturating_sub(4) as u32;
    if let Some(head) = bytes.first_chunk_mut::<4>() {
        *head = len.to_le_bytes();
    }
    bytes
}

/// The first whole frame of `bytes`, if there is one, and how many of them it takes.
pub(super) fn decode<T: Framed>(bytes: &[u8]) -> Result<Option<(T, usize)>, String> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*head) as usize;
    if len > T::LONGEST {
        return Err(format!("a frame of {len} bytes"));
    }
    let Some(body) = rest.get(..len) else {
        return Ok(None);
    };
    let value = postcard::from_bytes(body).map_err(|cause| format!("a broken frame ({cause})"))?;
    Ok(Some((value, 4 + len)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let orders = [
            Order::Line {
                rank: 3,
                line: "cmd=barrier_out rc=0\n".into(),
            },
            Order::Input(vec![0xa5; PIECE]),
            Order::Finish { gently: true },
            Order::Beat,
        ];
        let bytes: Vec<u8> = orders.iter().flat_map(encode).collect();
        let mut at = 0;
        for order in orders {
            let last = bytes.len() - encode(&order).len() - at == 0;
            let cut = &bytes[at..bytes.len() - usize::from(last)];
            let whole = decode::<Order>(cut).unwrap();
            assert_eq!(whole.is_none(), last);
            let (got, taken) = decode::<Order>(&bytes[at..]).unwrap().unwrap();
            assert_eq!(got, order);
            at += taken;
        }
        assert_eq!(decode::<Order>(&bytes[at..]).unwrap(), None);
    }

    proptest! {
        #[test]
        fn what_is_no_frame_is_refused_or_waited_for(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Ok(Some((_, taken))) = decode::<Report>(rest) {
                rest = &rest[taken..];
            }
            prop_assert!(decode::<Order>(&[0xff; 8]).is_err());
        }
    }
}
