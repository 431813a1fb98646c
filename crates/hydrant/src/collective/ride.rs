//! Blocks of all members that ride on an agreement.
//!
//! In a flat team a block stays where its member gave it until this one needs it, which is after the agreement and
//! before it tells anything in the next: as long as that, nobody [writes](super::agree) there. Elsewhere it came along.

use super::{
    header::Header,
    layout::SMALL,
    piggyback::{Piggyback, Wanted, can_ride},
    team::Team,
};
use crate::{Pod, Result};

/// Bytes of elements for which no memory is asked.
const IN_PLACE: usize = 256;
/// What the memory for them is aligned to.
const ALIGNMENT: usize = align_of::<u128>();

/// A block of each member, or of each that this one wants the block of.
pub(super) struct Ride<'a> {
    team: &'a Team,
    each: usize,
    came: Came,
}

/// Where the blocks are.
enum Came {
    /// Where each member gave it.
    Given { sequence: u64, apart: bool },
    /// Here; mine is first.
    Along(Vec<u8>),
}

/// Room for elements.
struct Elements<T> {
    few: [u128; IN_PLACE / ALIGNMENT],
    many: Vec<T>,
    len: usize,
}

impl<T: Pod> Elements<T> {
    #[inline]
    fn new(len: usize) -> Self {
        let are_few = len * size_of::<T>() <= IN_PLACE && align_of::<T>() <= ALIGNMENT;
        Self {
            few: [0; IN_PLACE / ALIGNMENT],
            many: match are_few {
                true => Vec::new(),
                false => vec![T::zeroed(); len],
            },
            len,
        }
    }

    #[inline]
    fn get(&mut self) -> &mut [T] {
        match self.many.is_empty() {
            // There are places that fit no element.
            true if self.len == 0 => &mut [],
            true => {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.few);
                bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
            }
            false => &mut self.many,
        }
    }
}

impl<'a> Ride<'a> {
    /// Blocks that were given on the agreement that just ended.
    #[inline]
    pub(super) fn given(team: &'a Team, each: usize, apart: bool) -> Self {
        let sequence = team.last_agreement();
        Self {
            team,
            each,
            came: Came::Given { sequence, apart },
        }
    }

    /// Reads the block of another member.
    #[inline]
    pub(super) fn read(&self, member: usize, into: &mut [u8]) -> Result<()> {
        match &self.came {
            Came::Given { sequence, apart } => {
                self.team.take_given(*sequence, *apart, member, into)
            }
            Came::Along(all) => {
                into.copy_from_slice(self.along(all, member));
                Ok(())
            }
        }
    }

    #[inline]
    fn along<'b>(&self, all: &'b [u8], member: usize) -> &'b [u8] {
        let size = self.team.members.len();
        let place = (member + size - self.team.me) % size;
        &all[place * self.each..][..self.each]
    }

    /// Hands out the blocks, by member, if there is room; and what is to stand in this member's place, if that is not
    /// there.
    #[inline]
    pub(super) fn hand_blocks(&self, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
        for (member, place) in into.chunks_mut(self.each.max(1)).enumerate() {
            match mine {
                Some(mine) if member == self.team.me => place.copy_from_slice(mine),
                None if member == self.team.me => {}
                _ => self.read(member, place)?,
            }
        }
        Ok(())
    }

    /// Of blocks that came along and are parts for each member, those for this one.
    fn parts_of_mine(self) -> Self {
        let Came::Along(all) = &self.came else {
            return self;
        };
        let (me, size) = (self.team.me, self.team.members.len());
        let each = self.each / size;
        let part = |place| &self.along(all, (me + place) % size)[me * each..][..each];
        let mut parts = Vec::with_capacity(all.len() / size);
        (0..size).for_each(|place| parts.extend_from_slice(part(place)));
        Self {
            team: self.team,
            each,
            came: Came::Along(parts),
        }
    }

    /// Folds the blocks of the first members, so many and one at least, from the first one on. This member's is in
    /// `own`, where the result goes.
    #[inline]
    pub(super) fn fold<T: Pod>(
        &self,
        members: usize,
        own: &mut [T],
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let me = self.team.me;
        let mut next = Elements::new(own.len());
        let next = next.get();
        if me == 0 {
            for member in 1..members {
                self.read(member, bytemuck::cast_slice_mut(next))?;
                fold(own, next);
            }
            return Ok(());
        }
        let mut so_far = Elements::new(own.len());
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
        self.fold(self.team.members.len(), own, fold)
    }
}

