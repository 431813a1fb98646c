//! One-sided operations: their description, and their progress.

use std::panic::Location;

use bytemuck::{Pod, Zeroable};

use crate::Rank;

/// One access to a peer's memory, without any part of the peer's processors: the equivalent of a
/// NIC's work request.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The rank whose memory is accessed.
    pub peer: Rank,
    /// The remote memory.
    pub remote: Remote,
    /// The local memory that a put reads. A get or an atomic operation writes it.
    pub local: Local,
    /// Length in bytes. With [`AccessKind::Atomic`], the 8 bytes of the word.
    pub len: usize,
    /// The kind of access.
    pub kind: AccessKind,
    /// True if the calling thread has nothing else to do until the end. Where that helps, the
    /// conduit polls a moment for the end. [`Posted::Done`] or an error is then the end, and is not
    /// reported again.
    pub waits: bool,
    /// The place in the program that asked for the access, for predictors. Conduits ignore it.
    pub site: &'static Location<'static>,
}

impl Access {
    /// Describes a write of `len` bytes of local memory to the peer's. The local memory is only
    /// read.
    #[inline]
    #[track_caller]
    pub fn put(peer: Rank, remote: Remote, local: Local, len: usize) -> Self {
        Self::new(peer, remote, local, len, AccessKind::Put)
    }

    /// Describes a read of `len` bytes of the peer's memory into local memory.
    #[inline]
    #[track_caller]
    pub fn get(peer: Rank, remote: Remote, local: Local, len: usize) -> Self {
        Self::new(peer, remote, local, len, AccessKind::Get)
    }

    /// Describes a change of a peer's word. The old value goes to `was`, which needs no
    /// registration.
    #[inline]
    #[track_caller]
    pub fn atomic(peer: Rank, word: Remote, operation: Atomic, was: *mut u64) -> Self {
        let local = Local::unregistered(was.cast());
        let kind = AccessKind::Atomic(operation);
        Self::new(peer, word, local, size_of::<u64>(), kind)
    }

    /// Returns the same access, for a thread that waits for the end; see [`waits`](Self::waits).
    #[inline]
    #[must_use]
    pub fn waiting(self) -> Self {
        Self {
            waits: true,
            ..self
        }
    }

    #[track_caller]
    fn new(peer: Rank, remote: Remote, local: Local, len: usize, kind: AccessKind) -> Self {
        Self {
            peer,
            remote,
            local,
            len,
            kind,
            waits: false,
            site: Location::caller(),
        }
    }
}

/// The kind of an [`Access`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Writes local memory to the peer's.
    Put,
    /// Reads the peer's memory into local memory.
    Get,
    /// Changes an aligned 64-bit word of the peer, in memory that the peer registered for reading
    /// and writing. Unless [`Caps::atomics`](crate::Caps::atomics) is
    /// [`Everything`](crate::Atomicity::Everything), only such operations may change the word
    /// meanwhile. That binds its owner, too, which can post the operation to itself.
    Atomic(Atomic),
}

/// An atomic operation of the network on a 64-bit word, in the owner's byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds to the word. Sums wrap.
    Add(u64),
    /// Sets the word if it has the expected value.
    CompareSwap {
        /// The expected value.
        expected: u64,
        /// The new value.
        value: u64,
    },
}

/// Local memory of an access.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// The first byte.
    pub addr: *mut u8,
    /// With [`Caps::registration`](crate::Caps::registration), the key of the local extent that
    /// covers the bytes. Otherwise it is [`Key::ANY`] and ignored.
    pub key: Key,
}

impl Local {
    /// Names memory that needs no registration: see [`Key::ANY`].
    #[inline]
    pub fn unregistered(addr: *mut u8) -> Self {
        let key = Key::ANY;
        Self { addr, key }
    }
}

/// The name of an extent at its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Key(pub u64);

impl Key {
    /// The segment that every rank owns from the start. Offsets count from its first byte.
    pub const SEGMENT: Key = Key(0);
    /// The whole address space of the peer. Offsets are addresses.
    pub const ANY: Key = Key(u64::MAX);
}

/// Memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The extent.
    pub key: Key,
    /// Bytes from the start of the extent. With [`Key::ANY`], and on conduits with
    /// [`Caps::registration`](crate::Caps::registration), it is the address at the owner, as NICs
    /// count.
    pub offset: u64,
}

/// The permitted access of peers and the NIC to an extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Permission {
    /// Peers may read.
    Read,
    /// Peers may read and write.
    ReadWrite,
}

/// The name of an operation that is not complete yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// The progress of a one-sided operation when its call returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Posted {
    /// Remotely complete: the data is in the target's memory.
    Done,
    /// In flight. [`Sink::complete`](crate::Sink::complete) will name the ticket. Until then the
    /// local memory is in use.
    Pending(Ticket),
}
