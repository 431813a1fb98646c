//! A map of bounded size that forgets entries that were not used for long.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Entries of two generations. When the young are too many, they become the old, and the old are forgotten. An old
/// entry that is used becomes young. So the last `most / 2` entries used are always present. Each step takes constant
/// time, and there are never more than `most` entries.
#[derive(Clone, Debug)]
pub(super) struct Generations<K, V> {
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
    most_young: usize,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            most_young: (most / 2).max(1),
        }
    }

    /// Sets the number of entries kept from now on. A map that has more shrinks with its next entries.
    pub(super) fn keep_at_most(&mut self, most: usize) {
        self.most_young = (most / 2).max(1);
        if self.old.len() > self.most_young {
            self.old = FxHashMap::default();
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            return Some(self.add(key, value));
        }
        self.young.get_mut(key)
    }

    pub(super) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let value = match self.old.remove(&key) {
            Some(value) => value,
            // The second lookup satisfies the borrow checker, which extends an early return's borrow to the end.
            None if self.young.contains_key(&key) => {
                return self.young.get_mut(&key).expect("it is there");
            }
            None => make(),
        };
        self.add(key, value)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.young.values().chain(self.old.values())
    }

    fn add(&mut self, key: K, value: V) -> &mut V {
        if self.young.len() >= self.most_young {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(key).or_insert(value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn recently_used_entries_are_kept(
            most in 2usize..20,
            keys in prop::collection::vec(0u32..30, 0..300),
        ) {
            let mut map = Generations::new(most);
            for (at, &key) in keys.iter().enumerate() {
                let before: std::collections::BTreeSet<u32> =
                    keys[..at].iter().rev().scan(Default::default(), |seen: &mut std::collections::BTreeSet<u32>, &it| {
                        seen.insert(it);
                        (seen.len() <= most / 2).then_some(it)
                    }).collect();
                let mut made = false;
                let value = map.get_or_insert_with(key, || { made = true; key });
                prop_assert_eq!(*value, key);
                prop_assert!(!made || !before.contains(&key), "{} was forgotten", key);
                prop_assert!(map.len() <= most);
            }
        }
    }

    #[test]
    fn a_map_that_is_to_keep_less_shrinks() {
        let mut map = Generations::new(100);
        for key in 0..100 {
            map.get_or_insert_with(key, || key);
        }
        map.keep_at_most(10);
        for key in 100..120 {
            map.get_or_insert_with(key, || key);
        }
        assert!(map.len() <= 10, "{}", map.len());
        assert_eq!(map.get_mut(&119), Some(&mut 119));
    }

    #[test]
    fn a_removed_entry_is_gone() {
        let mut map = Generations::new(4);
        for key in 0..3 {
            map.get_or_insert_with(key, || key);
        }
        assert_eq!(map.get_mut(&0), Some(&mut 0));
        assert_eq!(map.remove(&0), Some(0));
        assert_eq!(map.get_mut(&0), None);
    }
}
