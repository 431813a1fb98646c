//! Sections of arrays: runs of elements at equal distances, and groups of such runs. They are the
//! strided descriptor of ARMCI (Nieplocha and Carpenter 1999, §3.1).

use std::ops::Range;

use crate::{Error, Result};

/// One level of repetition in a [`Section`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Level {
    /// The number of repetitions.
    pub count: usize,
    /// The elements from the start of one repetition to the start of the next.
    pub stride: usize,
}

/// A selection of elements of memory, in order: a run of neighbours, repeated by levels. Each level
/// repeats everything within it.
///
/// The first level repeats the run, the next level repeats the result, and so on. So the elements
/// come in the order of an array whose last axis is innermost. A section names no memory;
/// [`Symmetric::put_section`](crate::Symmetric::put_section) takes one section for each side.
///
/// ```
/// # fn main() -> hydrant::Result<()> {
/// use hydrant::{Level, Section};
///
/// // Rows 2 to 9, columns 3 to 6 of 20 rows with 10 columns.
/// let block = Section::of(&[20, 10], &[2..10, 3..7])?;
/// let rows = Level { count: 8, stride: 10 };
/// assert_eq!(block, Section::new(23, 4, &[rows])?);
/// assert_eq!(block.len(), 32);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Section {
    start: usize,
    len: usize,
    span: usize,
    /// The fewest possible levels, innermost first. A run is a level with stride one. No level
    /// means one element.
    levels: [Level; Section::MOST_LEVELS + 1],
    depth: usize,
}

const UNUSED: Level = Level {
    count: 1,
    stride: 0,
};

impl Section {
    /// The most levels of a section.
    pub const MOST_LEVELS: usize = 8;

    /// Makes a section of the `run` elements from `start` on, repeated by each level, innermost
    /// first.
    ///
    /// # Errors
    /// [`Error::SectionLevels`] for more than [`MOST_LEVELS`](Self::MOST_LEVELS) levels,
    /// [`Error::SectionOverflow`] if the elements reach further than any memory.
    pub fn new(start: usize, run: usize, levels: &[Level]) -> Result<Self> {
        if levels.len() > Self::MOST_LEVELS {
            return Err(Error::SectionLevels {
                levels: levels.len(),
                limit: Self::MOST_LEVELS,
            });
        }
        let mut section = Self {
            start,
            len: 1,
            span: 1,
            levels: [UNUSED; Self::MOST_LEVELS + 1],
            depth: 0,
        };
        if run == 0 || levels.iter().any(|level| level.count == 0) {
            (section.len, section.span) = (0, 0);
            return Ok(section);
        }
        section.repeat(Level {
            count: run,
            stride: 1,
        })?;
        levels.iter().try_for_each(|level| section.repeat(*level))?;
        Ok(section)
    }

    /// Repeats all elements so far. A level that continues where the one within it ends is merged
    /// into that one.
    fn repeat(&mut self, Level { count, stride }: Level) -> Result<()> {
        let overflow = || Error::SectionOverflow { count, stride };
        let further = stride.checked_mul(count - 1).ok_or_else(overflow)?;
        self.span = self.span.checked_add(further).ok_or_else(overflow)?;
        self.start.checked_add(self.span).ok_or_else(overflow)?;
        self.len = self.len.checked_mul(count).ok_or_else(overflow)?;
        if count == 1 {
            return Ok(());
        }
        let inmost = self.depth.checked_sub(1);
        match inmost.map(|inmost| &mut self.levels[inmost]) {
            Some(within) if within.count.checked_mul(within.stride) == Some(stride) => {
                within.count *= count;
            }
            _ => {
                self.levels[self.depth] = Level { count, stride };
                self.depth += 1;
            }
        }
        Ok(())
    }

    /// Makes a section of the `run` elements from `start` on.
    ///
    /// # Errors
    /// [`Error::SectionOverflow`].
    pub fn run(start: usize, run: usize) -> Result<Self> {
        Self::new(start, run, &[])
    }

    /// Makes a section of a part of an array, with one range for each axis. Elements of the last
    /// axis are neighbours.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`] if there is not one range for each axis.
    /// - [`Error::OutOfBounds`] if a range leaves its axis.
    /// - [`Error::SectionLevels`] for more than nine axes.
    /// - [`Error::SectionOverflow`] if the array is larger than any memory.
    pub fn of(shape: &[usize], ranges: &[Range<usize>]) -> Result<Self> {
        if shape.len() != ranges.len() {
            return Err(Error::LengthMismatch {
                what: "axes of the array against ranges",
                left: shape.len(),
                right: ranges.len(),
            });
        }
        let mut levels = Vec::with_capacity(shape.len());
        let (mut start, mut stride) = (0_usize, 1_usize);
        for (extent, range) in shape.iter().copied().zip(ranges).rev() {
            let count = (range.end.checked_sub(range.start)).unwrap_or(usize::MAX);
            crate::memory::check_range(range.start, count, extent)?;
            let overflow = || Error::SectionOverflow {
                count: extent,
                stride,
            };
            let before = range.start.checked_mul(stride).ok_or_else(overflow)?;
            start = start.checked_add(before).ok_or_else(overflow)?;
            levels.push(Level { count, stride });
            stride = stride.checked_mul(extent).ok_or_else(overflow)?;
        }
        match levels.split_first() {
            None => Self::run(0, 1),
            // With an empty range, the starts of other ranges may lie outside the array.
            _ if levels.iter().any(|level| level.count == 0) => Self::run(0, 0),
            Some((run, levels)) => Self::new(start, run.count, levels),
        }
    }

