//! Blocks of members that were piggybacked on an agreement.
//!
//! In a flat team a block stays in the scratch of its owner. A member reads it after the agreement and
//! before it sends anything in the next one. Until then nobody [overwrites](super::rounds) the block. In
//! other teams the messages of the agreement bring the blocks.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{
    header::CallHeader,
    piggyback::{PiggybackData, Wanted, fits},
    rounds::Agreement,
};
use crate::{
    Pod, Result,
    collective::{layout::SMALL, team::Team},
};

/// Bytes of elements that need no allocation.
const INLINE: usize = 256;
/// Alignment of these bytes.
const ALIGNMENT: usize = align_of::<u128>();

/// A block of each member, or of each member whose block this one wants.
pub(in crate::collective) struct PiggybackedBlocks<'a> {
    team: &'a Team,
    each: usize,
    storage: BlockStorage,
}

/// Where the blocks are.
enum BlockStorage {
    /// In the scratch of their owners: in flat teams.
    InScratch { sequence: u64, in_parts: bool },
    /// Here, this member's first.
    Local(Vec<u8>),
}

/// Room for elements, without an allocation if they are few.
struct ElementBuffer<T> {
    inline: [u128; INLINE / ALIGNMENT],
    heap: Vec<T>,
    len: usize,
}

impl<T: Pod> ElementBuffer<T> {
    #[inline]
    fn new(len: usize) -> Self {
        let is_inline = len * size_of::<T>() <= INLINE && align_of::<T>() <= ALIGNMENT;
        Self {
            inline: [0; INLINE / ALIGNMENT],
            heap: if is_inline {
                Vec::new()
            } else {
                vec![T::zeroed(); len]
            },
            len,
        }
    }

    #[inline]
    fn get(&mut self) -> &mut [T] {
        if !self.heap.is_empty() {
            &mut self.heap
        } else if self.len == 0 {
            // The inline bytes may not be aligned for an element of this type.
            &mut []
        } else {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.inline);
            bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
        }
    }
}

/// A future: an agreement with piggybacked blocks.
pub(in crate::collective) struct BlockAgreement<'t, 'd>(Agreement<'t, 'd, ()>);

impl<'t> Future for BlockAgreement<'t, '_> {
    type Output = Result<PiggybackedBlocks<'t>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(Pin::new(&mut self.0).poll(context))?;
        let team = self.0.team;
        let (each, is_parts) = match &mut self.0.piggyback {
            PiggybackData::Blocks {
                all,
                each,
                in_parts,
                ..
            } => {
                let blocks = PiggybackedBlocks {
                    team,
                    each: *each,
                    storage: BlockStorage::Local(mem::take(all)),
                };
                return Poll::Ready(Ok(match in_parts {
                    true => blocks.select_own_parts(),
                    false => blocks,
                }));
            }
            PiggybackData::Parts { each, .. } => (*each, true),
            PiggybackData::Shown { data, .. } => (data.len(), false),
            _ => unreachable!("blocks are piggybacked"),
        };
        Poll::Ready(Ok(PiggybackedBlocks::in_scratch(team, each, is_parts)))
    }
}

impl<'a> PiggybackedBlocks<'a> {
    /// The blocks that were piggybacked on the agreement that just ended.
    #[inline]
    pub(super) fn in_scratch(team: &'a Team, each: usize, in_parts: bool) -> Self {
        let sequence = team.last_agreement();
        Self {
            team,
            each,
            storage: BlockStorage::InScratch { sequence, in_parts },
        }
    }

    /// Reads the block of another member.
    #[inline]
    pub(super) fn read(&self, member: usize, into: &mut [u8]) -> Result<()> {
        match &self.storage {
            BlockStorage::InScratch { sequence, in_parts } => {
                self.team.read_piggyback(*sequence, *in_parts, member, into)
            }
            BlockStorage::Local(all) => {
                into.copy_from_slice(self.local_block(all, member));
                Ok(())
            }
        }
    }

