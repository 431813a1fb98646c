//! The messages between engines, and their encoding as bytes.
//!
//! The encoding is little-endian, with a byte for the kind first. A peer's bytes are never trusted:
//! the decoder checks every length against the bytes that are there, and no byte may be left over.

use hydrant_base::fixed;
use hydrant_base::words::{Code, Fixed};
pub use hydrant_base::words::{MAX_LIST, Malformed};

use crate::{Refusal, Run};

/// The memory that a peer's address is part of: its segment, one buffer that it exposed, or its
/// whole address space. The target's driver chooses the number, and never gives one number to two
/// buffers. So an access to a buffer that has gone never reaches the next buffer at its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RegionNumber(pub u64);

/// A message from one rank's engine to another's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EngineMessage {
    /// Attaches firehoses, or registers for one operation, and releases old ones (§3.2, 2).
    Move(Move),
    /// The answer to a move.
    Granted(Granted),
    /// Gives firehoses back. There is no answer.
    Release {
        /// The runs, as granted.
        runs: Vec<Run>,
        /// True if the target deregisters them at once.
        unpin: bool,
    },
    /// Brings data for the receiver to copy to its place.
    Put {
        /// The sender's name for the chunk.
        id: u64,
        /// The region that the sender means.
        region: RegionNumber,
        /// The address that the data goes to.
        to: u64,
        /// The bytes that follow the message.
        len: u32,
    },
    /// The answer to a put.
    Stored {
        /// The sender's name for the chunk.
        id: u64,
        /// The reason, if the put was refused.
        refused: Option<Refusal>,
    },
    /// Asks for a copy of data.
    Get {
        /// The asker's name for the chunk.
        id: u64,
        /// The region that the asker means.
        region: RegionNumber,
        /// The address of the data.
        from: u64,
        /// The length in bytes.
        len: u32,
    },
    /// The answer to a get; the data follows the message.
    Fetched {
        /// The asker's name for the chunk.
        id: u64,
        /// The reason, if the get was refused.
        refused: Option<Refusal>,
        /// The bytes that follow.
        len: u32,
        /// The number of buckets that the target can register without evicting any: one more than
        /// its binary logarithm, rounded down, or 0 if there are none.
        room: u8,
    },
    /// Announces a pull of this memory, while the asker registers its own. So both sides register
    /// at the same time (Nieplocha 2002, figure 3). There is no answer.
    Ahead {
        /// The region that the asker means.
        region: RegionNumber,
        /// The address of the data.
        from: u64,
        /// The length in bytes.
        len: u64,
    },
    /// Asks the peer to write to the asker's memory, where the NIC does not read.
    Pull {
        /// The asker's name for the piece.
        id: u64,
        /// The region that the asker means.
        region: RegionNumber,
        /// The address of the data.
        from: u64,
        /// The destinations of the data, extent after extent.
        to: Vec<PullDestination>,
    },
    /// The answer to a pull: the data is written, or refused.
    Pulled {
        /// The asker's name for the piece.
        id: u64,
        /// The reason, if the pull was refused.
        refused: Option<Refusal>,
        /// True if the target had to register something first.
        registered: bool,
    },
    /// Asks for borrowed firehoses back.
    Recall {
        /// The number of firehoses.
        count: u64,
    },
    /// Announces that memory is going: its firehoses are to be given back.
    Revoke {
        /// The owner's name for the revocation.
        id: u64,
        /// The buckets.
        run: Run,
    },
    /// The answer to a revocation, when nothing uses the memory any more.
    Revoked {
        /// The owner's name for the revocation.
        id: u64,
        /// The runs that are given back for it.
        runs: Vec<Run>,
    },
}

/// A request to register runs of buckets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Move {
    /// The asker's name for the move.
    pub id: u64,
    /// The region that the asker means.
    pub region: RegionNumber,
    /// True if data is to be written there.
    pub write: bool,
    /// True if the target counts its grants, and keeps them registered until they are released.
    pub hold: bool,
    /// The number of firehoses that the asker would like to borrow beyond its own.
    pub borrow: u64,
    /// The runs that the asker gives back.
    pub releases: Vec<Run>,
    /// The runs that the asker needs.
    pub needs: Vec<Need>,
    /// Small data that is piggybacked on the move.
    pub piggyback: Option<Piggyback>,
}

