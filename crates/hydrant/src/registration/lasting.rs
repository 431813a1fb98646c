//! Which own bytes go only after they were taken back.

use std::collections::BTreeMap;

use super::lent::Place;

/// The bytes of some places, which may share bytes. What it is asked takes time for one look-up,
/// however many places there are.
#[derive(Default)]
pub(super) struct Lasting {
    /// In how many places the bytes lie from an address on, up to the next address. Neighbours
    /// differ, there is no place before the first address, and none from the last one on.
    places: BTreeMap<u64, u64>,
}

impl Lasting {
    /// Adds a place.
    pub(super) fn add(&mut self, place: Place) {
        self.change(place, |places| places + 1);
    }

    /// Takes out a place that was added.
    pub(super) fn remove(&mut self, place: Place) {
        self.change(place, |places| {
            debug_assert!(places > 0, "a place was taken out that was not added");
            places.saturating_sub(1)
        });
    }

    /// Where bytes of places end that lie between `start` and `end` or reach into that, if there
    /// are such.
    pub(super) fn reach_beyond(&self, start: u64, end: u64) -> Option<u64> {
        let (from, places) = self.places.range(..end).next_back()?;
        let stop = match places {
            // The bytes before it were the last.
            0 => *from,
            _ => *self.places.range(end..).next()?.0,
        };
        (stop > start).then_some(stop)
    }

    fn change(&mut self, (start, len): Place, change: impl Fn(u64) -> u64) {
        let end = start.saturating_add(len);
        if start == end {
            return;
        }
        self.split(start);
        self.split(end);
        for (_, places) in self.places.range_mut(start..end) {
            *places = change(*places);
        }
        self.join(end);
        self.join(start);
    }

    /// In how many places the bytes before an address lie.
    fn before(&self, addr: u64) -> u64 {
        let last = self.places.range(..addr).next_back();
        last.map_or(0, |(_, places)| *places)
    }

    /// Has an entry begin at an address.
    fn split(&mut self, addr: u64) {
        let before = self.before(addr);
        self.places.entry(addr).or_insert(before);
    }

    /// Leaves out the entry at an address if it says what the one before it says.
    fn join(&mut self, addr: u64) {
        if self.places.get(&addr) == Some(&self.before(addr)) {
            self.places.remove(&addr);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where the bytes of the last place end that begins before `end`, and those of the places
    /// that go on from there.
    fn naive(places: &[Place], start: u64, end: u64) -> Option<u64> {
        let covered =
            |addr: u64| (places.iter()).any(|(from, len)| (*from..from + len).contains(&addr));
        let last = (0..end).rev().find(|addr| covered(*addr))?;
        let stop = (last..).find(|addr| !covered(*addr))?;
        (stop > start).then_some(stop)
    }

    proptest! {
        #[test]
        fn bytes_are_found_wherever_places_overlap(
            steps in prop::collection::vec((0_u64..40, 0_u64..12, any::<prop::sample::Index>(), any::<bool>()), 1..40),
        ) {
            let mut lasting = Lasting::default();
            let mut places = Vec::new();
            for (start, len, which, grows) in steps {
                if grows || places.is_empty() {
                    lasting.add((start, len));
                    places.push((start, len));
                } else {
                    let place = places.swap_remove(which.index(places.len()));
                    lasting.remove(place);
                }
                for start in 0..52 {
                    for end in start + 1..start + 5 {
                        let found = lasting.reach_beyond(start, end);
                        let right = naive(&places, start, end);
                        // What joins it without a gap may end in other places.
                        prop_assert_eq!(found.is_some(), right.is_some());
                        prop_assert!(found <= right);
                    }
                }
            }
            for place in places {
                lasting.remove(place);
            }
            prop_assert!(lasting.places.is_empty());
        }
    }

    #[test]
    fn thousands_of_places_leave_nothing_behind() {
        const PLACES: u64 = 16_000;
        let place = |number: u64| (0x1000 + number * 0x100, 0x80);
        let shuffled = || (0..PLACES).map(|number| number * 7919 % PLACES);
        let mut lasting = Lasting::default();
        shuffled().for_each(|number| lasting.add(place(number)));
        for number in shuffled() {
            let (start, len) = place(number);
            assert_eq!(lasting.reach_beyond(start, start + 1), Some(start + len));
            assert_eq!(lasting.reach_beyond(start + len, start + 0x100), None);
            lasting.remove((start, len));
            assert_eq!(lasting.reach_beyond(start, start + 0x100), None);
        }
        assert!(lasting.places.is_empty());
    }
}
