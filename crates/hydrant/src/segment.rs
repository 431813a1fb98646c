//! The division of a rank's segment: the heap follows the system area.

/// The bytes at the start of each segment that Hydrant uses itself; a multiple of the huge page.
pub(crate) const SYSTEM: usize = 16 << 20;

/// The bytes of the system area that teams use for their collectives, from its start on.
pub(crate) const SCRATCH: usize = SYSTEM - LOCKS;

/// The bytes of the [locks](crate::memory::Locks) for accumulates, which follow.
pub(crate) const LOCKS: usize = 4096;
