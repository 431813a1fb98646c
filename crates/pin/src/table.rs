//! The registered extents of a rank, which its NIC may access.
//!
//! A key is an index and a generation, so that a revoked or forged key matches no extent.
//!
//! The extents are spread over several rings with a lock each. The kernel pins under a lock of the
//! ring, and the data of other extents need not wait for that. Every access is checked and done
//! under the lock. [`PinnedTable::deregister`] takes the lock, too, so nothing is accessed after it
//! returned.

#![allow(unsafe_code)] // pins memory that the caller vouches for

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use hydrant_conduit::{Error, Key, Permission, Rank};
use hydrant_smp::upon::{CopyDirection, ExtentHandle};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    limits::{PinLimits, SHARDS},
    queue::PieceAnswer,
    ring::{MOST_BYTES, MOST_ENTRIES, Ring, Unpinnable},
    snapshot::Snapshot,
};

/// Most extents of a rank that the kernel's tables hold.
pub const MOST_EXTENTS: usize = SHARDS * MOST_ENTRIES;

/// The registered extents of a rank.
pub(crate) struct PinnedTable {
    /// This rank, for errors.
    rank: Rank,
    /// Most extents.
    extents: usize,
    /// The limits on pinned memory.
    limits: PinLimits,
    /// The extents, spread by index.
    shards: Vec<Mutex<Shard>>,
    /// The shard to try first for the next extent.
    next: AtomicUsize,
}

struct Shard {
    /// The ring whose table of registered buffers pins the extents.
    ring: Ring,
    entries: Vec<PinnedExtent>,
    /// Indices of free entries.
    free: Vec<u32>,
    /// Most entries.
    most: usize,
}

/// An entry: an extent, or room for one.
#[derive(Default)]
struct PinnedExtent {
    /// Odd while the extent is in force. Every change increments it.
    generation: u32,
    addr: usize,
    len: usize,
    writable: bool,
    /// The address that was pinned: the extent's, or that of its snapshot.
    pinned: usize,
    snapshot: Option<Snapshot>,
}

/// A part of an operation on an extent. The whole operation is checked for each part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The address at which the operation begins.
    pub(crate) offset: u64,
    /// The length of the operation.
    pub(crate) len: u64,
    /// The offset of the part in the operation.
    pub(crate) at: u64,
    /// The length of the part.
    pub(crate) bytes: usize,
}

/// The cause why an access was refused.
#[derive(Debug)]
pub(crate) enum AccessRefusal {
    Revoked,
    /// Carries the length of the extent.
    OutOfExtent(u64),
    /// The extent is read-only.
    BadAddress,
    /// The kernel failed to move the data.
    Broken(io::Error),
    /// The NIC's process has no descriptors left. Carries their limit.
    NoDescriptors(u64),
}

impl PinnedTable {
    /// # Errors
    /// [`Error::Unreachable`] where the system has no `io_uring`, or forbids it.
    pub(crate) fn new(rank: Rank, extents: usize, limits: PinLimits) -> Result<Self, Error> {
        let shards = limits.rings().min(extents.max(1));
        let extents = extents.clamp(1, shards * MOST_ENTRIES);
        let shards = (0..shards)
            .map(|number| {
                let most = (extents + number) / shards;
                Ok(Mutex::new(Shard {
                    ring: Ring::new(most)?,
                    entries: Vec::new(),
                    free: Vec::new(),
                    most,
                }))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            rank,
            extents,
            limits,
            shards,
            next: AtomicUsize::new(0),
        })
    }

    pub(crate) fn limits(&self) -> &PinLimits {
        &self.limits
    }

    fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number % self.shards.len()].lock()
    }

    fn shard_of(&self, handle: ExtentHandle) -> MutexGuard<'_, Shard> {
        self.shard(handle.index as usize)
    }

    /// Registers memory. Returns an error if the memory is not mapped.
    ///
    /// # Safety
    /// With [`Permission::ReadWrite`], the memory mapped now bears writes by users of the key until
    /// it is deregistered.
    pub(crate) unsafe fn register(
        &self,
        addr: usize,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        if len > MOST_BYTES {
            return Err(Error::Exhausted {
                what: "bytes in one extent",
                limit: MOST_BYTES as u64,
                remedy: "register it in parts",
            });
        }
        let first = self.next.fetch_add(1, Relaxed);
        for number in first..first + self.shards.len() {
            let mut shard = self.shard(number);
            let Some(index) = shard.free_entry() else {
                continue;
            };
            let placed = shard.pin(index, addr, len, permission);
            let (pinned, snapshot) = match placed {
                Ok(placed) => placed,
                Err(cause) => {
                    shard.free.push(index);
                    return Err(self.limits.registration_error(cause, self.rank, addr, len));
                }
            };
            let entry = &mut shard.entries[index as usize];
            *entry = PinnedExtent {
                generation: entry.generation.wrapping_add(1),
                addr,
                len,
                writable: permission == Permission::ReadWrite,
                pinned,
                snapshot,
            };
            let handle = ExtentHandle {
                index: index * self.shards.len() as u32 + (number % self.shards.len()) as u32,
                generation: entry.generation,
            };
            return Ok(Key(handle.word()));
        }
        Err(Error::Exhausted {
            what: "extents registered at once",
            limit: self.extents as u64,
            remedy: "raise HYDRANT_EXTENTS; the kernel's tables hold 65536 (16384 where memlock is below 64 MiB)",
        })
    }

    /// Revokes a key and unpins its memory.
    pub(crate) fn deregister(&self, key: Key) -> Result<(), Error> {
        let handle = ExtentHandle::from_word(key.0);
        let index = handle.index / self.shards.len() as u32;
        let mut shard = self.shard_of(handle);
        let Some(entry) = shard.find(index, handle) else {
            return Err(Error::Revoked {
                peer: self.rank,
                key: key.0,
            });
        };
        entry.generation = entry.generation.wrapping_add(1);
        let snapshot = entry.snapshot.take();
        if entry.len > 0 {
            shard.ring.unpin(index);
        }
        drop(snapshot);
        shard.free.push(index);
        Ok(())
    }

    /// Returns whether an access would be allowed now.
    pub(crate) fn check(
        &self,
        key: Key,
        way: CopyDirection,
        span: Span,
    ) -> Result<(), AccessRefusal> {
        let handle = ExtentHandle::from_word(key.0);
        let mut shard = self.shard_of(handle);
        let index = handle.index / self.shards.len() as u32;
        (shard.find(index, handle).ok_or(AccessRefusal::Revoked)?)
            .pinned_address(way, span)
            .map(drop)
    }

    /// Moves a part of an extent into a pipe that has room for it. A refused access moves nothing.
    pub(crate) fn push(&self, key: Key, span: Span, pipe: &OwnedFd) -> Result<(), AccessRefusal> {
        self.access(key, CopyDirection::Out, span, pipe)
    }

    /// Moves a part of an extent out of a pipe. A refused access leaves the data in the pipe.
    pub(crate) fn pull(&self, key: Key, span: Span, pipe: &OwnedFd) -> Result<(), AccessRefusal> {
        self.access(key, CopyDirection::In, span, pipe)
    }

    /// Moves a part of an extent. `way` is seen from the extent's NIC: out of the extent, or into
    /// it.
    fn access(
        &self,
        key: Key,
        way: CopyDirection,
        span: Span,
        pipe: &OwnedFd,
    ) -> Result<(), AccessRefusal> {
        let handle = ExtentHandle::from_word(key.0);
        let mut shard = self.shard_of(handle);
        let index = handle.index / self.shards.len() as u32;
        let entry = shard.find(index, handle).ok_or(AccessRefusal::Revoked)?;
        let place = entry.pinned_address(way, span)?;
        let ring = &mut shard.ring;
        match way {
            CopyDirection::Out => ring.push(pipe, index, place, span.bytes),
            // SAFETY: the extent is in force and writable. Its owner vouched at registration that
            // the memory bears writes.
            CopyDirection::In => unsafe { ring.pull(pipe, index, place, span.bytes) },
        }
        .map_err(AccessRefusal::Broken)
    }
}

impl Shard {
    /// Returns the index of a free entry.
    fn free_entry(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        let index = self.entries.len();
        (index < self.most).then(|| {
            self.entries.push(PinnedExtent::default());
            index as u32
        })
    }