impl Team {
    /// Agrees, with a block of every member riding along: so few bytes that they [fit](Self::fits).
    pub(super) async fn ride(
        &self,
        header: Header,
        checked: Result<()>,
        mine: &[u8],
        wanted: Wanted,
    ) -> Result<Ride<'_>> {
        if self.layout.is_flat() {
            let shown = Piggyback::Shown { data: mine, wanted };
            self.agree(header, checked, shown).await?;
            return Ok(Ride::given(self, mine.len(), false));
        }
        let (mut all, each) = (self.room_behind(mine), mine.len());
        let blocks = Piggyback::Blocks {
            all: &mut all,
            each,
            wanted,
        };
        self.agree(header, checked, blocks).await?;
        Ok(self.came_along(all, each))
    }

    /// As [`ride`](Self::ride), while the caller waits.
    #[inline]
    pub(super) fn ride_now(
        &self,
        header: Header,
        checked: Result<()>,
        mine: &[u8],
        wanted: Wanted,
    ) -> Result<Ride<'_>> {
        if self.layout.is_flat() {
            self.agree_now(header, checked, Piggyback::Shown { data: mine, wanted })?;
            return Ok(Ride::given(self, mine.len(), false));
        }
        let (mut all, each) = (self.room_behind(mine), mine.len());
        let blocks = Piggyback::Blocks {
            all: &mut all,
            each,
            wanted,
        };
        self.agree_now(header, checked, blocks)?;
        Ok(self.came_along(all, each))
    }

    /// Agrees, with a part of every member for every member riding along: what this one gives, by member, so few bytes
    /// that the parts [fit](Self::parts_fit). The blocks of the ride are the parts for this member.
    pub(super) async fn ride_apart(
        &self,
        header: Header,
        checked: Result<()>,
        data: &[u8],
    ) -> Result<Ride<'_>> {
        if self.layout.is_flat() {
            let each = data.len() / self.members.len();
            let parts = Piggyback::Parts { data, each };
            self.agree(header, checked, parts).await?;
            return Ok(Ride::given(self, each, true));
        }
        match self.other_part(data) {
            Some(part) => self.ride(header, checked, part, Wanted::ByAll).await,
            None => Ok((self.ride(header, checked, data, Wanted::ByAll).await?).parts_of_mine()),
        }
    }

    /// As [`ride_apart`](Self::ride_apart), while the caller waits.
    #[inline]
    pub(super) fn ride_apart_now(
        &self,
        header: Header,
        checked: Result<()>,
        data: &[u8],
    ) -> Result<Ride<'_>> {
        if self.layout.is_flat() {
            let each = data.len() / self.members.len();
            self.agree_now(header, checked, Piggyback::Parts { data, each })?;
            return Ok(Ride::given(self, each, true));
        }
        match self.other_part(data) {
            Some(part) => self.ride_now(header, checked, part, Wanted::ByAll),
            None => Ok((self.ride_now(header, checked, data, Wanted::ByAll)?).parts_of_mine()),
        }
    }

    /// Agrees in a flat team while the root's bytes, or its parts for each member, ride along: the ride from which
    /// the others take them.
    pub(super) async fn ride_from_root(
        &self,
        header: Header,
        root: Result<usize>,
        given: Piggyback<'_>,
        each: usize,
    ) -> Result<(usize, Ride<'_>)> {
        let apart = given.is_apart();
        let given = match &root {
            Ok(root) if *root == self.me => given,
            _ => Piggyback::Nothing,
        };
        let root = self.agree(header, root, given).await?;
        Ok((root, Ride::given(self, each, apart)))
    }

    /// Of two members, the part for the other: each tells nobody else.
    #[inline]
    fn other_part<'b>(&self, parts: &'b [u8]) -> Option<&'b [u8]> {
        let each = parts.len() / 2;
        (self.members.len() == 2).then(|| &parts[(1 - self.me) * each..][..each])
    }

    /// Room for a block of every member, where this one's is the first.
    fn room_behind(&self, mine: &[u8]) -> Vec<u8> {
        let mut all = mine.to_vec();
        all.resize(mine.len() * self.members.len(), 0);
        all
    }

    fn came_along(&self, all: Vec<u8>, each: usize) -> Ride<'_> {
        Ride {
            team: self,
            each,
            came: Came::Along(all),
        }
    }

    /// This member's part of what has one for each.
    #[inline]
    pub(super) fn own_part<'a, T>(&self, parts: &'a [T]) -> &'a [T] {
        let each = parts.len() / self.members.len();
        &parts[self.me * each..][..each]
    }

    /// Whether a block of so many bytes from each member can ride on the agreement.
    #[inline]
    pub(super) fn fits(&self, each: usize) -> bool {
        can_ride(&self.layout, self.members.len(), each)
    }

    /// Whether parts of so many bytes, for all members together, can ride on the agreement.
    #[inline]
    pub(super) fn parts_fit(&self, all: usize) -> bool {
        match self.layout.is_flat() || self.members.len() == 2 {
            true => all <= SMALL * self.members.len(),
            false => self.fits(all),
        }
    }
}
