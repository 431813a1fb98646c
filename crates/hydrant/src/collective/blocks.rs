//! Blocks: where the elements of each member lie in a flat buffer.

use std::ops::Range;

use super::{all_gather::bytes_mut, team::Team};
use crate::{Error, Pod, Result, TeamRank};

/// Where the blocks of a team's members lie in a buffer: how many elements each has, and where it
/// begins.
///
/// Nothing is checked before a collective gets it, together with the buffer: what does not fit is an
/// error there, of which every member is told.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    counts: &'a [usize],
    displacements: Option<&'a [usize]>,
}

impl<'a> Blocks<'a> {
    /// Blocks of so many elements, by member, one behind the other from the start of the buffer.
    pub fn packed(counts: &'a [usize]) -> Self {
        Self {
            counts,
            displacements: None,
        }
    }

    /// Blocks of so many elements, each from the index of its displacement. A block of no elements
    /// lies nowhere, whatever its displacement.
    pub fn at(counts: &'a [usize], displacements: &'a [usize]) -> Self {
        Self {
            counts,
            displacements: Some(displacements),
        }
    }

    /// The same, to be kept.
    pub(super) fn keep(self) -> KeptBlocks {
        KeptBlocks {
            counts: self.counts.to_vec(),
            displacements: self.displacements.map(<[usize]>::to_vec),
        }
    }

    /// The elements of each block, in a buffer of `len`, one block for each of `members`.
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

    /// As [`ranges`](Self::ranges), of blocks to write to, which may not overlap.
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

/// Blocks that outlive the call that says where they are.
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

/// Cuts out blocks that do not overlap.
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

/// The members whose blocks have elements, as these lie in the buffer.
fn in_order(ranges: &[Range<usize>]) -> Vec<usize> {
    let mut members: Vec<_> = (0..ranges.len())
        .filter(|member| !ranges[*member].is_empty())
        .collect();
    members.sort_unstable_by_key(|member| ranges[*member].start);
    members
}

/// Bytes of as many elements as a member said.
pub(super) fn bytes_in<T>(count: u64) -> usize {
    usize::try_from(count).map_or(usize::MAX, |count| count.saturating_mul(size_of::<T>()))
}

/// # Errors
/// [`Error::LengthMismatch`].
pub(super) fn same_length(what: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right {
        Ok(())
    } else {
        Err(Error::LengthMismatch { what, left, right })
    }
}

/// What was made ready for a collective, or nothing, apart from whether that went well: every member
/// agrees on the latter before anybody uses the former.
pub(super) fn apart<T>(ready: Result<Vec<T>>) -> (Vec<T>, Result<()>) {
    match ready {
        Ok(ready) => (ready, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    }
}

impl Team {
    /// Whether a member sends what another one has room for.
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
