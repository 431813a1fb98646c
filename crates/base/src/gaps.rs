//! The free ranges of a heap, allocated first fit.

use std::ops::Range;

/// The gaps of a heap, in order; none is empty, and no two touch.
///
/// ```
/// let mut gaps = hydrant_base::Gaps::new(0..100);
/// assert_eq!(gaps.take(10, |gap| gap.checked_next_multiple_of(8)), Some(0));
/// assert_eq!(gaps.largest(), 90);
/// ```
#[derive(Debug)]
pub struct Gaps(Vec<Range<usize>>);

impl Gaps {
    /// A heap of which all is free.
    pub fn new(all: Range<usize>) -> Self {
        Self(if all.is_empty() { vec![] } else { vec![all] })
    }

    /// Takes `len` units, at least one, from the first gap with room. `start` returns the first
    /// possible start of an allocation at or behind the start of a gap.
    pub fn take(&mut self, len: usize, start: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let (number, taken) = self.0.iter().enumerate().find_map(|(number, gap)| {
            let start = start(gap.start)?;
            let taken = start..start.checked_add(len)?;
            (taken.end <= gap.end).then_some((number, taken))
        })?;
        let gap = self.0[number].clone();
        let rest = [gap.start..taken.start, taken.end..gap.end];
        let rest = rest.into_iter().filter(|rest| !rest.is_empty());
        self.0.splice(number..=number, rest);
        Some(taken.start)
    }

    /// Gives back an allocation, or a part of one.
    pub fn give(&mut self, start: usize, len: usize) {
        let end = start + len;
        let touched = self.0.partition_point(|gap| gap.end < start)
            ..self.0.partition_point(|gap| gap.start <= end);
        let joined = (self.0[touched.clone()].iter()).fold(start..end, |joined, gap| {
            joined.start.min(gap.start)..joined.end.max(gap.end)
        });
        self.0.splice(touched, [joined]);
    }

    /// Returns the units of the largest gap.
    pub fn largest(&self) -> usize {
        self.0.iter().map(Range::len).max().unwrap_or(0)
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
            steps in prop::collection::vec((any::<bool>(), 1_usize..40, 0_u32..5), 1..200)
        ) {
            const ALL: Range<usize> = 7..300;
            let mut gaps = Gaps::new(ALL);
            let mut held: Vec<Range<usize>> = Vec::new();
            for (take, len, align) in steps {
                if take {
                    let aligned = |gap: usize| gap.checked_next_multiple_of(1 << align);
                    let is_free = |start: usize| {
                        start + len <= ALL.end
                            && held.iter().all(|it| it.end <= start || start + len <= it.start)
                    };
                    let first = ALL.filter(|start| start % (1 << align) == 0).find(|it| is_free(*it));
                    let start = gaps.take(len, aligned);
                    prop_assert_eq!(start, first);
                    held.extend(start.map(|start| start..start + len));
                } else if !held.is_empty() {
                    let range = held.swap_remove(len % held.len());
                    gaps.give(range.start, range.len());
                }
            }
            held.into_iter().for_each(|range| gaps.give(range.start, range.len()));
            prop_assert_eq!(gaps.0, [ALL]);
        }
    }
}
