//! How the segment of a rank is divided: what is behind the system area is the heap.

/// Bytes at the start of each segment that Hydrant keeps for itself: what teams use for
/// their collectives. A multiple of the huge page.
pub(crate) const SYSTEM: usize = 8 << 20;
