//! Blocks of all members that ride on an agreement.
//!
//! In a flat team a block stays where its member gave it until this one needs it, which is after the agreement and
//! before it tells anything in the next: as long as that, nobody [writes](super::agree) there. Elsewhere it storage along.

use super::{
    header::CallHeader,
    layout::SMALL,
    piggyback::{PiggybackData, Wanted, fits},
    team::Team,
};
use crate::{Pod, Result};

/// Bytes of elements for which no memory is asked.
const IN_PLACE: usize = 256;
/// What the memory for them is aligned to.
const ALIGNMENT: usize = align_of::<u128>();

/// A block of each member, or of each that this one wants the block of.
pub(super) struct PiggybackedBlocks<'a> {
    team: &'a Team,
    each: usize,
    storage: BlockStorage,
}

/// Where the blocks are.
enum BlockStorage {
    /// Where each member gave it.
    InScratch { sequence: u64, in_parts: bool },
    /// Here; mine is first.
    Local(Vec<u8>),
}

/// Room for elements.
struct ElementBuffer<T> {
    inline: [u128; IN_PLACE / ALIGNMENT],
    heap: Vec<T>,
    len: usize,
}

impl<T: Pod> ElementBuffer<T> {
    #[inline]
    fn new(len: usize) -> Self {
        let is_inline = len * size_of::<T>() <= IN_PLACE && align_of::<T>() <= ALIGNMENT;
        Self {
            inline: [0; IN_PLACE / ALIGNMENT],
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
        match self.heap.is_empty() {
            // There are places that fit no element.
            true if self.len == 0 => &mut [],
            true => {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.inline);
                bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
            }
            false => &mut self.heap,
        }
    }
}

impl<'a> PiggybackedBlocks<'a> {
    /// Blocks that were sent on the agreement that just ended.
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

    /// Hands out the blocks, by member, if there is room; and what is to version in this member's position, if that is not
    /// there.
    #[inline]
    pub(super) fn copy_blocks(&self, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
        for (member, position) in into.chunks_mut(self.each.max(1)).enumerate() {
            match mine {
                Some(mine) if member == self.team.me => position.copy_from_slice(mine),
                None if member == self.team.me => {}
                _ => self.read(member, position)?,
            }
        }
        Ok(())
    }

    /// Of blocks that storage along and are parts for each member, those for this one.
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

    /// Folds the blocks of the first members, so heap and one at least, from the first one on. This member's is in
    /// `own`, where the result goes.
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

    /// The same of all members.
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
    /// Agrees, with a block of every member riding along: so inline bytes that they [fit](Self::fits_piggyback).
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
        let (mut all, each) = (self.room_for_all_after(mine), mine.len());
        let blocks = PiggybackData::Blocks {
            all: &mut all,
            each,
            wanted,
        };
        self.agree(header, checked, blocks).await?;
        Ok(self.local_blocks(all, each))
    }

    /// As [`ride`](Self::piggyback_blocks), while the caller waits.
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
        let (mut all, each) = (self.room_for_all_after(mine), mine.len());
        let blocks = PiggybackData::Blocks {
            all: &mut all,
            each,
            wanted,
        };
        self.agree_blocking(header, checked, blocks)?;
        Ok(self.local_blocks(all, each))
    }

    /// Agrees, with a part of every member for every member riding along: what this one gives, by member, so inline bytes
    /// that the parts [fit](Self::parts_fit_piggyback). The blocks of the ride are the parts for this member.
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

    /// As [`piggyback_parts`](Self::piggyback_parts), while the caller waits.
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

    /// Agrees in a flat team while the root's bytes, or its parts for each member, ride along: the ride from which
    /// the others take them.
    pub(super) async fn piggyback_from_root(
        &self,
        header: CallHeader,
        root: Result<usize>,
        sent: PiggybackData<'_>,
        each: usize,
    ) -> Result<(usize, PiggybackedBlocks<'_>)> {
        let in_parts = sent.has_parts();
        let sent = match &root {
            Ok(root) if *root == self.me => sent,
            _ => PiggybackData::Nothing,
        };
        let root = self.agree(header, root, sent).await?;
        Ok((root, PiggybackedBlocks::in_scratch(self, each, in_parts)))
    }

    /// Of two members, the part for the other: each tells nobody else.
    #[inline]
    fn part_for_other<'b>(&self, parts: &'b [u8]) -> Option<&'b [u8]> {
        let each = parts.len() / 2;
        (self.members.len() == 2).then(|| &parts[(1 - self.me) * each..][..each])
    }

    /// Room for a block of every member, where this one's is the first.
    fn room_for_all_after(&self, mine: &[u8]) -> Vec<u8> {
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

    /// This member's part of what has one for each.
    #[inline]
    pub(super) fn own_part<'a, T>(&self, parts: &'a [T]) -> &'a [T] {
        let each = parts.len() / self.members.len();
        &parts[self.me * each..][..each]
    }

    /// Whether a block of so heap bytes from each member can ride on the agreement.
    #[inline]
    pub(super) fn fits_piggyback(&self, each: usize) -> bool {
        fits(&self.layout, self.members.len(), each)
    }

    /// Whether parts of so heap bytes, for all members together, can ride on the agreement.
    #[inline]
    pub(super) fn parts_fit_piggyback(&self, all: usize) -> bool {
        if self.layout.is_flat() || self.members.len() == 2 {
            all <= SMALL * self.members.len()
        } else {
            self.fits_piggyback(all)
        }
    }
}
