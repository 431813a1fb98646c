//! What rides on the agreement.

use std::ops::Range;

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
    /// member p places after me is at place p, if it is `wanted` here.
    Blocks {
        all: &'a mut [u8],
        each: usize,
        wanted: Wanted,
    },
    /// In any other: one member's bytes, to all. It is `distance` places after me.
    Spread {
        data: &'a mut [u8],
        distance: usize,
    },
    /// In any other: one member's parts of `each` bytes, to each its own, which lies at its [place](place_of). The member
    /// is `distance` places after me.
    Dealt {
        parts: &'a mut [u8],
        each: usize,
        distance: usize,
    },
}

/// Who needs a member's block.
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

    /// How many blocks, from its own on, a member that is not of a flat team tells the one `reach` before it: those of
    /// which somebody has no other way to it. If one member wants them, that is a tree below it: in the round of this
    /// reach, who is an odd multiple of it after that one tells what it gathered.
    #[inline]
    fn told(self, me: usize, reach: usize, members: usize) -> usize {
        match self {
            Wanted::By(one) => match (me + members - one) % members {
                distance if distance % (2 * reach) == reach => reach.min(members - distance),
                _ => 0,
            },
            Wanted::Behind if members == 2 => 1 - me,
            Wanted::ByAll | Wanted::Behind => reach.min(members - reach),
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

    /// What goes out from `me` in the round of this reach, among `members`.
    #[inline]
    pub(super) fn outgoing(&self, me: usize, reach: usize, members: usize) -> &[u8] {
        match self {
            Piggyback::Blocks { all, each, wanted } => {
                &all[..wanted.told(me, reach, members) * each]
            }
            Piggyback::Spread { data, distance }
                if *distance < reach && distance + reach < members =>
            {
                data
            }
            Piggyback::Dealt {
                parts,
                each,
                distance,
            } if *distance < reach && distance + reach < members => {
                &parts[passed_on(distance + reach, reach, members, *each)]
            }
            _ => &[],
        }
    }

    /// Where what comes in to `me` goes.
    #[inline]
    pub(super) fn incoming(&mut self, me: usize, reach: usize, members: usize) -> &mut [u8] {
        match self {
            Piggyback::Blocks { all, each, wanted } => {
                let told = wanted.told((me + reach) % members, reach, members);
                &mut all[reach * *each..][..told * *each]
            }
            Piggyback::Spread { data, distance } if (reach..2 * reach).contains(distance) => data,
            Piggyback::Dealt {
                parts,
                each,
                distance,
            } if (reach..2 * reach).contains(distance) => {
                &mut parts[passed_on(*distance, reach, members, *each)]
            }
            _ => &mut [],
        }
    }
}

/// Where the parts lie that a member gets in the round of this reach, `distance` before the one that deals them: its own
/// and those that it passes on, which are to go to every second reach before it.
fn passed_on(distance: usize, reach: usize, members: usize, each: usize) -> Range<usize> {
    let first = place_of(distance, members);
    let count = (members - distance).div_ceil(2 * reach);
    first * each..(first + count) * each
}

/// The place, among parts that are [dealt](Piggyback::Dealt) to so many members, of that for the one at this distance
/// before who deals them. They are in the order of their distances with the lowest bit as the highest: so what one
/// member passes on lies together, itself first.
pub(super) fn place_of(distance: usize, members: usize) -> usize {
    let bits = (0..usize::BITS - distance.leading_zeros()).map(|bit| 1 << bit);
    bits.filter(|bit| distance & bit != 0)
        // Those who have this bit not, and those below it alike, are all before it.
        .map(|bit| (members - distance % bit).div_ceil(2 * bit))
        .sum()
}

/// Whether so many bytes of each of `members` can ride.
pub(super) fn can_ride(layout: &Layout, members: usize, each: usize) -> bool {
    match layout.is_flat() {
        true => each <= SMALL,
        // No message carries more than half of the blocks.
        false => (each.checked_mul(members)).is_some_and(|bytes| bytes <= 2 * SMALL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has every member of a team that is not flat do its rounds.
    fn do_rounds(mut rides: Vec<Piggyback<'_>>) {
        let members = rides.len();
        let mut reach = 1;
        while reach < members {
            let said: Vec<Vec<u8>> = (rides.iter().enumerate())
                .map(|(me, ride)| ride.outgoing(me, reach, members).to_vec())
                .collect();
            for (me, ride) in rides.iter_mut().enumerate() {
                let came = ride.incoming(me, reach, members);
                came.copy_from_slice(&said[(me + reach) % members]);
            }
            reach *= 2;
        }
    }

    #[test]
    fn blocks_come_to_all_who_want_them() {
        const EACH: usize = 3;
        for members in 1..=20 {
            let wanted = (0..members).map(Wanted::By);
            for wanted in wanted.chain([Wanted::ByAll, Wanted::Behind]) {
                let block = |member: usize| [member as u8 + 1; EACH];
                let mut blocks: Vec<Vec<u8>> = (0..members)
                    .map(|me| {
                        let mut all = block(me).to_vec();
                        all.resize(members * EACH, 0);
                        all
                    })
                    .collect();
                let rides = (blocks.iter_mut())
                    .map(|all| Piggyback::Blocks {
                        all,
                        each: EACH,
                        wanted,
                    })
                    .collect();
                do_rounds(rides);
                for (me, all) in blocks.iter().enumerate() {
                    let by_place = all.chunks(EACH).enumerate();
                    for (of, got) in by_place.map(|(place, got)| ((me + place) % members, got)) {
                        assert!(
                            !wanted.by(me, of) || got == block(of),
                            "{wanted:?} {me} {of}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn parts_that_are_dealt_come_to_their_members() {
        const EACH: usize = 2;
        for members in 1..=20 {
            let mut places: Vec<usize> = (0..members).map(|at| place_of(at, members)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..members));
            for root in 0..members {
                let mut parts = vec![vec![0; members * EACH]; members];
                let distance = |member: usize| (root + members - member) % members;
                for member in 0..members {
                    let place = place_of(distance(member), members);
                    parts[root][place * EACH..][..EACH].fill(member as u8 + 1);
                }
                let rides = (parts.iter_mut().enumerate())
                    .map(|(me, parts)| Piggyback::Dealt {
                        parts,
                        each: EACH,
                        distance: distance(me),
                    })
                    .collect();
                do_rounds(rides);
                for (me, parts) in parts.iter().enumerate() {
                    let place = place_of(distance(me), members);
                    assert_eq!(parts[place * EACH..][..EACH], [me as u8 + 1; EACH]);
                }
            }
        }
    }

    #[test]
    fn of_two_only_who_is_to_give_something_tells_it() {
        assert_eq!([0, 1].map(|me| Wanted::By(0).told(me, 1, 2)), [0, 1]);
        assert_eq!([0, 1].map(|me| Wanted::By(1).told(me, 1, 2)), [1, 0]);
        assert_eq!([0, 1].map(|me| Wanted::Behind.told(me, 1, 2)), [1, 0]);
        assert_eq!([0, 1].map(|me| Wanted::ByAll.told(me, 1, 2)), [1, 1]);
    }
}