    /// Returns the section moved forward by so many elements.
    ///
    /// # Errors
    /// [`Error::SectionOverflow`].
    pub fn offset(&self, elements: usize) -> Result<Self> {
        let start = self.start.checked_add(elements);
        let start = start.filter(|start| start.checked_add(self.span).is_some());
        let start = start.ok_or(Error::SectionOverflow {
            count: 1,
            stride: elements,
        })?;
        Ok(Self { start, ..*self })
    }

    /// Returns the index of the first element.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of elements of memory from the first to the last, both included.
    pub fn span(&self) -> usize {
        self.span
    }

    /// Returns the levels, innermost first, with that of the run.
    pub(super) fn levels(&self) -> &[Level] {
        &self.levels[..self.depth]
    }

    /// Returns the number of elements in a run.
    #[inline]
    pub(super) fn run_len(&self) -> usize {
        match self.levels() {
            [run, ..] if run.stride == 1 => run.count,
            _ => 1,
        }
    }

    /// Returns the start of each run, in order.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> + use<> {
        let (mut next, levels) = (self.start, self.levels);
        let run = self.run_len();
        let outer = usize::from(run > 1)..self.depth;
        let mut turns = [0; Self::MOST_LEVELS + 1];
        (0..self.len / run).map(move |_| {
            let at = next;
            for (turn, level) in turns.iter_mut().zip(&levels[outer.clone()]) {
                *turn += 1;
                if *turn < level.count {
                    next += level.stride;
                    break;
                }
                *turn = 0;
                next -= level.stride * (level.count - 1);
            }
            at
        })
    }

    /// Returns whether an element occurs twice. The section lies within existing memory.
    #[inline]
    pub(super) fn overlaps_itself(&self) -> bool {
        !is_apart(self.levels().iter()) && self.has_duplicates()
    }

    #[cold]
    fn has_duplicates(&self) -> bool {
        if self.len > self.span {
            return true;
        }
        let mut levels: Vec<&Level> = self.levels().iter().collect();
        levels.sort_unstable_by_key(|level| level.stride);
        // Levels that interleave may still have no element in common.
        !is_apart(levels.into_iter()) && {
            let mut starts: Vec<usize> = self.starts().collect();
            starts.sort_unstable();
            (starts.windows(2)).any(|pair| pair[1] - pair[0] < self.run_len())
        }
    }
}

/// Returns whether the repetitions of each level are disjoint.
#[inline]
fn is_apart<'a>(mut levels: impl Iterator<Item = &'a Level>) -> bool {
    let mut span = 1;
    levels.all(|level| {
        let apart = level.stride >= span;
        span += level.stride * (level.count - 1);
        apart
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn elements(section: &Section) -> Vec<usize> {
        (section.starts())
            .flat_map(|start| start..start + section.run_len())
            .collect()
    }

    proptest! {
        #[test]
        fn a_section_of_an_array_has_the_elements_of_its_ranges(
            axes in prop::collection::vec((1_usize..5, 0_usize..5, 0_usize..5), 0..9),
        ) {
            let shape: Vec<usize> = axes.iter().map(|(extent, ..)| *extent).collect();
            let ranges: Vec<_> = axes.iter().map(|(extent, a, b)| {
                let (a, b) = (a.min(extent), b.min(extent));
                *a.min(b)..*a.max(b)
            }).collect();
            let mut right = vec![0];
            for (extent, range) in shape.iter().zip(&ranges) {
                right = right.iter().flat_map(|outer| range.clone().map(move |at| outer * extent + at)).collect();
            }
            let section = Section::of(&shape, &ranges).expect("it is small");
            prop_assert_eq!(section.len(), right.len());
            prop_assert_eq!(elements(&section), right);
        }

        #[test]
        fn repeated_elements_are_detected(
            run in 0_usize..5,
            levels in prop::collection::vec((0_usize..4, 0_usize..12), 0..5),
        ) {
            let levels: Vec<Level> = levels.iter().map(|(count, stride)| Level { count: *count, stride: *stride }).collect();
            let section = Section::new(3, run, &levels).expect("it is small");
            let mut named = elements(&section);
            prop_assert_eq!(named.len(), section.len());
            let last = named.iter().max().map_or(0, |last| last + 1 - section.start());
            prop_assert_eq!(last, section.span());
            let all = named.len();
            named.sort_unstable();
            named.dedup();
            prop_assert_eq!(section.overlaps_itself(), named.len() < all);
        }
    }
}
