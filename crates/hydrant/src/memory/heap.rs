//! The allocator of the symmetric heap, and of the system area before it.
//!
//! Every rank makes the same allocations in the same order. So every rank's heap returns the same
//! offsets, and no messages are needed. First fit over a sorted list of gaps.

/// Allocations are whole pages, so that their memory can be given back to the system.
const PAGE: usize = 4096;

/// The gaps of a heap.
#[derive(Debug)]
pub(crate) struct SymmetricHeap {
    /// The gaps by offset; none is empty, and no two touch.
    gaps: Vec<(usize, usize)>,
    used: usize,
    peak: usize,
}

impl SymmetricHeap {
    pub(crate) fn new(len: usize) -> Self {
        let len = len / PAGE * PAGE;
        Self {
            gaps: if len == 0 { vec![] } else { vec![(0, len)] },
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
        let align = align.max(PAGE);
        let (number, start) = self.gaps.iter().enumerate().find_map(|(number, gap)| {
            let start = gap.0.checked_next_multiple_of(align)?;
            (start.checked_add(len)? <= gap.0 + gap.1).then_some((number, start))
        })?;
        let (gap, size) = self.gaps[number];
        let before = (gap, start - gap);
        let after = (start + len, gap + size - (start + len));
        let rest = [before, after].into_iter().filter(|(_, size)| *size > 0);
        self.gaps.splice(number..=number, rest);
        self.used += len;
        self.peak = self.peak.max(self.used);
        Some(start)
    }

    /// Frees an allocation.
    pub(crate) fn give(&mut self, start: usize, len: usize) {
        let number = self.gaps.partition_point(|gap| gap.0 < start);
        self.gaps.insert(number, (start, len));
        if number + 1 < self.gaps.len() && start + len == self.gaps[number + 1].0 {
            self.gaps[number].1 += self.gaps.remove(number + 1).1;
        }
        if number > 0 && self.gaps[number - 1].0 + self.gaps[number - 1].1 == start {
            self.gaps[number - 1].1 += self.gaps.remove(number).1;
        }
        self.used -= len;
    }

    /// Returns the bytes in use, now and at most.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.used, self.peak)
    }

    /// Returns the bytes of the largest gap.
    pub(crate) fn largest_gap(&self) -> usize {
        self.gaps.iter().map(|gap| gap.1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a list of the held ranges.
        #[test]
        fn allocations_never_overlap_and_all_can_be_freed(
            steps in prop::collection::vec((any::<bool>(), 1_usize..40_000, 0_u32..5), 1..200)
        ) {
            const LEN: usize = 64 * PAGE;
            let mut heap = SymmetricHeap::new(LEN);
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (take, len, align) in steps {
                if take {
                    let align = PAGE << align;
                    let len = SymmetricHeap::footprint(len, align).unwrap();
                    if let Some(start) = heap.take(len, align) {
                        prop_assert_eq!(start % align, 0);
                        prop_assert!(start + len <= LEN);
                        for (other, size) in &held {
                            prop_assert!(start + len <= *other || other + size <= start);
                        }
                        held.push((start, len));
                    }
                } else if !held.is_empty() {
                    let (start, len) = held.swap_remove(len % held.len());
                    heap.give(start, len);
                }
                prop_assert_eq!(heap.usage().0, held.iter().map(|place| place.1).sum::<usize>());
            }
            for (start, len) in held {
                heap.give(start, len);
            }
            prop_assert_eq!(heap.largest_gap(), LEN);
        }
    }
}
