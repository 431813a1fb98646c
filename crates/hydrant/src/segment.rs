//! How the segment of a rank is divided: what is behind the system area is the heap.

/// Bytes at the start of each segment that Hydrant keeps for itself. A multiple of the huge page.
pub(crate) const SYSTEM: usize = 16 << 20;

/// Bytes of it that teams use for their collectives, from its start on.
pub(crate) const SCRATCH: usize = SYSTEM - LOCKS;

/// Bytes of the [locks](crate::memory::Locks) of those who accumulate, which follow.
pub(crate) const LOCKS: usize = 4096;
