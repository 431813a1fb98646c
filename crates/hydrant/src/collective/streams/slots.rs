//! Slots of a stream on a [board](super::board), and the words that count them.

use crate::collective::layout::BOARD;

/// The bit of a word that tells the phases of a collective apart. Lower bits count slots; higher bits
/// number the agreement.
pub(super) const PHASE: u32 = 24;

/// Slots of a stream on the board at once, if there is room: one is read while the next is written.
const SLOTS: usize = 4;
/// Slots are multiples of a cache line.
const LINE: usize = 64;
/// Most bytes of a slot: readers have nothing to do until the first slot is full.
const LONGEST: usize = 32 << 10;
/// Least bytes of a slot that members forward to each other.
const SHORTEST: usize = 4 << 10;
/// The cost of forwarding a slot, in bytes that are combined in that time.
const PASSING: usize = 4 << 10;

/// A phase in which a collective moves data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::collective) enum DataPhase {
    /// The only one.
    Only,
    /// The first of two.
    First,
    /// The second of two.
    Second,
}

/// A phase of the collective whose agreement has this number.
pub(in crate::collective) type PhaseId = (u64, DataPhase);

/// Where the slots of a stream lie on a board. Writer and readers compute the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamSlots {
    at: usize,
    each: usize,
    pub(super) count: usize,
    /// The slot, of `count`, with which the stream begins.
    first: usize,
}

/// The value from which the words of a phase count. It leaves room for 2^24 slots. No stream has half as
/// many, because a slot has at least a KiB, and none is shown more than twice.
pub(super) fn base(sequence: u64, phase: DataPhase) -> u64 {
    // Bits lost at the top are lost alike everywhere, and only words close to each other are compared.
    sequence << (PHASE + 1) | u64::from(phase == DataPhase::Second) << PHASE
}

/// How many of `all` slots a word counts.
#[inline]
pub(super) fn count(word: u64, base: u64, all: usize) -> usize {
    // A word of an earlier phase is behind `base`, one of a later phase far ahead. A member in a later
    // phase has shown all of this one. A member that abandoned this phase shows nothing later
    // (`streams::DataGuard`).
    match word.wrapping_sub(base) {
        ahead if ahead.cast_signed() > 0 => ahead.min(all as u64) as usize,
        _ => 0,
    }
}

impl StreamSlots {
    /// The slots of stream `stream.0` of `stream.1` on a board of `len` bytes, in phase `at`. The length of
    /// a slot is a multiple of `unit`.
    pub(super) fn new(
        len: usize,
        at: PhaseId,
        stream: (usize, usize),
        unit: usize,
    ) -> Option<Self> {
        Self::up_to(LONGEST, len, at, stream, unit)
    }

    /// The slots of a stream of `bytes` that has a whole board of `len` bytes. Each member but the first
    /// takes it from its predecessor, combines it, and forwards it, `hops` times in all.
    ///
    /// Until a member has forwarded its first slot, its successors idle, so slots should be short. But
    /// every slot costs the time to [forward](PASSING) it. With slots of `s` bytes, the last one is done
    /// after `(hops + bytes / s) * (PASSING + s)`. The length chosen here minimizes this.
    pub(super) fn forwarded(
        len: usize,
        at: PhaseId,
        (bytes, hops): (usize, usize),
        unit: usize,
    ) -> Option<Self> {
        let best = (PASSING.saturating_mul(bytes) / hops.max(1)).isqrt();
        let longest = best.next_multiple_of(LINE).clamp(SHORTEST, LONGEST);
        Self::up_to(longest.max(unit.min(LONGEST)), len, at, (0, 1), unit)
    }

    /// As [`new`](Self::new), with slots of `longest` bytes at most.
    fn up_to(
        longest: usize,
        len: usize,
        (sequence, phase): PhaseId,
        (number, streams): (usize, usize),
        unit: usize,
    ) -> Option<Self> {
        let (start, room) = match phase {
            DataPhase::Only => (0, len),
            DataPhase::First => (0, len / 2),
            DataPhase::Second => (len / 2, len / 2),
        };
        let room = room / streams / LINE * LINE;
        let each = (room / SLOTS / LINE * LINE).clamp(LINE, longest);
        let each = each / unit * unit;
        (each > 0).then(|| {
            let count = room / each;
            Self {
                at: (sequence & 1) as usize * len + start + number * room,
                each,
                count,
                first: if len > BOARD {
                    first_slot(sequence >> 1, count)
                } else {
                    0
                },
            }
        })
    }

    /// Start of slot `number` in the stream's data.
    pub(super) fn start(&self, number: usize) -> usize {
        number * self.each
    }

    /// The number of whole slots in `bytes`, but at least one.
    pub(super) fn within(&self, bytes: usize) -> usize {
        (bytes / self.each).max(1)
    }

    /// The number of slots for `len` bytes.
    pub(super) fn of(&self, len: usize) -> usize {
        len.div_ceil(self.each)
    }

    /// Offset of slot `number` on the board.
    pub(super) fn place(&self, number: usize) -> usize {
        self.at + (self.first + number) % self.count * self.each
    }

    /// The number of elements of `size` bytes in a slot.
    pub(super) fn elements(&self, size: usize) -> usize {
        self.each / size
    }

