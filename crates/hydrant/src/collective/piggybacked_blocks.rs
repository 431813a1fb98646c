//! Blocks of members that were piggybacked on an agreement.
//!
//! In a flat team a block stays in the scratch of its owner. A member reads it after the agreement and
//! before it sends anything in the next one. Until then nobody [overwrites](super::agree) the block. In
//! other teams the messages of the agreement bring the blocks.

use super::{
    header::CallHeader,
    layout::SMALL,
    piggyback::{PiggybackData, Wanted, fits},
    team::Team,
};
use crate::{Pod, Result};

/// Bytes of elements that need no allocation.
const INLINE: usize = 256;
/// Alignment of these bytes.
const ALIGNMENT: usize = align_of::<u128>();

/// A block of each member, or of each member whose block this one wants.
pub(super) struct PiggybackedBlocks<'a> {
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
    pub(super) fn copy_blocks(&self, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
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
    pub(super) fn fold_prefix<T: Pod>(
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
    pub(super) fn fold_all<T: Pod>(
        &self,
        own: &mut [T],
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        self.fold_prefix(self.team.members.len(), own, fold)
    }
}

impl Team {
    /// Agrees with a block of every member piggybacked. Blocks [fit](Self::fits_piggyback).
    pub(super) async fn piggyback_blocks(
        &self,
        header: CallHeader,
        checked: Result<()>,
        mine: &[u8],
        wanted: Wanted,
    ) -> Result<PiggybackedBlocks<'_>> {
        if self.layout.is_flat() {
            let shown = PiggybackData::Shown { data: mine, wanted };
            self.agree(header, checked, shown).await?;
            return Ok(PiggybackedBlocks::in_scratch(self, mine.len(), false));
        }
        let (mut all, each) = (self.room_after_own(mine), mine.len());
        let blocks = PiggybackData::Blocks {
            all: &mut all,
            each,
            wanted,
        };
        self.agree(header, checked, blocks).await?;
        Ok(self.local_blocks(all, each))
    }

    /// As [`piggyback_blocks`](Self::piggyback_blocks), for a blocking collective only.
    #[inline]
    pub(super) fn piggyback_blocks_blocking(
        &self,
        header: CallHeader,
        checked: Result<()>,
        mine: &[u8],
        wanted: Wanted,
    ) -> Result<PiggybackedBlocks<'_>> {
        if self.layout.is_flat() {
            self.agree_blocking(header, checked, PiggybackData::Shown { data: mine, wanted })?;
            return Ok(PiggybackedBlocks::in_scratch(self, mine.len(), false));
        }
        let (mut all, each) = (self.room_after_own(mine), mine.len());
        let blocks = PiggybackData::Blocks {
            all: &mut all,
            each,
            wanted,
        };
        self.agree_blocking(header, checked, blocks)?;
        Ok(self.local_blocks(all, each))
    }

    /// Agrees with a part from every member for every member piggybacked. `data` holds this member's parts,
    /// which [fit](Self::parts_fit_piggyback), in the order of members. The returned blocks are the parts
    /// for this member.
    pub(super) async fn piggyback_parts(
        &self,
        header: CallHeader,
        checked: Result<()>,
        data: &[u8],
    ) -> Result<PiggybackedBlocks<'_>> {
        if self.layout.is_flat() {
            let each = data.len() / self.members.len();
            let parts = PiggybackData::Parts { data, each };
            self.agree(header, checked, parts).await?;
            return Ok(PiggybackedBlocks::in_scratch(self, each, true));
        }
        match self.part_for_other(data) {
            Some(part) => {
                self.piggyback_blocks(header, checked, part, Wanted::ByAll)
                    .await
            }
            None => Ok((self
                .piggyback_blocks(header, checked, data, Wanted::ByAll)
                .await?)
                .select_own_parts()),
        }
    }

    /// As [`piggyback_parts`](Self::piggyback_parts), for a blocking collective only.
    #[inline]
    pub(super) fn piggyback_parts_blocking(
        &self,
        header: CallHeader,
        checked: Result<()>,
        data: &[u8],
    ) -> Result<PiggybackedBlocks<'_>> {
        if self.layout.is_flat() {
            let each = data.len() / self.members.len();
            self.agree_blocking(header, checked, PiggybackData::Parts { data, each })?;
            return Ok(PiggybackedBlocks::in_scratch(self, each, true));
        }
        match self.part_for_other(data) {
            Some(part) => self.piggyback_blocks_blocking(header, checked, part, Wanted::ByAll),
            None => Ok(
                (self.piggyback_blocks_blocking(header, checked, data, Wanted::ByAll)?)
                    .select_own_parts(),
            ),
        }
    }

    /// Agrees in a flat team with the root's data piggybacked: bytes for all, or a part for each member.
    /// The returned blocks are read by the other members.
    pub(super) async fn piggyback_from_root(
        &self,
        header: CallHeader,
        root: Result<usize>,
        data: PiggybackData<'_>,
        each: usize,
    ) -> Result<(usize, PiggybackedBlocks<'_>)> {
        let in_parts = data.has_parts();
        let data = match &root {
            Ok(root) if *root == self.me => data,
            _ => PiggybackData::Nothing,
        };
        let root = self.agree(header, root, data).await?;
        Ok((root, PiggybackedBlocks::in_scratch(self, each, in_parts)))
    }

    /// Returns the part for the other member if there are two: a member's own part needs no message then.
    #[inline]
    fn part_for_other<'b>(&self, parts: &'b [u8]) -> Option<&'b [u8]> {
        let each = parts.len() / 2;
        (self.members.len() == 2).then(|| &parts[(1 - self.me) * each..][..each])
    }

    /// Room for a block of every member, filled with this member's block at the front.
    fn room_after_own(&self, mine: &[u8]) -> Vec<u8> {
        let mut all = mine.to_vec();
        all.resize(mine.len() * self.members.len(), 0);
        all
    }

    fn local_blocks(&self, all: Vec<u8>, each: usize) -> PiggybackedBlocks<'_> {
        PiggybackedBlocks {
            team: self,
            each,
            storage: BlockStorage::Local(all),
        }
    }

    /// This member's part of `parts`, which has one for each member.
    #[inline]
    pub(super) fn own_part<'a, T>(&self, parts: &'a [T]) -> &'a [T] {
        let each = parts.len() / self.members.len();
        &parts[self.me * each..][..each]
    }

    /// Returns whether a block of `each` bytes from each member can be piggybacked.
    #[inline]
    pub(super) fn fits_piggyback(&self, each: usize) -> bool {
        fits(&self.layout, self.members.len(), each)
    }

    /// Returns whether parts of `all` bytes together, one for each member, can be piggybacked.
    #[inline]
    pub(super) fn parts_fit_piggyback(&self, all: usize) -> bool {
        if self.layout.is_flat() || self.members.len() == 2 {
            all <= SMALL * self.members.len()
        } else {
            self.fits_piggyback(all)
        }
    }
}
