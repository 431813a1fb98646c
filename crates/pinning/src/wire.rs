//! The messages between engines, and their encoding as bytes.
//!
//! The encoding is little-endian, with a byte for the kind first. A peer's bytes are never trusted:
//! the decoder checks every length against the bytes that are there, and no byte may be left over.

use crate::{Refusal, Run};

/// The memory that a peer's address is part of: its segment, one buffer that it exposed, or its
/// whole address space. The target's driver chooses the number, and never gives one number to two
/// buffers. So an access to a buffer that has gone never reaches the next buffer at its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Region(pub u64);

/// A message from one rank's engine to another's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
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
        region: Region,
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
        region: Region,
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
        region: Region,
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
        region: Region,
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
    pub region: Region,
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

/// The most runs in a list of a message: as many as a payload of a few kilobytes holds.
pub const MAX_LIST: usize = 32;

/// The reason why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

mod kind {
    pub(super) const MOVE: u8 = 1;
    pub(super) const GRANTED: u8 = 2;
    pub(super) const RELEASE: u8 = 3;
    pub(super) const PUT: u8 = 4;
    pub(super) const STORED: u8 = 5;
    pub(super) const GET: u8 = 6;
    pub(super) const FETCHED: u8 = 7;
    pub(super) const PULL: u8 = 8;
    pub(super) const PULLED: u8 = 9;
    pub(super) const RECALL: u8 = 10;
    pub(super) const REVOKE: u8 = 11;
    pub(super) const REVOKED: u8 = 12;
    pub(super) const AHEAD: u8 = 13;
}

/// The code for no refusal.
const FINE: u8 = 0xff;

impl Message {
    /// The most bytes of a message without its data.
    pub const MAX_BYTES: usize = 64 + MAX_LIST * (16 + 32);

