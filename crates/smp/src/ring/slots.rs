//! The memory of a ring.

use crate::sync::AtomicU64;

use super::MAX_ARGS;

/// A message: one cache line.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct RingSlot {
    /// Stored last; see [`super::header`].
    pub(super) header: AtomicU64,
    pub(super) args: [AtomicU64; MAX_ARGS],
}

/// The reader's progress. Alone on its line, because only the reader writes it.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Consumed {
    /// The number of finished messages.
    pub(super) slots: AtomicU64,
    /// The position in the byte ring behind the last finished payload.
    pub(super) payload: AtomicU64,
}

/// The memory of a ring: a mapping that two processes share, or the heap of a model checker.
pub(crate) trait Slots {
    /// Returns the slots. Their number is a power of two.
    fn slots(&self) -> &[RingSlot];
    /// Returns the reader's line.
    fn consumed(&self) -> &Consumed;
    /// Returns the bytes of the byte ring.
    fn payload_len(&self) -> usize;
    /// Copies into the byte ring. The range must be in bounds.
    fn write_payload(&self, offset: usize, data: &[u8]);
}
