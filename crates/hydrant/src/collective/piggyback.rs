//! What rides on the agreement.

use super::layout::{Layout, SMALL};

/// What rides on the agreement.
pub(super) enum Piggyback<'a> {
    Nothing,
    /// In a [flat](Layout::is_flat) team: this member's bytes, for who wants them.
    Shown {
        data: &'a [u8],
        wanted: Wanted,
    },
    /// In a flat team: for each member a part of its own, of `each` bytes; by member.
    Parts {
        data: &'a [u8],
        each: usize,
    },
    /// In any other: a block of `each` bytes from every member. Mine is first; at the end that of the
    /// member p places after me is at place p.
    Blocks {
        all: &'a mut [u8],
        each: usize,
    },
    /// In any other: one member's bytes, to all. It is `distance` places after me.
    Spread {
        data: &'a mut [u8],
        distance: usize,
    },
}

/// Who needs a member's block. Where blocks are passed on, all get all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Every member.
    ByAll,
    /// This one.
    By(usize),
    /// Those behind it in the team.
    Behind,
}

impl Wanted {
    /// Whether a member needs the block of member `of`.
    #[inline]
    fn by(self, member: usize, of: usize) -> bool {
        match self {
            Wanted::ByAll => true,
            Wanted::By(one) => one == member,
            Wanted::Behind => of < member,
        }
    }

    /// Whether any other of so many members needs the block of member `of`.
    #[inline]
    fn by_another(self, of: usize, members: usize) -> bool {
        match self {
            Wanted::ByAll => true,
            Wanted::By(one) => one != of,
            Wanted::Behind => of + 1 < members,
        }
    }
}

impl Piggyback<'_> {
    /// What this member, `me` of so many of a flat team, shows once for all who need it.
    #[inline]
    pub(super) fn shown(&self, me: usize, members: usize) -> &[u8] {
        match self {
            Piggyback::Shown { data, wanted } if wanted.by_another(me, members) => data,
            _ => &[],
        }
    }

    /// What this member of a flat team gives another: what it shows, or a part.
    #[inline]
    pub(super) fn given(&self, me: usize, to: usize) -> &[u8] {
        match self {
            Piggyback::Shown { data, wanted } if wanted.by(to, me) => data,
            Piggyback::Parts { data, each } => &data[to * each..][..*each],
            _ => &[],
        }
    }

    /// Whether each member is given something of its own.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        matches!(self, Piggyback::Parts { .. })
    }

    /// What goes out in the round of this reach, among `members`.
    #[inline]
    pub(super) fn outgoing(&self, reach: usize, members: usize) -> &[u8] {
        match self {
            Piggyback::Blocks { all, each } => &all[..reach.min(members - reach) * each],
            Piggyback::Spread { data, distance }
                if *distance < reach && distance + reach < members =>
            {
                data
            }
            _ => &[],
        }
    }

    /// Where what comes in goes.
    #[inline]
    pub(super) fn incoming(&mut self, reach: usize, members: usize) -> &mut [u8] {
        match self {
            Piggyback::Blocks { all, each } => {
                &mut all[reach * *each..][..reach.min(members - reach) * *each]
            }
            Piggyback::Spread { data, distance } if (reach..2 * reach).contains(distance) => data,
            _ => &mut [],
        }
    }
}

/// Whether so many bytes of each of `members` can ride.
pub(super) fn can_ride(layout: &Layout, members: usize, each: usize) -> bool {
    match layout.is_flat() {
        true => each <= SMALL,
        // No message carries more than half of the blocks.
        false => (each.checked_mul(members)).is_some_and(|bytes| bytes <= 2 * SMALL),
    }
}
