//! Data that is piggybacked on the messages of the agreement: which bytes go out and come in with each
//! round.

use std::ops::Range;

use crate::collective::layout::{Layout, SMALL};

/// Data that is piggybacked on an agreement. `Shown` and `Parts` are for [flat](Layout::is_flat) teams,
/// `Blocks`, `Spread` and `Dealt` for all other teams.
pub(super) enum PiggybackData<'a> {
    Nothing,
    /// This member's bytes, which every member that wants them reads.
    Shown {
        data: &'a [u8],
        wanted: Wanted,
    },
    /// A part of `each` bytes for each member, in the order of members.
    Parts {
        data: &'a [u8],
        each: usize,
    },
    /// A block of `each` bytes from every member. This member's block is first. At the end the block of the
    /// member p positions after this one is at position p, if it is `wanted` here. `in_parts` says that a
    /// block has a part for each member.
    Blocks {
        all: Vec<u8>,
        each: usize,
        wanted: Wanted,
        in_parts: bool,
    },
    /// The bytes of one member, for all. That member is `distance` positions after this one.
    Spread {
        data: &'a mut [u8],
        distance: usize,
    },
    /// The parts of one member, `each` bytes long, one for each member. A member's part lies at its
    /// [position](dealt_position). The dealing member is `distance` positions after this one.
    Dealt {
        parts: &'a mut [u8],
        each: usize,
        distance: usize,
    },
}

/// The members that need a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::collective) enum Wanted {
    /// Every member.
    ByAll,
    /// The member of this number.
    ByMember(usize),
    /// The members after the block's own.
    Behind,
}

impl Wanted {
    /// Returns whether `member` needs the block of member `of`.
    #[inline]
    fn is_wanted_by(self, member: usize, of: usize) -> bool {
        match self {
            Wanted::ByAll => true,
            Wanted::ByMember(wanting) => wanting == member,
            Wanted::Behind => of < member,
        }
    }

    /// Returns whether any other of `members` members needs the block of member `of`.
    #[inline]
    fn is_wanted_by_another(self, of: usize, members: usize) -> bool {
        match self {
            Wanted::ByAll => true,
            Wanted::ByMember(wanting) => wanting != of,
            Wanted::Behind => of + 1 < members,
        }
    }

    /// Returns how many blocks, beginning with its own, `me` sends to the member `reach` before it: those
    /// that the receiver's subtree still lacks. If one member wants the blocks, they move up a binomial
    /// tree to it. In this round the members at an odd multiple of `reach` from it send what they gathered.
    #[inline]
    fn blocks_to_send(self, me: usize, reach: usize, members: usize) -> usize {
        match self {
            Wanted::ByMember(wanting) => match (me + members - wanting) % members {
                distance if distance % (2 * reach) == reach => reach.min(members - distance),
                _ => 0,
            },
            Wanted::ByAll | Wanted::Behind => reach.min(members - reach),
        }
    }
}

impl PiggybackData<'_> {
    /// A block of each of `members`, of which this member has `mine`.
    pub(super) fn of_all(mine: &[u8], members: usize, wanted: Wanted, in_parts: bool) -> Self {
        let each = mine.len();
        let mut all = mine.to_vec();
        all.resize(each * members, 0);
        PiggybackData::Blocks {
            all,
            each,
            wanted,
            in_parts,
        }
    }

    /// The bytes that `me`, one of `members` in a flat team, shows once for all readers.
    #[inline]
    pub(super) fn shown_to_all(&self, me: usize, members: usize) -> &[u8] {
        match self {
            PiggybackData::Shown { data, wanted } if wanted.is_wanted_by_another(me, members) => {
                data
            }
            _ => &[],
        }
    }

    /// The bytes that `me` has for member `to` of a flat team: those shown to all, or a part.
    #[inline]
    pub(super) fn for_member(&self, me: usize, to: usize) -> &[u8] {
        match self {
            PiggybackData::Shown { data, wanted } if wanted.is_wanted_by(to, me) => data,
            PiggybackData::Parts { data, each } => &data[to * each..][..*each],
            _ => &[],
        }
    }

    /// Returns whether each member gets a part of its own.
    #[inline]
    pub(super) fn has_parts(&self) -> bool {
        matches!(self, PiggybackData::Parts { .. })
    }

    /// The bytes that `me` sends in the round of this reach, among `members`.
    #[inline]
    pub(super) fn outgoing(&self, me: usize, reach: usize, members: usize) -> &[u8] {
        match self {
            PiggybackData::Blocks {
                all, each, wanted, ..
            } => &all[..wanted.blocks_to_send(me, reach, members) * each],
            PiggybackData::Spread { data, distance }
                if *distance < reach && distance + reach < members =>
            {
                data
            }
            PiggybackData::Dealt {
                parts,
                each,
                distance,
            } if *distance < reach && distance + reach < members => {
                &parts[forwarded(distance + reach, reach, members, *each)]
            }
            _ => &[],
        }
    }

    /// Where `me` stores the bytes that it receives in the round of this reach.
    #[inline]
    pub(super) fn incoming(&mut self, me: usize, reach: usize, members: usize) -> &mut [u8] {
        match self {
            PiggybackData::Blocks {
                all, each, wanted, ..
            } => {
                let count = wanted.blocks_to_send((me + reach) % members, reach, members);
                &mut all[reach * *each..][..count * *each]
            }
            PiggybackData::Spread { data, distance } if (reach..2 * reach).contains(distance) => {
                data
            }
            PiggybackData::Dealt {
                parts,
                each,
                distance,
            } if (reach..2 * reach).contains(distance) => {
                &mut parts[forwarded(*distance, reach, members, *each)]
            }
            _ => &mut [],
        }
    }
}

