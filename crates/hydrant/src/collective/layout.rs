//! Where everything lies in a team's scratch, alike at every member.
//!
//! ```text
//! 0          ledger: what the owner tells of itself, and who is done with the piece
//! lines      of the agreement: [parity][round], written by the member that precedes in the round
//! flags      one a channel: chunks filled, written by the channel's sender
//! credits    one a member: chunks that I may send it, and the last agreement in
//!            which it found a mismatch, both written by it
//! piggyback  what rides on the agreement: [parity][round]
//! slots      of the channels: [channel][slot]
//! ```

/// Bytes that ride on a message of the agreement.
pub(super) const SMALL: usize = 4096;
/// Bytes of a chunk in a channel.
pub(super) const CHUNK: usize = 16 << 10;
/// Chunks that a channel holds.
pub(super) const SLOTS: usize = 4;

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
    pub(super) rounds: usize,
}

impl Layout {
    pub(super) fn new(members: usize) -> Self {
        let rounds = members.max(1).next_power_of_two().trailing_zeros() as usize;
        Self { members, rounds }
    }

    pub(super) fn line(&self, parity: usize, round: usize) -> usize {
        ALONE + (parity * self.rounds + round) * ALONE
    }

    pub(super) fn flag(&self, channel: usize) -> usize {
        self.line(2, 0) + channel * ALONE
    }

    pub(super) fn credit(&self, member: usize) -> usize {
        self.flag(self.rounds) + member * CREDIT
    }

    /// In the line of a member's credit.
    pub(super) fn mismatch(&self, member: usize) -> usize {
        self.credit(member) + size_of::<u64>()
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

    /// Bytes in all.
    pub(super) fn total(&self) -> usize {
        self.slot(self.rounds, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        for members in [1, 2, 3, 8, 9, 64, 1000] {
            let layout = Layout::new(members);
            assert!(1 << layout.rounds >= members && (1 << layout.rounds) < 2 * members);
            let mut parts = vec![(LEDGER, ALONE)];
            for round in 0..layout.rounds {
                for parity in 0..2 {
                    parts.push((layout.line(parity, round), ALONE));
                    parts.push((layout.piggyback(parity, round), SMALL));
                }
                parts.push((layout.flag(round), ALONE));
                parts.extend((0..SLOTS).map(|slot| (layout.slot(round, slot), CHUNK)));
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
