//! The allocator of the symmetric heap, and of the system area before it.
//!
//! Every rank makes the same allocations in the same order. So every rank's heap returns the same
//! offsets, and no messages are needed.

use hydrant_base::Gaps;

/// Allocations are whole pages, so that their memory can be given back to the system.
const PAGE: usize = 4096;

/// The gaps of a heap, and its use.
#[derive(Debug)]
pub(crate) struct SymmetricHeap {
    gaps: Gaps,
    used: usize,
    peak: usize,
}

impl SymmetricHeap {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            gaps: Gaps::new(0..len / PAGE * PAGE),
            used: 0,
            peak: 0,
        }
    }

    /// Returns the bytes that an allocation of `len` bytes takes, or `None` on overflow.
    pub(crate) fn footprint(len: usize, align: usize) -> Option<usize> {
        len.checked_next_multiple_of(align.max(PAGE))
    }

    /// Allocates `len` bytes (a [footprint](Self::footprint)), aligned to a power of two. Returns
    /// their offset.
    pub(crate) fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        let aligned = |gap: usize| gap.checked_next_multiple_of(align.max(PAGE));
        let start = self.gaps.take(len, aligned)?;
        self.used += len;
        self.peak = self.peak.max(self.used);
        Some(start)
    }

    /// Frees an allocation.
    pub(crate) fn give(&mut self, start: usize, len: usize) {
        self.gaps.give(start, len);
        self.used -= len;
    }

    /// Returns the bytes in use, now and at most.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.used, self.peak)
    }

    /// Returns the bytes of the largest gap.
    pub(crate) fn largest_gap(&self) -> usize {
        self.gaps.largest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_whole_pages_and_counted() {
        let mut heap = SymmetricHeap::new(8 * PAGE + 7);
        let len = SymmetricHeap::footprint(PAGE + 1, 1).unwrap();
        assert_eq!(heap.take(len, 1), Some(0));
        assert_eq!(heap.take(PAGE, 4 * PAGE), Some(4 * PAGE));
        heap.give(0, len);
        assert_eq!(heap.usage(), (PAGE, 3 * PAGE));
        assert_eq!(heap.largest_gap(), 4 * PAGE);
        assert_eq!(SymmetricHeap::footprint(usize::MAX, 1), None);
    }
}
