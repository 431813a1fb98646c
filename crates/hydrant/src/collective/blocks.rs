//! Blocks: where the elements of each member lie in a flat buffer.

use std::ops::Range;

use super::{elements::bytes_mut, team::Team};
use crate::{Error, Pod, Result, TeamRank};

/// Where the blocks of a team's members lie in a buffer: the length and the start of each, in elements.
///
/// A collective checks the blocks against the buffer. Blocks that do not fit are an error of that call, and
/// every member is told.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    counts: &'a [usize],
    displacements: Option<&'a [usize]>,
}

impl<'a> Blocks<'a> {
    /// Contiguous blocks from the start of the buffer, with the given counts of elements, in the order of
    /// members.
    pub fn packed(counts: &'a [usize]) -> Self {
        Self {
            counts,
            displacements: None,
        }
    }

    /// Blocks with the given counts of elements, each from the index of its displacement. The displacement
    /// of an empty block is ignored.
    pub fn at(counts: &'a [usize], displacements: &'a [usize]) -> Self {
        Self {
            counts,
            displacements: Some(displacements),
        }
    }

    /// Copies the counts and displacements.
    pub(super) fn keep(self) -> KeptBlocks {
        KeptBlocks {
            counts: self.counts.to_vec(),
            displacements: self.displacements.map(<[usize]>::to_vec),
        }
    }

    /// The range of each block in a buffer of `len` elements, one block for each of `members`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::BlockOutOfBounds`].
    pub(super) fn ranges(self, members: usize, len: usize) -> Result<Vec<Range<usize>>> {
        same_length("counts against members", self.counts.len(), members)?;
        if let Some(displacements) = self.displacements {
            same_length(
                "displacements against members",
                displacements.len(),
                members,
            )?;
        }
        let mut behind = 0;
        (self.counts.iter().enumerate())
            .map(|(member, count)| {
                let index = match self.displacements {
                    _ if *count == 0 => return Ok(0..0),
                    Some(displacements) => displacements[member],
                    None => behind,
                };
                match index.checked_add(*count).filter(|end| *end <= len) {
                    Some(end) => {
                        behind = end;
                        Ok(index..end)
                    }
                    None => Err(Error::BlockOutOfBounds {
                        block: TeamRank(member as u32),
                        index,
                        count: *count,
                        len,
                    }),
                }
            })
            .collect()
    }

    /// As [`ranges`](Self::ranges), for blocks that are written: they may not overlap.
    ///
    /// # Errors
    /// As there, and [`Error::BlocksOverlap`].
    pub(super) fn ranges_apart(self, members: usize, len: usize) -> Result<Vec<Range<usize>>> {
        let ranges = self.ranges(members, len)?;
        for pair in in_order(&ranges).windows(2) {
            let (one, other) = (pair[0], pair[1]);
            if ranges[other].start < ranges[one].end {
                return Err(Error::BlocksOverlap {
                    one: TeamRank(one as u32),
                    other: TeamRank(other as u32),
                    index: ranges[other].start,
                });
            }
        }
        Ok(ranges)
    }
}

/// Blocks that own their counts and displacements.
pub(super) struct KeptBlocks {
    counts: Vec<usize>,
    displacements: Option<Vec<usize>>,
}

impl KeptBlocks {
    pub(super) fn blocks(&self) -> Blocks<'_> {
        Blocks {
            counts: &self.counts,
            displacements: self.displacements.as_deref(),
        }
    }
}

/// Splits a buffer into blocks that do not overlap, in the order of members.
pub(super) fn places<'a, T: Pod>(
    mut data: &'a mut [T],
    ranges: &[Range<usize>],
) -> Vec<&'a mut [u8]> {
    let mut places: Vec<_> = ranges.iter().map(|_| &mut [][..]).collect();
    let mut cut = 0;
    for member in in_order(ranges) {
        let Range { start, end } = ranges[member];
        let (_, rest) = data.split_at_mut(start - cut);
        let (block, rest) = rest.split_at_mut(end - start);
        places[member] = bytes_mut(block);
        (data, cut) = (rest, end);
    }
    places
}

/// The members whose blocks are not empty, sorted by the start of the block.
fn in_order(ranges: &[Range<usize>]) -> Vec<usize> {
    let mut members: Vec<_> = (0..ranges.len())
        .filter(|member| !ranges[*member].is_empty())
        .collect();
    members.sort_unstable_by_key(|member| ranges[*member].start);
    members
}

/// The bytes of `count` elements, a number that another member sent.
pub(super) fn bytes_in<T>(count: u64) -> usize {
    usize::try_from(count).map_or(usize::MAX, |count| count.saturating_mul(size_of::<T>()))
}

/// # Errors
/// [`Error::LengthMismatch`].
#[inline]
pub(super) fn same_length(what: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right {
        Ok(())
    } else {
        Err(Error::LengthMismatch { what, left, right })
    }
}

/// Separates a prepared buffer from the outcome of preparing it. Members agree on the outcome before any of
/// them uses the buffer.
pub(super) fn apart<T>(ready: Result<Vec<T>>) -> (Vec<T>, Result<()>) {
    match ready {
        Ok(ready) => (ready, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    }
}

impl Team {
    /// Checks that member `from` sends as many elements as member `to` has room for.
    ///
    /// # Errors
    /// [`Error::CountMismatch`].
    pub(super) fn same_count(&self, from: usize, to: usize, sent: u64, wanted: u64) -> Result<()> {
        if sent == wanted {
            return Ok(());
        }
        Err(Error::CountMismatch {
            from: self.members[from],
            to: self.members[to],
            sent,
            wanted,
        })
    }
}
