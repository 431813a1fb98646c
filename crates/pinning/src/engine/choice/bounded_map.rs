//! A map with a bounded number of keys.
//!
//! The order of arrival decides which keys go, and never the keys' values. A program has its memory
//! at other addresses in each run, and in virtual time each run must be the same.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// A map with a bounded number of keys.
#[derive(Debug)]
pub(super) struct BoundedMap<K, V> {
    /// The entries in use, and some whose keys were removed.
    slots: Vec<(K, V)>,
    index: FxHashMap<K, usize>,
    most: usize,
    /// The slot that is asked next to make room.
    next: usize,
}

impl<K: Copy + Eq + Hash, V: Default> BoundedMap<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            slots: Vec::new(),
            index: FxHashMap::default(),
            most,
            next: 0,
        }
    }

    pub(super) fn get(&self, place: K) -> Option<&V> {
        self.index.get(&place).map(|slot| &self.slots[*slot].1)
    }

    pub(super) fn get_mut(&mut self, place: K) -> Option<&mut V> {
        (self.index.get(&place)).map(|slot| &mut self.slots[*slot].1)
    }

    /// Adds a key that is absent. A full map asks one entry, each in turn, to make room; if it
    /// refuses, nothing is added.
    pub(super) fn add(&mut self, place: K, known: V, makes_room: impl FnOnce(&mut V) -> bool) {
        debug_assert!(!self.index.contains_key(&place));
        if self.slots.len() < self.most {
            self.index.insert(place, self.slots.len());
            self.slots.push((place, known));
            return;
        }
        let slot = self.next;
        self.next = (slot + 1) % self.most;
        let (of, before) = &mut self.slots[slot];
        // A removed key does not stand in the way.
        let is_known = self.index.get(of) == Some(&slot);
        if is_known && !makes_room(before) {
            return;
        }
        if is_known {
            self.index.remove(of);
        }
        self.slots[slot] = (place, known);
        self.index.insert(place, slot);
    }

    pub(super) fn forget(&mut self, place: K) {
        self.index.remove(&place);
    }

    /// Removes all keys that `which` names.
    pub(super) fn forget_those(&mut self, which: impl Fn(K) -> bool) {
        self.index.retain(|place, _| !which(*place));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_makes_room_in_turn_unless_it_refuses() {
        let mut places = BoundedMap::new(3);
        (0..3).for_each(|place| places.add(place, place, |_| true));
        let known = |places: &BoundedMap<u64, u64>| {
            let known = (0..10).filter_map(|place| places.get(place).copied());
            known.collect::<Vec<_>>()
        };
        places.add(5, 5, |asked| {
            *asked += 100;
            false
        });
        assert_eq!(known(&places), [100, 1, 2]);
        places.add(6, 6, |_| true);
        assert_eq!(known(&places), [100, 2, 6]);
        places.forget(2);
        places.add(7, 7, |_| panic!("nothing is in its place"));
        assert_eq!(known(&places), [100, 6, 7]);
        // A key that came again, in another slot, is asked once.
        places.forget(0);
        places.add(0, 0, |_| panic!("nothing is in its place"));
        places.forget_those(|place| place == 6);
        places.add(8, 8, |_| panic!("nothing is in its place"));
        assert_eq!(known(&places), [0, 7, 8]);
        assert_eq!(places.len(), 3);
    }
}
