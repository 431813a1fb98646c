//! How wide an extent is to be: as wide as the misses before it suggest.

use crate::Run;

/// How misses follow each other: in sequence or not.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    expected: u64,
    width: u64,
    /// Buckets that came in sequence, up to the last one.
    streak: u64,
}

impl Pattern {
    /// How many buckets to ask for from the first of a miss on. Misses in sequence widen it up
    /// to where the cost of a call hardly matters; any other makes it as small as the need.
    pub(super) fn width(&mut self, need: Run, amortised: u64) -> u64 {
        let in_sequence = need.first == self.expected && need.first != 0;
        self.width = if in_sequence {
            (self.width * 2).clamp(need.count, amortised.max(need.count))
        } else {
            need.count
        };
        self.expected = need.first + self.width;
        self.width
    }

    /// How many buckets have come in sequence with these, if they do.
    pub(super) fn streak(&self, need: Run) -> u64 {
        match need.first {
            0 => need.count,
            first if first == self.expected => self.streak + need.count,
            // The last of them again.
            _ if need.end() == self.expected => self.streak.max(need.count),
            _ => need.count,
        }
    }

    /// A miss was seen of which so many buckets were, or are being, dealt with.
    pub(super) fn follow(&mut self, need: Run, width: u64) {
        self.streak = self.streak(need) - need.count + width;
        self.expected = need.first + width;
    }
}