    /// The most bytes of a message that carries a chunk, without the chunk.
    pub(crate) const CHUNK_BYTES: usize = 64;

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer(out);
        match self {
            Message::Move(m) => {
                out.byte(kind::MOVE);
                out.word(m.id);
                out.word(m.region.0);
                out.byte(
                    u8::from(m.write)
                        | u8::from(m.hold) << 1
                        | u8::from(m.piggyback.is_some()) << 2,
                );
                out.word(m.borrow);
                out.list(&m.releases, Writer::run);
                out.list(&m.needs, |out, need| {
                    out.run(&need.run);
                    out.run(&need.preferred);
                });
                if let Some(piggyback) = m.piggyback {
                    out.word(piggyback.addr);
                    out.half(piggyback.len);
                }
            }
            Message::Granted(g) => {
                out.byte(kind::GRANTED);
                out.word(g.id);
                out.byte(u8::from(g.last));
                out.word(g.lent);
                out.list(&g.grants, |out, grant| {
                    out.run(&grant.run);
                    out.word(grant.key);
                    out.byte(u8::from(grant.writable));
                });
                out.list(&g.refused, |out, (run, why)| {
                    out.run(run);
                    out.byte(*why as u8);
                });
                match g.piggyback {
                    None => out.byte(0),
                    Some(Ok(len)) => {
                        out.byte(1);
                        out.half(len);
                    }
                    Some(Err(why)) => {
                        out.byte(2);
                        out.byte(why as u8);
                    }
                }
            }
            Message::Release { runs, unpin } => {
                out.byte(kind::RELEASE);
                out.byte(u8::from(*unpin));
                out.list(runs, Writer::run);
            }
            Message::Put {
                id,
                region,
                to,
                len,
            } => out.chunk(kind::PUT, *id, *region, *to, *len),
            Message::Get {
                id,
                region,
                from,
                len,
            } => out.chunk(kind::GET, *id, *region, *from, *len),
            Message::Stored { id, refused } => out.outcome(kind::STORED, *id, *refused),
            Message::Pulled {
                id,
                refused,
                registered,
            } => {
                out.outcome(kind::PULLED, *id, *refused);
                out.byte(u8::from(*registered));
            }
            Message::Fetched {
                id,
                refused,
                len,
                room,
            } => {
                out.outcome(kind::FETCHED, *id, *refused);
                out.half(*len);
                out.byte(*room);
            }
            Message::Ahead { region, from, len } => {
                out.byte(kind::AHEAD);
                out.word(region.0);
                out.word(*from);
                out.word(*len);
            }
            Message::Pull {
                id,
                region,
                from,
                to,
            } => {
                out.byte(kind::PULL);
                out.word(*id);
                out.word(region.0);
                out.word(*from);
                out.list(to, |out, place| {
                    for word in [place.key, place.addr, place.len] {
                        out.word(word);
                    }
                });
            }
            Message::Recall { count } => {
                out.byte(kind::RECALL);
                out.word(*count);
            }
            Message::Revoke { id, run } => {
                out.byte(kind::REVOKE);
                out.word(*id);
                out.run(run);
            }
            Message::Revoked { id, runs } => {
                out.byte(kind::REVOKED);
                out.word(*id);
                out.list(runs, Writer::run);
            }
        }
    }

    /// Decodes a message. Returns it with the data that follows it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<(Message, &[u8]), Malformed> {
        let mut from = Reader(bytes);
        let message = match from.byte()? {
            kind::MOVE => {
                let id = from.word()?;
                let region = from.region()?;
                let flags = from.byte()?;
                if flags > 7 {
                    return Err(Malformed("a move with unknown flags"));
                }
                let borrow = from.word()?;
                let releases = from.list(Reader::run)?;
                let needs = from.list(|from| {
                    let (run, preferred) = (from.run()?, from.run()?);
                    if !preferred.contains(run) {
                        return Err(Malformed("a move that welcomes less than it needs"));
                    }
                    Ok(Need { run, preferred })
                })?;
                let piggyback = match flags & 4 {
                    0 => None,
                    _ => Some(Piggyback {
                        addr: from.word()?,
                        len: from.half()?,
                    }),
                };
                Message::Move(Move {
                    id,
                    region,
                    write: flags & 1 != 0,
                    hold: flags & 2 != 0,
                    borrow,
                    releases,
                    needs,
                    piggyback,
                })
            }
            kind::GRANTED => Message::Granted(Granted {
                id: from.word()?,
                last: from.flag()?,
                lent: from.word()?,
                grants: from.list(Reader::grant)?,
                refused: from.list(|from| Ok((from.run()?, from.refusal()?)))?,
                piggyback: match from.byte()? {
                    0 => None,
                    1 => Some(Ok(from.half()?)),
                    2 => Some(Err(from.refusal()?)),
                    _ => return Err(Malformed("an unknown outcome of a piggyback")),
                },
            }),
            kind::RELEASE => Message::Release {
                unpin: from.flag()?,
                runs: from.list(Reader::run)?,
            },
            kind::PUT => {
                let (id, region, to, len) = from.chunk()?;
                Message::Put {
                    id,
                    region,
                    to,
                    len,
                }
            }
            kind::GET => {
                let (id, region, at, len) = from.chunk()?;
                Message::Get {
                    id,
                    region,
                    from: at,
                    len,
                }
            }
            kind::STORED => Message::Stored {
                id: from.word()?,
                refused: from.outcome()?,
            },
            kind::PULLED => Message::Pulled {
                id: from.word()?,
                refused: from.outcome()?,
                registered: from.flag()?,
            },
            kind::FETCHED => Message::Fetched {
                id: from.word()?,
                refused: from.outcome()?,
                len: from.half()?,
                room: from.byte()?,
            },
            kind::AHEAD => Message::Ahead {
                region: from.region()?,
                from: from.word()?,
                len: from.word()?,
            },
            kind::PULL => Message::Pull {
                id: from.word()?,
                region: from.region()?,
                from: from.word()?,
                to: from.list(|from| {
                    Ok(PullDestination {
                        key: from.word()?,
                        addr: from.word()?,
                        len: from.word()?,
                    })
                })?,
            },
            kind::RECALL => Message::Recall {
                count: from.word()?,
            },
            kind::REVOKE => Message::Revoke {
                id: from.word()?,
                run: from.run()?,
            },
            kind::REVOKED => Message::Revoked {
                id: from.word()?,
                runs: from.list(Reader::run)?,
            },
            _ => return Err(Malformed("an unknown kind")),
        };
        let data = from.0;
        if data.len() as u64 != message.data() {
            return Err(Malformed("data of another length than announced"));
        }
        Ok((message, data))
    }

    /// Turns an answer with data into a refusal: the data is not to be had.
    pub fn refuse(&mut self, why: Refusal) {
        match self {
            Message::Fetched { refused, len, .. } => {
                *refused = Some(why);
                *len = 0;
            }
            Message::Granted(granted) => granted.piggyback = Some(Err(why)),
            _ => {}
        }
    }

    /// Returns the receiver's region and address that the data behind the message goes to, or
    /// `None` for a message without such data.
    pub fn goes_to(&self) -> Option<(Region, u64)> {
        match self {
            Message::Put { region, to, .. } => Some((*region, *to)),
            Message::Move(Move {
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
            Message::Move(Move {
                write: true,
                piggyback: Some(piggyback),
                ..
            }) => u64::from(piggyback.len),
            Message::Granted(Granted {
                piggyback: Some(Ok(len)),
                ..
            })
            | Message::Put { len, .. }
            | Message::Fetched { len, .. } => u64::from(*len),
            _ => 0,
        }
    }
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn half(&mut self, half: u32) {
        self.0.extend_from_slice(&half.to_le_bytes());
    }

    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn run(&mut self, run: &Run) {
        self.word(run.first);
        self.word(run.count);
    }

    fn chunk(&mut self, kind: u8, id: u64, region: Region, addr: u64, len: u32) {
        self.byte(kind);
        self.word(id);
        self.word(region.0);
        self.word(addr);
        self.half(len);
    }

    fn outcome(&mut self, kind: u8, id: u64, refused: Option<Refusal>) {
        self.byte(kind);
        self.word(id);
        self.byte(refused.map_or(FINE, |why| why as u8));
    }

    fn list<T>(&mut self, list: &[T], write: impl Fn(&mut Self, &T)) {
        debug_assert!(list.len() <= MAX_LIST, "lists are cut before");
        self.byte(list.len() as u8);
        for item in list {
            write(self, item);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed("cut short"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither yes nor no")),
        }
    }

    fn half(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn word(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn run(&mut self) -> Result<Run, Malformed> {
        let run = Run {
            first: self.word()?,
            count: self.word()?,
        };
        if run.is_sane() {
            Ok(run)
        } else {
            Err(Malformed("a run of buckets that do not exist"))
        }
    }

    fn grant(&mut self) -> Result<Grant, Malformed> {
        Ok(Grant {
            run: self.run()?,
            key: self.word()?,
            writable: self.flag()?,
        })
    }

    fn refusal(&mut self) -> Result<Refusal, Malformed> {
        Refusal::from_wire(self.byte()?).ok_or(Malformed("an unknown refusal"))
    }

    fn outcome(&mut self) -> Result<Option<Refusal>, Malformed> {
        match self.byte()? {
            FINE => Ok(None),
            byte => (Refusal::from_wire(byte).map(Some)).ok_or(Malformed("an unknown refusal")),
        }
    }

    fn region(&mut self) -> Result<Region, Malformed> {
        self.word().map(Region)
    }

    fn chunk(&mut self) -> Result<(u64, Region, u64, u32), Malformed> {
        Ok((self.word()?, self.region()?, self.word()?, self.half()?))
    }

    fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = usize::from(self.byte()?);
        if len > MAX_LIST {
            return Err(Malformed("a list that is too long"));
        }
        (0..len).map(|_| read(self)).collect()
    }
}
