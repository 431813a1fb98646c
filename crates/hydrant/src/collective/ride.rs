//! Blocks of all members that ride on an agreement.

use super::{
    agree::{Piggyback, can_ride},
    header::Header,
    team::Team,
};
use crate::{Pod, Result};

/// Bytes for which no memory is asked.
const IN_PLACE: usize = 256;
/// No element that a word holds, and no array of these, needs more.
const ALIGNMENT: usize = align_of::<u128>();

/// Zeroed bytes, aligned for most elements.
pub(super) struct Room {
    few: [u128; IN_PLACE / ALIGNMENT],
    many: Vec<u128>,
    len: usize,
}

/// A block of each member.
pub(super) struct Ride {
    /// Mine is first.
    all: Room,
    each: usize,
    me: usize,
    size: usize,
}

impl Room {
    #[inline]
    pub(super) fn new(len: usize) -> Self {
        let many = match len <= IN_PLACE {
            true => Vec::new(),
            false => vec![0; len.div_ceil(ALIGNMENT)],
        };
        Self {
            few: [0; IN_PLACE / ALIGNMENT],
            many,
            len,
        }
    }

    /// The same bytes.
    #[inline]
    pub(super) fn of(data: &[u8]) -> Self {
        let mut room = Self::new(data.len());
        room.bytes_mut().copy_from_slice(data);
        room
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        let words = if self.many.is_empty() {
            &self.few[..]
        } else {
            &self.many
        };
        &bytemuck::cast_slice(words)[..self.len]
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let words = if self.many.is_empty() {
            &mut self.few[..]
        } else {
            &mut self.many
        };
        &mut bytemuck::cast_slice_mut(words)[..self.len]
    }
}

impl Ride {
    #[inline]
    fn new(team: &Team, mine: &[u8]) -> Self {
        let (size, each) = (team.members.len(), mine.len());
        let mut all = Room::new(each * size);
        all.bytes_mut()[..each].copy_from_slice(mine);
        Self {
            all,
            each,
            me: team.me,
            size,
        }
    }

    /// What a member gave.
    #[inline]
    fn block(&self, member: usize) -> &[u8] {
        let place = (member + self.size - self.me) % self.size;
        &self.all.bytes()[place * self.each..][..self.each]
    }

    /// Hands out the blocks, by member.
    pub(super) fn hand_blocks(&self, into: &mut [u8]) {
        for (member, place) in into.chunks_mut(self.each.max(1)).enumerate() {
            place.copy_from_slice(self.block(member));
        }
    }

    /// Hands out my part of each block, by member.
    pub(super) fn hand_parts(&self, into: &mut [u8]) {
        let part = self.each / self.size;
        for (member, place) in into.chunks_mut(part.max(1)).enumerate() {
            place.copy_from_slice(&self.block(member)[self.me * part..][..part]);
        }
    }

    /// Folds all blocks into one, from the first member to the last.
    pub(super) fn fold<T: Pod>(&self, into: &mut [T], fold: &impl Fn(&mut [T], &[T])) {
        into.copy_from_slice(&self.elements(0));
        (1..self.size).for_each(|member| fold(into, &self.elements(member)));
    }

    fn elements<T: Pod>(&self, member: usize) -> std::borrow::Cow<'_, [T]> {
        let block = self.block(member);
        match bytemuck::try_cast_slice(block) {
            Ok(elements) => elements.into(),
            // They are aligned to more than any word.
            Err(_) => bytemuck::pod_collect_to_vec(block).into(),
        }
    }
}

impl Team {
    /// Agrees, with a block of every member riding along: so few bytes that they [fit](Self::fits).
    pub(super) async fn ride(
        &self,
        header: Header,
        checked: Result<()>,
        mine: &[u8],
    ) -> Result<Ride> {
        let mut ride = Ride::new(self, mine);
        let (all, each) = (ride.all.bytes_mut(), mine.len());
        self.agree(header, checked, Piggyback::Blocks { all, each })
            .await?;
        Ok(ride)
    }

    /// As [`ride`](Self::ride), while the caller waits.
    #[inline]
    pub(super) fn ride_now(
        &self,
        header: Header,
        checked: Result<()>,
        mine: &[u8],
    ) -> Result<Ride> {
        let mut ride = Ride::new(self, mine);
        let (all, each) = (ride.all.bytes_mut(), mine.len());
        self.agree_now(header, checked, Piggyback::Blocks { all, each })?;
        Ok(ride)
    }

    /// Whether a block of so many bytes from each member can ride on the agreement.
    #[inline]
    pub(super) fn fits(&self, each: usize) -> bool {
        can_ride(&self.layout, self.members.len(), each)
    }
}