/// Buckets that are needed, and the run around them that is preferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The needed run.
    pub run: Run,
    /// The preferred run, a superset.
    pub preferred: Run,
}

/// Small data that is piggybacked on a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piggyback {
    /// The address that the data goes to, or lies at.
    pub addr: u64,
    /// The length in bytes. The data of a put follows the move, and the data of a get follows the
    /// answer.
    pub len: u32,
}

/// The answer to a move.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Granted {
    /// The name of the move.
    pub id: u64,
    /// True if this is the last part. A fragmented target answers in parts; a target that must
    /// register first answers for the piggybacked data first.
    pub last: bool,
    /// The number of firehoses lent.
    pub lent: u64,
    /// The grants: extents that are registered now.
    pub grants: Vec<Grant>,
    /// The refused runs, with the reason for each.
    pub refused: Vec<(Run, Refusal)>,
    /// The outcome of the piggybacked data: the bytes that follow, or the reason for a refusal.
    pub piggyback: Option<Result<u32, Refusal>>,
}

/// A part of an extent of the target, usable from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The buckets granted.
    pub run: Run,
    /// The key.
    pub key: u64,
    /// True if the asker may write to it.
    pub writable: bool,
}

/// A stretch of an extent of the asker, to which a pull is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PullDestination {
    /// The key.
    pub key: u64,
    /// The address.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
}

impl EngineMessage {
    /// The most bytes of a message without its data.
    pub const MAX_BYTES: usize = 64 + MAX_LIST * (16 + 32);

    /// The most bytes of a message that carries a chunk, without the chunk.
    pub(crate) const CHUNK_BYTES: usize = 64;

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.put(out);
    }

    /// Decodes a message. Returns it with the data that follows it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<(EngineMessage, &[u8]), Malformed> {
        let mut data = bytes;
        let message = EngineMessage::take(&mut data)?;
        if data.len() as u64 != message.data() {
            return Err(Malformed("data of another length than announced"));
        }
        Ok((message, data))
    }

    /// Turns an answer with data into a refusal: the data is not to be had.
    pub fn refuse(&mut self, why: Refusal) {
        match self {
            EngineMessage::Fetched { refused, len, .. } => {
                *refused = Some(why);
                *len = 0;
            }
            EngineMessage::Granted(granted) => granted.piggyback = Some(Err(why)),
            _ => {}
        }
    }

    /// Returns the receiver's region and address that the data behind the message goes to, or
    /// `None` for a message without such data.
    pub fn goes_to(&self) -> Option<(RegionNumber, u64)> {
        match self {
            EngineMessage::Put { region, to, .. } => Some((*region, *to)),
            EngineMessage::Move(Move {
                write: true,
                region,
                piggyback: Some(piggyback),
                ..
            }) => Some((*region, piggyback.addr)),
            _ => None,
        }
    }

    /// Returns the number of bytes that follow the message.
    pub fn data(&self) -> u64 {
        match self {
            // The data of a piggybacked put; a piggybacked get has none yet.
            EngineMessage::Move(Move {
                write: true,
                piggyback: Some(piggyback),
                ..
            }) => u64::from(piggyback.len),
            EngineMessage::Granted(Granted {
                piggyback: Some(Ok(len)),
                ..
            })
            | EngineMessage::Put { len, .. }
            | EngineMessage::Fetched { len, .. } => u64::from(*len),
            _ => 0,
        }
    }
}

/// Implements the encoding: a byte for each kind of message, and its fields.
macro_rules! messages {
    ($($kind:literal $variant:ident { $($field:ident),* })*) => {
        impl Fixed for EngineMessage {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    EngineMessage::Move(wanted) => {
                        to.push(MOVE);
                        wanted.put(to);
                    }
                    EngineMessage::Granted(granted) => {
                        to.push(GRANTED);
                        granted.put(to);
                    }
                    $(EngineMessage::$variant { $($field),* } => {
                        to.push($kind);
                        $($field.put(to);)*
                    })*
                }
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(match u8::take(from)? {
                    MOVE => EngineMessage::Move(Fixed::take(from)?),
                    GRANTED => EngineMessage::Granted(Fixed::take(from)?),
                    $($kind => {
                        $(let $field = Fixed::take(from)?;)*
                        EngineMessage::$variant { $($field),* }
                    })*
                    _ => return Err(Malformed("an unknown kind")),
                })
            }
        }
    };
}

