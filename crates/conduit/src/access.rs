//! One-sided operations: what is accessed, where, and how far that came.

use std::panic::Location;

use bytemuck::{Pod, Zeroable};

use crate::Rank;

/// One access to a peer's memory, without any part of its processors in it: what a work request
/// is to a NIC.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Whose memory it is about.
    pub peer: Rank,
    /// Where in that memory.
    pub remote: Remote,
    /// The own memory that is read by a put and written by a get or an atomic operation.
    pub local: Local,
    /// Bytes; with [`Operation::Atomic`] those of the word, 8.
    pub len: usize,
    /// What is done.
    pub operation: Operation,
    /// The calling thread has nothing else to do until the end. Where that helps, the conduit looks
    /// a moment whether it has come: [`Posted::Done`] or an error is the end then, which nothing
    /// else tells.
    pub waits: bool,
    /// Where the program asked for it, for who predicts what it asks for next. Conduits do not look.
    pub site: &'static Location<'static>,
}

impl Access {
    /// Writes `len` bytes of own memory, which are only read, to the peer's.
    #[inline]
    #[track_caller]
    pub fn put(peer: Rank, remote: Remote, local: Local, len: usize) -> Self {
        Self::new(peer, remote, local, len, Operation::Put)
    }

    /// Reads `len` bytes of the peer's memory into own.
    #[inline]
    #[track_caller]
    pub fn get(peer: Rank, remote: Remote, local: Local, len: usize) -> Self {
        Self::new(peer, remote, local, len, Operation::Get)
    }

    /// Changes a word of the peer and leaves what it was in `was`, which needs no registration.
    #[inline]
    #[track_caller]
    pub fn atomic(peer: Rank, word: Remote, operation: Atomic, was: *mut u64) -> Self {
        let local = Local::unregistered(was.cast());
        let operation = Operation::Atomic(operation);
        Self::new(peer, word, local, size_of::<u64>(), operation)
    }

    /// The same, for a thread that waits for the end; see [`waits`](Self::waits).
    #[inline]
    #[must_use]
    pub fn waiting(self) -> Self {
        Self {
            waits: true,
            ..self
        }
    }

    #[track_caller]
    fn new(peer: Rank, remote: Remote, local: Local, len: usize, operation: Operation) -> Self {
        Self {
            peer,
            remote,
            local,
            len,
            operation,
            waits: false,
            site: Location::caller(),
        }
    }
}

/// What an [`Access`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Writes own memory to the peer's.
    Put,
    /// Reads the peer's memory into own.
    Get,
    /// Changes an aligned 64-bit word of the peer, in memory that the peer registered for reading
    /// and writing. A word that is changed so is, unless [`Caps::atomics`](crate::Caps::atomics)
    /// says [`Everything`](crate::Atomicity::Everything), changed in no other way meanwhile: by
    /// its owner neither, who can do the same to itself.
    Atomic(Atomic),
}

/// What an atomic operation of the network does to a 64-bit word, in the owner's byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds to it; sums wrap.
    Add(u64),
    /// Sets it if it is what was expected.
    CompareSwap {
        /// What it is expected to be.
        expected: u64,
        /// What it is then.
        value: u64,
    },
}

/// A place in own memory.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// The first byte.
    pub addr: *mut u8,
    /// With [`Caps::registration`](crate::Caps::registration), the own extent that covers the
    /// bytes. Otherwise it is [`Key::ANY`] and not looked at.
    pub key: Key,
}

impl Local {
    /// Memory that needs no registration: see [`Key::ANY`].
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
    /// The segment that every rank owns from the start; offsets count from its first byte.
    pub const SEGMENT: Key = Key(0);
    /// The whole address space of the peer; offsets are addresses.
    pub const ANY: Key = Key(u64::MAX);
}

/// A place in the memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The extent.
    pub key: Key,
    /// Bytes from the start of the extent; the address at its owner with [`Key::ANY`] and on
    /// conduits with [`Caps::registration`](crate::Caps::registration), whose NICs count so.
    pub offset: u64,
}

/// What peers and the NIC may do with an extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Permission {
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

/// Names an operation that is not complete yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// How far a one-sided operation came when its call returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Posted {
    /// Remotely complete: the data is where it was to go.
    Done,
    /// Under way; [`Sink::complete`](crate::Sink::complete) will name the ticket. Until then the local memory is
    /// in use.
    Pending(Ticket),
}