/// The range of the parts that a member receives in the round of this reach; it is `distance` before the
/// dealing member. They are its own part and those that it forwards, to every second multiple of the reach
/// before it.
fn forwarded(distance: usize, reach: usize, members: usize, each: usize) -> Range<usize> {
    let first = dealt_position(distance, members);
    let count = (members - distance).div_ceil(2 * reach);
    first * each..(first + count) * each
}

/// The position of the part for the member `distance` before the [dealing](PiggybackData::Dealt) member.
/// Parts are sorted by distance with its bits reversed. So the parts that a member forwards are contiguous,
/// and its own is the first of them.
pub(super) fn dealt_position(distance: usize, members: usize) -> usize {
    let bits = (0..usize::BITS - distance.leading_zeros()).map(|bit| 1 << bit);
    bits.filter(|bit| distance & bit != 0)
        // All distances with this bit clear and the same lower bits come first.
        .map(|bit| (members - distance % bit).div_ceil(2 * bit))
        .sum()
}

/// Returns whether blocks of `each` bytes from each of `members` fit on an agreement.
pub(super) fn fits(layout: &Layout, members: usize, each: usize) -> bool {
    if layout.is_flat() {
        each <= SMALL
    } else {
        // No message carries more than half of the blocks.
        (each.checked_mul(members)).is_some_and(|bytes| bytes <= 2 * SMALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the rounds of all members of a team that is not flat.
    fn do_rounds(payloads: &mut [PiggybackData<'_>]) {
        let members = payloads.len();
        let mut reach = 1;
        while reach < members {
            let sent: Vec<Vec<u8>> = (payloads.iter().enumerate())
                .map(|(me, payload)| payload.outgoing(me, reach, members).to_vec())
                .collect();
            for (me, payload) in payloads.iter_mut().enumerate() {
                let incoming = payload.incoming(me, reach, members);
                incoming.copy_from_slice(&sent[(me + reach) % members]);
            }
            reach *= 2;
        }
    }

    #[test]
    fn blocks_come_to_all_who_want_them() {
        const EACH: usize = 3;
        for members in 1..=20 {
            let wanted = (0..members).map(Wanted::ByMember);
            for wanted in wanted.chain([Wanted::ByAll, Wanted::Behind]) {
                let block = |member: usize| [member as u8 + 1; EACH];
                let mut payloads: Vec<_> = (0..members)
                    .map(|me| PiggybackData::of_all(&block(me), members, wanted, false))
                    .collect();
                do_rounds(&mut payloads);
                for (me, payload) in payloads.into_iter().enumerate() {
                    let PiggybackData::Blocks { all, .. } = payload else {
                        unreachable!("they were made so");
                    };
                    let by_place = all.chunks(EACH).enumerate();
                    for (of, got) in
                        by_place.map(|(position, got)| ((me + position) % members, got))
                    {
                        assert!(
                            !wanted.is_wanted_by(me, of) || got == block(of),
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
            let mut positions: Vec<usize> =
                (0..members).map(|at| dealt_position(at, members)).collect();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(0..members));
            for root in 0..members {
                let mut parts = vec![vec![0; members * EACH]; members];
                let distance = |member: usize| (root + members - member) % members;
                for member in 0..members {
                    let position = dealt_position(distance(member), members);
                    parts[root][position * EACH..][..EACH].fill(member as u8 + 1);
                }
                let mut payloads: Vec<_> = (parts.iter_mut().enumerate())
                    .map(|(me, parts)| PiggybackData::Dealt {
                        parts,
                        each: EACH,
                        distance: distance(me),
                    })
                    .collect();
                do_rounds(&mut payloads);
                for (me, parts) in parts.iter().enumerate() {
                    let position = dealt_position(distance(me), members);
                    assert_eq!(parts[position * EACH..][..EACH], [me as u8 + 1; EACH]);
                }
            }
        }
    }

    #[test]
    fn of_two_only_who_is_to_give_something_tells_it() {
        assert_eq!(
            [0, 1].map(|me| Wanted::ByMember(0).blocks_to_send(me, 1, 2)),
            [0, 1]
        );
        assert_eq!(
            [0, 1].map(|me| Wanted::ByMember(1).blocks_to_send(me, 1, 2)),
            [1, 0]
        );
        assert_eq!(
            [0, 1].map(|me| Wanted::ByAll.blocks_to_send(me, 1, 2)),
            [1, 1]
        );
    }
}
