//! The own bytes that are persistent: they go only after the engine has revoked them.

use std::collections::BTreeMap;

/// A range of memory: its address and its bytes.
pub(super) type AddressRange = (u64, u64);

/// The bytes of a set of ranges, which may overlap. Each query takes one look-up, however many
/// ranges there are.
#[derive(Default)]
pub(super) struct PersistentRanges {
    /// From each address up to the next one, the number of ranges that hold the bytes. Neighbours
    /// differ. No range holds bytes before the first address or from the last one on.
    ranges: BTreeMap<u64, u64>,
}

impl PersistentRanges {
    /// Adds a range.
    pub(super) fn add(&mut self, range: AddressRange) {
        self.change(range, |ranges| ranges + 1);
    }

    /// Removes a range that was added.
    pub(super) fn remove(&mut self, range: AddressRange) {
        self.change(range, |ranges| {
            debug_assert!(ranges > 0, "a range was removed that was not added");
            ranges.saturating_sub(1)
        });
    }

    /// Returns the end of the last held bytes before `end`, if they reach beyond `start`. Held
    /// bytes that reach beyond `end` end where their count next changes.
    pub(super) fn reach_beyond(&self, start: u64, end: u64) -> Option<u64> {
        let (from, ranges) = self.ranges.range(..end).next_back()?;
        let stop = match ranges {
            // The bytes before the entry were the last.
            0 => *from,
            _ => *self.ranges.range(end..).next()?.0,
        };
        (stop > start).then_some(stop)
    }

    /// Returns the first address from `start` on at which held bytes begin.
    pub(super) fn next_begin(&self, start: u64) -> Option<u64> {
        let mut later = self.ranges.range(start..);
        later.find(|(_, ranges)| **ranges > 0).map(|(at, _)| *at)
    }

    fn change(&mut self, (start, len): AddressRange, change: impl Fn(u64) -> u64) {
        let end = start.saturating_add(len);
        if start == end {
            return;
        }
        self.split(start);
        self.split(end);
        for (_, ranges) in self.ranges.range_mut(start..end) {
            *ranges = change(*ranges);
        }
        self.join(end);
        self.join(start);
    }

    /// Returns the number of ranges that hold the byte before an address.
    fn before(&self, addr: u64) -> u64 {
        let last = self.ranges.range(..addr).next_back();
        last.map_or(0, |(_, ranges)| *ranges)
    }

    /// Makes an entry begin at an address.
    fn split(&mut self, addr: u64) {
        let before = self.before(addr);
        self.ranges.entry(addr).or_insert(before);
    }

    /// Removes the entry at an address if it equals the one before it.
    fn join(&mut self, addr: u64) {
        if self.ranges.get(&addr) == Some(&self.before(addr)) {
            self.ranges.remove(&addr);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the end of the held bytes without a gap that contain the last held byte before
    /// `end`.
    fn naive(ranges: &[AddressRange], start: u64, end: u64) -> Option<u64> {
        let covered =
            |addr: u64| (ranges.iter()).any(|(from, len)| (*from..from + len).contains(&addr));
        let last = (0..end).rev().find(|addr| covered(*addr))?;
        let stop = (last..).find(|addr| !covered(*addr))?;
        (stop > start).then_some(stop)
    }

    proptest! {
        #[test]
        fn bytes_are_found_where_ranges_overlap(
            steps in prop::collection::vec((0_u64..40, 0_u64..12, any::<prop::sample::Index>(), any::<bool>()), 1..40),
        ) {
            let mut persistent = PersistentRanges::default();
            let mut ranges = Vec::new();
            for (start, len, which, grows) in steps {
                if grows || ranges.is_empty() {
                    persistent.add((start, len));
                    ranges.push((start, len));
                } else {
                    let range = ranges.swap_remove(which.index(ranges.len()));
                    persistent.remove(range);
                }
                for start in 0..52 {
                    for end in start + 1..start + 5 {
                        let found = persistent.reach_beyond(start, end);
                        let right = naive(&ranges, start, end);
                        // Bytes that follow without a gap may belong to other ranges.
                        prop_assert_eq!(found.is_some(), right.is_some());
                        prop_assert!(found <= right);
                    }
                }
            }
            for range in ranges {
                persistent.remove(range);
            }
            prop_assert!(persistent.ranges.is_empty());
        }
    }

    #[test]
    fn thousands_of_ranges_leave_nothing_behind() {
        const RANGES: u64 = 16_000;
        let range = |number: u64| (0x1000 + number * 0x100, 0x80);
        let shuffled = || (0..RANGES).map(|number| number * 7919 % RANGES);
        let mut persistent = PersistentRanges::default();
        shuffled().for_each(|number| persistent.add(range(number)));
        for number in shuffled() {
            let (start, len) = range(number);
            assert_eq!(persistent.reach_beyond(start, start + 1), Some(start + len));
            assert_eq!(persistent.reach_beyond(start + len, start + 0x100), None);
            persistent.remove((start, len));
            assert_eq!(persistent.reach_beyond(start, start + 0x100), None);
        }
        assert!(persistent.ranges.is_empty());
    }
}
