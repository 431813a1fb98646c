//! The messages of the protocol, to bytes and back.
//!
//! Little-endian, a byte for the kind first. What a peer sends is never trusted: every length
//! is checked against the bytes that are there, and nothing may be left over.

use crate::{Refusal, Run};

/// What a peer's address is part of: its segment, one buffer that it exposed, or its whole address
/// space. The driver of the target chose the number, never gives one number to two buffers, and
/// judges by it, so that what was meant for a buffer never reaches the next one at its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Region(pub u64);

/// A message from one rank's engine to another's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Attaches firehoses, or registers for one operation, and releases old ones (§3.2, 2).
    Move(Move),
    /// The answer to a move.
    Granted(Granted),
    /// Gives firehoses back. No answer.
    Release {
        /// As granted.
        runs: Vec<Run>,
        /// Whether to deregister at once.
        unpin: bool,
    },
    /// Data to be copied to its place.
    Put {
        /// Names the chunk to its sender.
        id: u64,
        /// The memory that the sender means.
        region: Region,
        /// Where it goes.
        to: u64,
        /// Bytes that follow the message.
        len: u32,
    },
    /// The answer to a put.
    Stored {
        /// The chunk.
        id: u64,
        /// Why not, if not.
        refused: Option<Refusal>,
    },
    /// Asks for a copy of data.
    Get {
        /// Names the chunk to its asker.
        id: u64,
        /// The memory that the asker means.
        region: Region,
        /// Where it lies.
        from: u64,
        /// Bytes.
        len: u32,
    },
    /// The answer to a get; the data follows the message.
    Fetched {
        /// The chunk.
        id: u64,
        /// Why not, if not.
        refused: Option<Refusal>,
        /// Bytes that follow.
        len: u32,
        /// How many buckets more can be registered there and nothing be given up for them: one more than
        /// the binary logarithm, rounded down; 0 if there are none.
        room: u8,
    },
    /// Says that the peer is going to be asked to write this memory to the asker's, which is being
    /// registered meanwhile: so that both sides are at once (Nieplocha 2002, figure 3). There is no answer.
    Ahead {
        /// The memory that the asker means.
        region: Region,
        /// Where the data lies.
        from: u64,
        /// Its bytes.
        len: u64,
    },
    /// Asks the peer to write to the asker's memory, where the NIC does not read.
    Pull {
        /// Names the piece to its asker.
        id: u64,
        /// The memory that the asker means.
        region: Region,
        /// Where the data lies.
        from: u64,
        /// Where it goes, extent after extent.
        to: Vec<Place>,
    },
    /// The data asked for has been written, or not.
    Pulled {
        /// The piece.
        id: u64,
        /// Why not, if not.
        refused: Option<Refusal>,
        /// Whether something was registered for it first.
        registered: bool,
    },
    /// Asks for borrowed firehoses back.
    Recall {
        /// How many.
        count: u64,
    },
    /// The memory is going: firehoses on it are to be given back.
    Revoke {
        /// Names the revocation to its owner.
        id: u64,
        /// Buckets.
        run: Run,
    },
    /// The answer to a revocation, when nothing uses the memory any more.
    Revoked {
        /// The revocation.
        id: u64,
        /// What is given back for it.
        runs: Vec<Run>,
    },
}

/// A request to register runs of buckets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Move {
    /// Names the move to its asker.
    pub id: u64,
    /// The memory that the asker means.
    pub region: Region,
    /// Whether data is to be written there.
    pub write: bool,
    /// Whether the target counts what it grants: it keeps it registered until released.
    pub hold: bool,
    /// Firehoses the asker would like to borrow beyond its own.
    pub borrow: u64,
    /// What the asker gives back.
    pub releases: Vec<Run>,
    /// What it needs.
    pub needs: Vec<Need>,
    /// Small data that rides along.
    pub piggyback: Option<Piggyback>,
}

/// Buckets that are needed, and the run around them that is preferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Needed.
    pub run: Run,
    /// Preferred, a superset.
    pub preferred: Run,
}

/// Small data on a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piggyback {
    /// Where it goes, or lies.
    pub addr: u64,
    /// Bytes; those of a put follow the move, those of a get the answer.
    pub len: u32,
}

/// What a move got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Granted {
    /// The move.
    pub id: u64,
    /// Whether this is all: a fragmented target answers in parts, and one that must register
    /// says of a ride first.
    pub last: bool,
    /// Firehoses lent.
    pub lent: u64,
    /// What is registered now.
    pub grants: Vec<Grant>,
    /// What is not, and why.
    pub refused: Vec<(Run, Refusal)>,
    /// How the ride went: bytes that follow, or why not.
    pub piggyback: Option<Result<u32, Refusal>>,
}

/// Part of an extent of the target, usable from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The buckets granted.
    pub run: Run,
    /// The key.
    pub key: u64,
    /// Whether it may be written.
    pub writable: bool,
}

/// A stretch of an extent of the asker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The key.
    pub key: u64,
    /// The address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// Most runs in a list of a message: what a payload of a few kilobytes holds.
pub const MAX_LIST: usize = 32;

/// Why bytes are no message.
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

/// No refusal.
const FINE: u8 = 0xff;

impl Message {
    /// Most bytes of a message without its data.
    pub const MAX_BYTES: usize = 64 + MAX_LIST * (16 + 32);

    /// Most bytes of a message that carries a chunk, without the chunk.
    pub(crate) const CHUNK_BYTES: usize = 64;

    /// Appends the message.
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

    /// Reads a message; what follows it is its data.
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
                    _ => return Err(Malformed("an unknown outcome of a ride")),
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
                    Ok(Place {
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

    /// Says instead that it cannot be: the data that was to follow is not to be had.
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

    /// The memory of the receiver's that the data which follows is for, and where in it the data
    /// goes; `None` for a message without such data.
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

    /// Bytes of data that follow the message.
    pub fn data(&self) -> u64 {
        match self {
            // The data of a riding put; a riding get has none yet.
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
