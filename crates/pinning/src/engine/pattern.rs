//! How wide an extent is to be: as wide as the misses before it suggest.

use crate::Run;

/// How misses follow each other: in sequence or not.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    expected: u64,
    width: u64,
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
}
