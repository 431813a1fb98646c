//! Where everything lies in a team's scratch, alike at every member.
//!
//! ```text
//! 0          ledger: what the owner tells of itself, and who is done with the piece
//! lines      of the agreement: [parity][round], written by the member that precedes in the round
//! flags      one a channel: chunks filled, written by the channel's sender, and what it
//!            [wrote](super::direct) to the receiver's buffer
//! credits    one a member: chunks that I may send it, the last agreement in which it found a
//!            mismatch, and which buffer of its own it has [cleared](super::direct) for me, all
//!            written by it
//! piggyback  what rides on the agreement: [parity][round]
//! slots      of the channels: [channel][slot]
//! ```
//!
//! A team that is [flat](Layout::is_flat) has other members' words in place of credits, and boards in
//! place of channels, and what rides is written by its owner:
//!
//! ```text
//! piggyback  [parity][round]: a part for the member told in the round; or in the first, what all need
//! members    one each: how far its stream to me is, and how far it has read mine, written by it
//! board      what I show to all: [parity]
//! ```

/// Bytes that ride on a message of the agreement.
pub(super) const SMALL: usize = 4096;
/// Room for the arguments of a message by which [bytes and a flag](super::stores) are stored.
pub(super) const FRONT: usize = 4 * size_of::<u64>();
/// Bytes of a chunk in a channel. Where scratch is not mapped: four messages, each one packet on a network whose
/// packets hold 4096 bytes.
pub(super) const CHUNK: usize = 4 * (4096 - FRONT);
/// From how many bytes on a receiver clears its buffer for data to be [written](super::direct) there.
pub(super) const DIRECT: usize = 8 * CHUNK;
/// Bytes of what is passed on at once, where it is written: less is less delay for whoever has nothing yet, more is
/// fewer messages. What more than two members fold goes in chunks, so that one is folded while the next comes.
pub(super) const PIECE: usize = 16 * CHUNK;
/// Chunks that a channel holds.
pub(super) const SLOTS: usize = 4;

/// Bytes that a member of a flat team shows at once, in each parity of agreements.
pub(super) const BOARD: usize = 256 << 10;
/// The same in the team of all ranks, if these are two: more than a processor's own cache, so that what is written
/// again is not in the reader's. Of more ranks each would touch the pages of all boards for the first time, which takes
/// milliseconds.
pub(super) const BOARD_OF_TWO: usize = 1 << 20;
/// Members of a team in which each tells each other by itself: more would take longer than rounds do.
const FLAT: usize = 16;

/// Words that one side spins on stand alone: two lines, for processors that fetch the
/// neighbour too.
const ALONE: usize = 128;
/// Credits are looked at once a chunk.
const CREDIT: usize = 64;

/// What this member tells of itself.
pub(super) const LEDGER: usize = 0;
/// In the ledger: how many members have dropped the team.
pub(super) const DROPPED: usize = 0;
/// In the ledger: the last agreement that this member brought to its end.
pub(super) const AGREED: usize = 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    members: usize,
    /// In a flat team, one for each other member, at the distance of its number and one.
    pub(super) rounds: usize,
    is_flat: bool,
    /// Of a flat team: bytes of a board.
    board_len: usize,
}

impl Layout {
    /// The layout of a team, `mapped`: of which each member maps the scratch of each. Boards have `board_len` bytes.
    pub(super) fn new(members: usize, mapped: bool, board_len: usize) -> Self {
        let is_flat = mapped && (2..=FLAT).contains(&members);
        let rounds = if is_flat {
            members - 1
        } else {
            members.max(1).next_power_of_two().trailing_zeros() as usize
        };
        Self {
            members,
            rounds,
            is_flat,
            board_len,
        }
    }

    /// Whether each member tells all others in the agreement, and shows its data on a board.
    pub(super) fn is_flat(&self) -> bool {
        self.is_flat
    }

    /// How far the members of a round stand from this one.
    #[inline]
    pub(super) fn distance(&self, round: usize) -> usize {
        if self.is_flat { round + 1 } else { 1 << round }
    }

    pub(super) fn line(&self, parity: usize, round: usize) -> usize {
        ALONE + (parity * self.rounds + round) * ALONE
    }

    pub(super) fn flag(&self, channel: usize) -> usize {
        self.line(2, 0) + channel * ALONE
    }

    /// In the line of a flag: what was written as a unit of the channel.
    pub(super) fn written(&self, channel: usize, unit: usize) -> usize {
        self.flag(channel) + size_of::<u64>() + unit % SLOTS * (2 * size_of::<u64>())
    }

    pub(super) fn credit(&self, member: usize) -> usize {
        let flags = if self.is_flat { 0 } else { self.rounds };
        self.flag(flags) + member * CREDIT
    }

    /// Of a flat team: the words of a member.
    pub(super) fn words(&self, member: usize) -> usize {
        self.credit(member)
    }

    /// In the line of a member's credit.
    pub(super) fn mismatch(&self, member: usize) -> usize {
        self.credit(member) + size_of::<u64>()
    }

    /// In the line of a member's credit: the buffer that it has cleared.
    pub(super) fn cleared(&self, member: usize) -> usize {
        self.credit(member) + 2 * size_of::<u64>()
    }

    /// Bytes that are zero when the team begins.
    pub(super) fn control(&self) -> usize {
        self.credit(self.members)
    }

    pub(super) fn piggyback(&self, parity: usize, round: usize) -> usize {
        self.control().next_multiple_of(SMALL) + (parity * self.rounds + round) * SMALL
    }

    pub(super) fn slot(&self, channel: usize, slot: usize) -> usize {
        self.piggyback(2, 0) + (channel * SLOTS + slot) * CHUNK
    }

    /// Of a flat team: where its boards begin, one for each parity.
    pub(super) fn board(&self) -> usize {
        self.piggyback(2, 0)
    }

    /// Bytes of each of them.
    pub(super) fn board_len(&self) -> usize {
        self.board_len
    }

    /// Bytes in all.
    pub(super) fn total(&self) -> usize {
        if self.is_flat {
            self.board() + 2 * self.board_len
        } else {
            self.slot(self.rounds, 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let all = [1, 2, 3, 8, 9, 16, 17, 64, 1000];
        for (members, mapped, board_len) in all.into_iter().flat_map(|members| {
            [
                (members, false, BOARD),
                (members, true, BOARD),
                (members, true, BOARD_OF_TWO),
            ]
        }) {
            let layout = Layout::new(members, mapped, board_len);
            let mut parts = vec![(LEDGER, ALONE)];
            if layout.is_flat() {
                assert!(mapped && members <= FLAT);
                assert_eq!(layout.rounds, members - 1);
                parts.push((layout.board(), 2 * board_len));
            } else {
                assert!(1 << layout.rounds >= members && (1 << layout.rounds) < 2 * members);
                for channel in 0..layout.rounds {
                    parts.push((layout.flag(channel), ALONE));
                    parts.extend((0..SLOTS).map(|slot| (layout.slot(channel, slot), CHUNK)));
                }
            }
            for round in 0..layout.rounds {
                for parity in 0..2 {
                    parts.push((layout.line(parity, round), ALONE));
                    parts.push((layout.piggyback(parity, round), SMALL));
                }
            }
            parts.extend((0..members).map(|member| (layout.credit(member), CREDIT)));
            parts.sort_unstable();
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{members}: {pair:?}");
            }
            let last = parts[parts.len() - 1];
            assert!(last.0 + last.1 <= layout.total().max(layout.control()));
        }
    }
}