    #[inline]
    fn local_block<'b>(&self, all: &'b [u8], member: usize) -> &'b [u8] {
        let size = self.team.members.len();
        let position = (member + size - self.team.me) % size;
        &all[position * self.each..][..self.each]
    }

    /// Copies the blocks to `into`, by member, as far as there is room. `mine` goes to this member's
    /// position; `None` leaves that position as it is.
    #[inline]
    pub(in crate::collective) fn copy_blocks(
        &self,
        mine: Option<&[u8]>,
        into: &mut [u8],
    ) -> Result<()> {
        for (member, room) in into.chunks_mut(self.each.max(1)).enumerate() {
            match mine {
                Some(mine) if member == self.team.me => room.copy_from_slice(mine),
                None if member == self.team.me => {}
                _ => self.read(member, room)?,
            }
        }
        Ok(())
    }

    /// Keeps, of blocks that hold one part for each member, the parts for this member.
    fn select_own_parts(self) -> Self {
        let BlockStorage::Local(all) = &self.storage else {
            return self;
        };
        let (me, size) = (self.team.me, self.team.members.len());
        let each = self.each / size;
        let part = |position| &self.local_block(all, (me + position) % size)[me * each..][..each];
        let mut parts = Vec::with_capacity(all.len() / size);
        (0..size).for_each(|position| parts.extend_from_slice(part(position)));
        Self {
            team: self.team,
            each,
            storage: BlockStorage::Local(parts),
        }
    }

    /// Folds the blocks of the first `members` members, from the left; `members` is at least one. `own`
    /// holds this member's block and gets the result.
    #[inline]
    pub(in crate::collective) fn fold_prefix<T: Pod>(
        &self,
        members: usize,
        own: &mut [T],
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let me = self.team.me;
        let mut next = ElementBuffer::new(own.len());
        let next = next.get();
        if me == 0 {
            for member in 1..members {
                self.read(member, bytemuck::cast_slice_mut(next))?;
                fold(own, next);
            }
            return Ok(());
        }
        let mut so_far = ElementBuffer::new(own.len());
        let so_far = so_far.get();
        self.read(0, bytemuck::cast_slice_mut(so_far))?;
        for member in 1..members {
            if member == me {
                fold(so_far, own);
            } else {
                self.read(member, bytemuck::cast_slice_mut(next))?;
                fold(so_far, next);
            }
        }
        own.copy_from_slice(so_far);
        Ok(())
    }

    /// Folds the blocks of all members, as [`fold_prefix`](Self::fold_prefix).
    #[inline]
    pub(in crate::collective) fn fold_all<T: Pod>(
        &self,
        own: &mut [T],
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        self.fold_prefix(self.team.members.len(), own, fold)
    }
}

impl Team {
    /// Agrees with a block of every member piggybacked. Blocks [fit](Self::fits_piggyback).
    #[inline(always)]
    pub(in crate::collective) fn piggyback_blocks<'t, 'd>(
        &'t self,
        header: CallHeader,
        checked: Result<()>,
        mine: &'d [u8],
        wanted: Wanted,
    ) -> BlockAgreement<'t, 'd> {
        let data = if self.layout.is_flat() {
            PiggybackData::Shown { data: mine, wanted }
        } else {
            PiggybackData::of_all(mine, self.members.len(), wanted, false)
        };
        BlockAgreement(self.agree_with(header, checked, data))
    }

    /// Agrees with a part from every member for every member piggybacked. `parts` holds this member's parts,
    /// which [fit](Self::parts_fit_piggyback), in the order of members. The returned blocks are the parts
    /// for this member.
    #[inline(always)]
    pub(in crate::collective) fn piggyback_parts<'t, 'd>(
        &'t self,
        header: CallHeader,
        checked: Result<()>,
        parts: &'d [u8],
    ) -> BlockAgreement<'t, 'd> {
        let members = self.members.len();
        let data = if self.layout.is_flat() {
            let each = parts.len() / members;
            PiggybackData::Parts { data: parts, each }
        } else if let Some(part) = self.part_for_other(parts) {
            PiggybackData::of_all(part, members, Wanted::ByAll, false)
        } else {
            PiggybackData::of_all(parts, members, Wanted::ByAll, true)
        };
        BlockAgreement(self.agree_with(header, checked, data))
    }

    /// Returns the part for the other member if there are two: a member's own part needs no message then.
    /// Without that, an all-to-all of 4 KiB for each took 1.4 times as long on played NICs.
    #[inline]
    fn part_for_other<'b>(&self, parts: &'b [u8]) -> Option<&'b [u8]> {
        let each = parts.len() / 2;
        (self.members.len() == 2).then(|| &parts[(1 - self.me) * each..][..each])
    }

    /// This member's part of `parts`, which has one for each member.
    #[inline]
    pub(in crate::collective) fn own_part<'a, T>(&self, parts: &'a [T]) -> &'a [T] {
        let each = parts.len() / self.members.len();
        &parts[self.me * each..][..each]
    }

    /// Returns whether a block of `each` bytes from each member can be piggybacked.
    #[inline]
    pub(in crate::collective) fn fits_piggyback(&self, each: usize) -> bool {
        fits(&self.layout, self.members.len(), each)
    }

    /// Returns whether parts of `all` bytes together, one for each member, can be piggybacked.
    #[inline]
    pub(in crate::collective) fn parts_fit_piggyback(&self, all: usize) -> bool {
        if self.layout.is_flat() || self.members.len() == 2 {
            all <= SMALL * self.members.len()
        } else {
            self.fits_piggyback(all)
        }
    }
}
