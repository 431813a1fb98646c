//! The memory of a ring.

use crate::sync::AtomicU64;

use super::MAX_ARGS;

/// A message: one cache line.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Slot {
    /// Stored last; see [`super::header`].
    pub(super) header: AtomicU64,
    pub(super) args: [AtomicU64; MAX_ARGS],
}

/// How far the reader came. Alone on its line: only the reader writes it.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Consumed {
    /// Messages taken and finished with.
    pub(super) slots: AtomicU64,
    /// Position in the byte ring behind the last payload finished with.
    pub(super) payload: AtomicU64,
}

/// Where a ring's memory comes from: a mapping that two processes share, or the heap of a
/// model checker.
pub(crate) trait Slots {
    /// A power of two of them.
    fn slots(&self) -> &[Slot];
    /// The reader's line.
    fn consumed(&self) -> &Consumed;
    /// Bytes in the byte ring.
    fn payload_len(&self) -> usize;
    /// Copies into the byte ring; in bounds.
    fn write_payload(&self, offset: usize, data: &[u8]);
}
