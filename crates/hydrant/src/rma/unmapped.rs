//! Memory of a peer that is not mapped here, and runs of it.

use hydrant_conduit::Remote;

use crate::{Rank, memory::Block, message::Calls, transfer::Transfer};

/// A run of a peer's memory and of a buffer here, by offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteRun {
    pub(super) there: usize,
    pub(super) here: usize,
    pub(super) len: usize,
}

/// Memory of a peer that is not mapped here.
#[derive(Clone, Copy)]
pub(super) struct Unmapped<'a> {
    pub(super) transfer: &'a Transfer,
    pub(super) calls: &'a Calls,
    pub(super) rank: Rank,
    /// Its start, as the network names it.
    pub(super) at: Remote,
    /// Its name, as the peer knows it.
    pub(super) name: MemoryName<'a>,
}

/// The name by which a peer knows memory.
#[derive(Clone, Copy)]
pub(super) enum MemoryName<'a> {
    Allocation(&'a Block),
    /// An exposed buffer, by its key.
    Exposed(u64),
}
