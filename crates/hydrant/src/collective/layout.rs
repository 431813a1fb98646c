//! Offsets in a team's scratch, the same at every member.
//!
//! ```text
//! 0          ledger: state of the owner, and the count of members that dropped the team
//! lines      of the agreement: [parity][round], written by the sender of the round
//! flags      one for each channel: units sent, written by the channel's sender, with what it
//!            [wrote](super::streams) to the receiver's buffer
//! credits    one for each member, written by that member: units that this member may send it, the last
//!            agreement in which it found a mismatch, the buffer that it has [cleared](super::streams)
//! piggyback  piggybacked data of the agreement: [parity][round]
//! slots      of the channels: [channel][slot]
//! ```
//!
//! A [flat](Layout::is_flat) team has words of members in place of credits, and boards in place of
//! channels. Its piggybacked data is written by the owner of the scratch:
//!
//! ```text
//! piggyback  [parity][round]: a part for the receiver of the round; or in round 0, data for all
//! members    one for each member, written by it: slots of its stream shown, slots of this stream read
//! board      data that the owner shows: [parity]
//! ```

/// Most piggybacked bytes of one message of the agreement.
pub(super) const SMALL: usize = 4096;
/// Room for the arguments of a message that stores [bytes and a flag](super::stores).
pub(super) const FRONT: usize = 4 * size_of::<u64>();
/// Bytes of a chunk in a channel. Where scratch is not mapped, a chunk is four messages. Each fills one
/// packet on a network with packets of 4096 bytes.
pub(super) const CHUNK: usize = 4 * (4096 - FRONT);
/// From this many bytes on, a receiver clears its buffer for data to be [written](super::streams) there.
pub(super) const DIRECT: usize = 8 * CHUNK;
/// Bytes that are forwarded at once where data is written directly. Fewer bytes delay the next member less;
/// more bytes need fewer messages. Data that members fold goes in chunks, so that one is
/// folded while the next arrives.
pub(super) const PIECE: usize = 16 * CHUNK;
/// Chunks that a channel holds.
pub(super) const SLOTS: usize = 4;

/// Bytes of a flat team's board, for each parity of agreements.
pub(super) const BOARD: usize = 256 << 10;
/// The same in the team of all ranks if there are two. The board is larger than a processor's own cache, so
/// that a slot has left the reader's cache before it is written again. With more ranks, each rank would
/// first touch the pages of all boards, which takes milliseconds.
pub(super) const BOARD_OF_TWO: usize = 1 << 20;
/// Most members of a flat team: with more, sending to each member would take longer than rounds.
const FLAT: usize = 16;

/// A word that a member spins on gets two cache lines, because processors fetch the neighbouring line, too.
const ALONE: usize = 128;
/// Credits are read only once for each chunk.
const CREDIT: usize = 64;

/// Offset of the ledger.
pub(super) const LEDGER: usize = 0;
/// Word of the ledger: members that have dropped the team.
pub(super) const DROPPED: usize = 0;
/// Word of the ledger: the last agreement that ended at the owner.
pub(super) const AGREED: usize = 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    members: usize,
    /// Rounds of an agreement. In a flat team, round r connects members at distance r + 1.
    pub(super) rounds: usize,
    is_flat: bool,
    /// Bytes of a board in a flat team.
    board_len: usize,
}

impl Layout {
    /// The layout for `members` members. `mapped` says that each maps the scratch of all others.
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

    /// Returns whether each member sends to all others in the agreement, and shows its data on a board.
    pub(super) fn is_flat(&self) -> bool {
        self.is_flat
    }

    /// The distance between sender and receiver of a round.
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

    /// In the line of a flag: the record of a unit that was written directly.
    pub(super) fn written(&self, channel: usize, unit: usize) -> usize {
        self.flag(channel) + size_of::<u64>() + unit % SLOTS * (2 * size_of::<u64>())
    }

    pub(super) fn credit(&self, member: usize) -> usize {
        let flags = if self.is_flat { 0 } else { self.rounds };
        self.flag(flags) + member * CREDIT
    }

    /// The words of a member in a flat team.
    pub(super) fn words(&self, member: usize) -> usize {
        self.credit(member)
    }

    /// In the line of a member's credit: its last agreement with a mismatch.
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

    /// Start of the boards in a flat team, one for each parity.
    pub(super) fn board(&self) -> usize {
        self.piggyback(2, 0)
    }

    /// Bytes of each board.
    pub(super) fn board_len(&self) -> usize {
        self.board_len
    }

    /// Bytes of the whole scratch.
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