    /// Pins memory, or a snapshot of it. Returns the pinned address.
    fn pin(
        &self,
        index: u32,
        addr: usize,
        len: usize,
        permission: Permission,
    ) -> Result<(usize, Option<Snapshot>), Unpinnable> {
        if len == 0 {
            return Ok((addr, None));
        }
        match self.ring.pin(index, addr, len) {
            Ok(()) => Ok((addr, None)),
            // The kernel pins memory for writing only.
            Err(Unpinnable::Address) if permission == Permission::Read => {
                let snapshot = Snapshot::take(addr, len)?;
                self.ring.pin(index, snapshot.addr(), len)?;
                Ok((snapshot.addr(), Some(snapshot)))
            }
            Err(cause) => Err(cause),
        }
    }

    fn find(&mut self, index: u32, handle: ExtentHandle) -> Option<&mut PinnedExtent> {
        let entry = self.entries.get_mut(index as usize)?;
        (handle.generation % 2 == 1 && entry.generation == handle.generation).then_some(entry)
    }
}

impl PinnedExtent {
    /// Checks an access to a part. Returns the pinned address at which the part begins.
    fn pinned_address(&self, way: CopyDirection, span: Span) -> Result<usize, AccessRefusal> {
        let (start, extent) = (self.addr as u64, self.len as u64);
        let offset = (span.offset.checked_sub(start))
            .filter(|offset| span.len <= extent && *offset <= extent - span.len);
        let Some(offset) = offset else {
            return Err(AccessRefusal::OutOfExtent(extent));
        };
        if way == CopyDirection::In && !self.writable {
            return Err(AccessRefusal::BadAddress);
        }
        debug_assert!(span.at + span.bytes as u64 <= span.len);
        Ok(self.pinned + (offset + span.at) as usize)
    }
}

impl Span {
    /// Returns the span of a whole operation.
    pub(crate) fn whole(offset: u64, len: usize) -> Self {
        Self {
            offset,
            len: len as u64,
            at: 0,
            bytes: len,
        }
    }

    /// Returns the span of a part of the operation.
    pub(crate) fn part(self, at: usize, bytes: usize) -> Self {
        Self {
            at: at as u64,
            bytes,
            ..self
        }
    }
}

impl AccessRefusal {
    /// Returns the refusal as an error about memory of `owner`.
    pub(crate) fn error(self, owner: Rank, key: Key, offset: u64, len: u64) -> Error {
        match self {
            Self::Revoked => Error::Revoked {
                peer: owner,
                key: key.0,
            },
            Self::OutOfExtent(extent) => Error::OutOfExtent {
                peer: owner,
                offset,
                len,
                extent,
            },
            Self::BadAddress => Error::BadAddress {
                peer: owner,
                addr: offset,
                len,
            },
            Self::Broken(cause) => Error::system("moving data through io_uring", cause),
            Self::NoDescriptors(limit) => Error::no_descriptors(
                "descriptors of open files in the process of the rank whose memory is accessed",
                limit,
            ),
        }
    }

    /// Returns the refusal as the NIC's answer to the initiator.
    pub(crate) fn answer(&self) -> PieceAnswer {
        match self {
            Self::Revoked => PieceAnswer::Revoked,
            Self::OutOfExtent(extent) => PieceAnswer::OutOfExtent(*extent),
            Self::BadAddress => PieceAnswer::BadAddress,
            Self::Broken(_) => PieceAnswer::Broken,
            Self::NoDescriptors(limit) => PieceAnswer::NoDescriptors(*limit),
        }
    }
}

impl From<PieceAnswer> for Result<(), AccessRefusal> {
    fn from(answer: PieceAnswer) -> Self {
        Err(match answer {
            PieceAnswer::Done => return Ok(()),
            PieceAnswer::Revoked => AccessRefusal::Revoked,
            PieceAnswer::OutOfExtent(extent) => AccessRefusal::OutOfExtent(extent),
            PieceAnswer::BadAddress => AccessRefusal::BadAddress,
            PieceAnswer::NoDescriptors(limit) => AccessRefusal::NoDescriptors(limit),
            PieceAnswer::Broken => AccessRefusal::Broken(io::Error::other("the peer's NIC failed")),
        })
    }
}