    /// The bytes of slot `number`, of `len` in all.
    pub(super) fn range(&self, number: usize, len: usize) -> std::ops::Range<usize> {
        self.start(number)..len.min(self.start(number + 1))
    }
}

/// The slot, of `count`, with which the stream of turn `turn` begins. It is far from those of recent turns.
/// So short streams use the whole board, and a slot has left the reader's own cache when it is written
/// again.
fn first_slot(turn: u64, count: usize) -> usize {
    const GOLDEN: u32 = 0x9E37_79B9;
    let part = (turn as u32).wrapping_mul(GOLDEN);
    ((u64::from(part) * count as u64) >> u32::BITS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::layout::BOARD_OF_TWO;

    const PHASES: [DataPhase; 3] = [DataPhase::Only, DataPhase::First, DataPhase::Second];

    #[test]
    fn slots_of_streams_do_not_overlap() {
        for (streams, len) in
            (1..=15).flat_map(|streams| [(streams, BOARD), (streams, BOARD_OF_TWO)])
        {
            let mut parts = Vec::new();
            for at in [
                (4, DataPhase::First),
                (4, DataPhase::Second),
                (5, DataPhase::Only),
            ] {
                for number in 0..streams {
                    let slots = StreamSlots::new(len, at, (number, streams), 1).unwrap();
                    assert!(slots.count >= SLOTS, "{slots:?}");
                    parts.extend((0..slots.count).map(|slot| (slots.place(slot), slots.each)));
                    assert_eq!(slots.place(0), slots.place(slots.count));
                }
            }
            parts.sort_unstable();
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{streams}: {pair:?}");
            }
            let last = parts[parts.len() - 1];
            assert!(last.0 + last.1 <= 2 * len);
        }
    }

    #[test]
    fn short_streams_come_back_to_a_slot_late() {
        for count in [4, 7, 16, 31, 32] {
            for first in 0..1000 {
                let begins: Vec<usize> = (first..)
                    .take(count / 2)
                    .map(|turn| first_slot(turn, count))
                    .collect();
                assert!(begins.iter().all(|slot| *slot < count));
                assert!(
                    (1..begins.len()).all(|at| begins[at] != begins[at - 1]),
                    "{begins:?}"
                );
                let mut apart = begins.clone();
                apart.sort_unstable();
                apart.dedup();
                assert!(apart.len() * 3 >= begins.len() * 2, "{count}: {begins:?}");
            }
        }
    }

    #[test]
    fn slots_hold_whole_elements_or_there_are_none() {
        for (unit, is_there) in [(1, true), (24, true), (1000, true), (BOARD, false)] {
            let slots = StreamSlots::new(BOARD, (0, DataPhase::First), (0, 3), unit);
            assert_eq!(slots.is_some(), is_there, "{unit}");
            assert!(slots.is_none_or(|slots| slots.each.is_multiple_of(unit)));
        }
    }

    #[test]
    fn what_is_passed_on_goes_in_slots_that_are_shorter_the_more_members_pass_it_on() {
        let each = |bytes, hops, unit| {
            let slots = StreamSlots::forwarded(BOARD, (0, DataPhase::Only), (bytes, hops), unit);
            slots.map(|slots| slots.each)
        };
        for unit in [1, 8, 24, 40_000, BOARD] {
            let usual = StreamSlots::new(BOARD, (0, DataPhase::Only), (0, 1), unit);
            for (bytes, hops) in [(0, 1), (4096, 3), (1 << 20, 7), (usize::MAX, 1)] {
                let each = each(bytes, hops, unit);
                assert_eq!(each.is_some(), usual.is_some(), "{unit}");
                assert!(each.is_none_or(|each| each.is_multiple_of(unit) && each <= LONGEST));
            }
        }
        assert_eq!(each(4096, 3, 8), Some(SHORTEST));
        assert_eq!(each(4 << 20, 1, 8), Some(LONGEST));
        let by_hops = [1, 3, 7].map(|hops| each(32 << 10, hops, 8).unwrap());
        assert!(by_hops.is_sorted_by(|few, more| few > more), "{by_hops:?}");
    }

    #[test]
    fn words_count_in_their_own_phase_alone() {
        for sequence in [1, 2, u64::MAX >> 25, u64::MAX >> 20] {
            let bases = [DataPhase::First, DataPhase::Second].map(|phase| base(sequence, phase));
            let next = base(sequence + 1, DataPhase::Only);
            for (at, base) in bases.into_iter().enumerate() {
                let counted = |word| count(word, base, 10);
                assert_eq!(
                    [0, 1, 9, 10].map(|slots| counted(base + slots)),
                    [0, 1, 9, 10]
                );
                // A member in a later phase has finished this one.
                assert_eq!(counted(next.wrapping_add(3)), 10);
                assert_eq!(
                    counted(bases[1].wrapping_add(3)),
                    if at == 0 { 10 } else { 3 }
                );
                assert_eq!(count(base.wrapping_add(7), next, 10), 0);
            }
        }
        assert_eq!(count(0, base(1, DataPhase::Only), 10), 0);
        assert_eq!(
            PHASES.map(|phase| base(3, phase) == base(3, DataPhase::Only)),
            [true, true, false]
        );
    }
}