const MOVE: u8 = 1;
const GRANTED: u8 = 2;

messages! {
    3 Release { unpin, runs }
    4 Put { id, region, to, len }
    5 Stored { id, refused }
    6 Get { id, region, from, len }
    7 Fetched { id, refused, len, room }
    8 Pull { id, region, from, to }
    9 Pulled { id, refused, registered }
    10 Recall { count }
    11 Revoke { id, run }
    12 Revoked { id, runs }
    13 Ahead { region, from, len }
}

fixed! {
    RegionNumber { 0 }
    Piggyback { addr, len }
    Grant { run, key, writable }
    PullDestination { key, addr, len }
}

impl Fixed for Move {
    fn put(&self, to: &mut Vec<u8>) {
        let flags = [self.write, self.hold, self.piggyback.is_some()].map(u8::from);
        (
            self.id,
            self.region,
            flags[0] | flags[1] << 1 | flags[2] << 2,
        )
            .put(to);
        self.borrow.put(to);
        self.releases.put(to);
        self.needs.put(to);
        if let Some(piggyback) = &self.piggyback {
            piggyback.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let (id, region, flags): (_, _, u8) = Fixed::take(from)?;
        if flags > 7 {
            return Err(Malformed("a move with unknown flags"));
        }
        Ok(Move {
            id,
            region,
            write: flags & 1 != 0,
            hold: flags & 2 != 0,
            borrow: Fixed::take(from)?,
            releases: Fixed::take(from)?,
            needs: Fixed::take(from)?,
            piggyback: (flags & 4 != 0).then(|| Fixed::take(from)).transpose()?,
        })
    }
}

impl Fixed for Granted {
    fn put(&self, to: &mut Vec<u8>) {
        (self.id, self.last, self.lent).put(to);
        self.grants.put(to);
        self.refused.put(to);
        match self.piggyback {
            None => to.push(0),
            Some(Ok(len)) => (1_u8, len).put(to),
            Some(Err(why)) => (2_u8, why).put(to),
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let (id, last, lent, grants, refused) = Fixed::take(from)?;
        Ok(Granted {
            id,
            last,
            lent,
            grants,
            refused,
            piggyback: match u8::take(from)? {
                0 => None,
                1 => Some(Ok(Fixed::take(from)?)),
                2 => Some(Err(Fixed::take(from)?)),
                _ => return Err(Malformed("an unknown outcome of a piggyback")),
            },
        })
    }
}

impl Fixed for Need {
    fn put(&self, to: &mut Vec<u8>) {
        (self.run, self.preferred).put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let (run, preferred): (Run, Run) = Fixed::take(from)?;
        if preferred.contains(run) {
            Ok(Need { run, preferred })
        } else {
            Err(Malformed("a move that welcomes less than it needs"))
        }
    }
}

impl Fixed for Run {
    fn put(&self, to: &mut Vec<u8>) {
        (self.first, self.count).put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let (first, count) = Fixed::take(from)?;
        let run = Run { first, count };
        if run.is_sane() {
            Ok(run)
        } else {
            Err(Malformed("a run of buckets that do not exist"))
        }
    }
}

impl Code for Refusal {
    fn code(self) -> u8 {
        self as u8
    }

    fn of(code: u8) -> Result<Self, Malformed> {
        [
            Self::Limit,
            Self::NotMapped,
            Self::ReadOnly,
            Self::Exhausted,
            Self::NotLent,
        ]
        .into_iter()
        .find(|refusal| *refusal as u8 == code)
        .ok_or(Malformed("an unknown refusal"))
    }
}

impl Fixed for Refusal {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(self.code());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Self::of(u8::take(from)?)
    }
}
