//! An ordered set that keeps the sum of all its items, and of all items after a key: a treap.
//!
//! Each node has the weight of its subtree. So every query takes as many steps as the tree is deep, for any number of
//! regions. The shape depends on the keys alone, and is the same in every run.

use std::cmp::Ordering;

use hydrant_base::mix;

use super::RegionId;

/// The weight of an item, and of many together.
pub(super) trait Weight: Copy + PartialEq {
    /// The weight of this and of the items after it in order.
    fn join(self, later: Self) -> Self;
}

/// A position in the order, and the item's owner.
pub(super) type OrderKey<O> = (O, RegionId);

#[derive(Clone, Debug)]
struct TreeNode<O, W> {
    key: OrderKey<O>,
    own: W,
    /// Of the subtree.
    all: W,
    /// No child has a higher priority.
    priority: u64,
    before: Subtree,
    after: Subtree,
}

/// The place of a subtree's root in the list of nodes, if the subtree is not empty.
type Subtree = Option<u32>;

/// Items in order. The nodes are in one list, and places of removed nodes are used again. So a tree that keeps its size
/// allocates nothing.
#[derive(Clone, Debug)]
pub(super) struct Ordered<O, W> {
    nodes: Vec<TreeNode<O, W>>,
    root: Subtree,
    /// The places in the list that are not used.
    free: Vec<u32>,
}

impl<O, W> Default for Ordered<O, W> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            root: None,
            free: Vec::new(),
        }
    }
}

impl<O: Ord + Copy, W: Weight> Ordered<O, W> {
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Inserts an item. Its key must be new.
    pub(super) fn insert(&mut self, key: OrderKey<O>, own: W) {
        let new = TreeNode {
            key,
            own,
            all: own,
            priority: mix(key.1.0),
            before: None,
            after: None,
        };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = new;
            at
        } else {
            self.nodes.push(new);
            u32::try_from(self.nodes.len() - 1).expect("fewer regions than 32 bits can count")
        };
        let (before, after) = self.split(self.root, &key);
        let before = self.merge(before, Some(at));
        self.root = self.merge(before, after);
    }

    /// Removes an item, if it is there.
    pub(super) fn remove(&mut self, key: &OrderKey<O>) {
        let removed;
        (self.root, removed) = self.remove_below(self.root, key);
        self.free.extend(removed);
    }

    /// Changes the weight of an item that is there.
    pub(super) fn set(&mut self, key: &OrderKey<O>, own: W) {
        self.set_below(self.root, key, own);
    }

    pub(super) fn first(&self) -> Option<(OrderKey<O>, W)> {
        let mut node = self.at(self.root)?;
        while let Some(before) = self.at(node.before) {
            count();
            node = before;
        }
        Some((node.key, node.own))
    }

    pub(super) fn last(&self) -> Option<(OrderKey<O>, W)> {
        let mut node = self.at(self.root)?;
        while let Some(after) = self.at(node.after) {
            count();
            node = after;
        }
        Some((node.key, node.own))
    }

    /// The weight of all items.
    pub(super) fn all(&self) -> Option<W> {
        self.weight(self.root)
    }

    /// The weight of the items after a key.
    pub(super) fn all_after(&self, key: &OrderKey<O>) -> Option<W> {
        let mut sum = None;
        let mut node = self.at(self.root);
        while let Some(it) = node {
            count();
            if it.key <= *key {
                node = self.at(it.after);
                continue;
            }
            let later = join(Some(it.own), self.weight(it.after));
            sum = join(later, sum);
            node = self.at(it.before);
        }
        sum
    }

    /// Visits each item before a key, in order, until `each` returns false. Skips subtrees that are not `worth_it`.
    pub(super) fn visit_before(
        &self,
        end: &OrderKey<O>,
        worth_it: &dyn Fn(&W) -> bool,
        each: &mut dyn FnMut(OrderKey<O>, W) -> bool,
    ) {
        self.visit_below(self.root, end, worth_it, each);
    }

    /// All items, in order.
    #[cfg(all(test, not(loom)))]
    pub(super) fn items(&self) -> Vec<(OrderKey<O>, W)> {
        fn add<O: Ord + Copy, W: Weight>(
            all: &Ordered<O, W>,
            tree: Subtree,
            items: &mut Vec<(OrderKey<O>, W)>,
        ) {
            if let Some(node) = all.at(tree) {
                add(all, node.before, items);
                items.push((node.key, node.own));
                add(all, node.after, items);
            }
        }
        let mut items = Vec::new();
        add(self, self.root, &mut items);
        items
    }

    fn at(&self, tree: Subtree) -> Option<&TreeNode<O, W>> {
        tree.map(|at| &self.nodes[at as usize])
    }

    fn weight(&self, tree: Subtree) -> Option<W> {
        self.at(tree).map(|it| it.all)
    }

    /// Updates a node whose children are correct.
    fn weigh(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let own = join(self.weight(node.before), Some(node.own));
        if let Some(all) = join(own, self.weight(node.after)) {
            self.nodes[at as usize].all = all;
        }
    }

    /// Splits a tree into the items before a key and the rest.
    fn split(&mut self, tree: Subtree, key: &OrderKey<O>) -> (Subtree, Subtree) {
        let Some(at) = tree else {
            return (None, None);
        };
        count();
        let node = &self.nodes[at as usize];
        let (here, before, after) = (node.key, node.before, node.after);
        let parts = if here < *key {
            let (middle, rest) = self.split(after, key);
            self.nodes[at as usize].after = middle;
            (tree, rest)
        } else {
            let (rest, middle) = self.split(before, key);
            self.nodes[at as usize].before = middle;
            (rest, tree)
        };
        self.weigh(at);
        parts
    }

    /// Joins two trees; all keys of `before` precede those of `after`.
    fn merge(&mut self, before: Subtree, after: Subtree) -> Subtree {
        let (Some(first), Some(second)) = (before, after) else {
            return before.or(after);
        };
        count();
        let [one, other] = [first, second].map(|at| &self.nodes[at as usize]);
        if one.priority >= other.priority {
            let merged = self.merge(one.after, after);
            self.nodes[first as usize].after = merged;
            self.weigh(first);
            before
        } else {
            let merged = self.merge(before, other.before);
            self.nodes[second as usize].before = merged;
            self.weigh(second);
            after
        }
    }

    /// Removes an item of a subtree. Returns the rest, and the place of the item.
    fn remove_below(&mut self, tree: Subtree, key: &OrderKey<O>) -> (Subtree, Subtree) {
        let Some(at) = tree else {
            return (None, None);
        };
        count();
        let node = &self.nodes[at as usize];
        let (here, before, after) = (node.key, node.before, node.after);
        let removed;
        match key.cmp(&here) {
            Ordering::Less => {
                let rest;
                (rest, removed) = self.remove_below(before, key);
                self.nodes[at as usize].before = rest;
            }
            Ordering::Greater => {
                let rest;
                (rest, removed) = self.remove_below(after, key);
                self.nodes[at as usize].after = rest;
            }
            Ordering::Equal => return (self.merge(before, after), tree),
        }
        self.weigh(at);
        (tree, removed)
    }

    /// Returns true if the weight of the subtree has changed, so that those above it change, too.
    fn set_below(&mut self, tree: Subtree, key: &OrderKey<O>, own: W) -> bool {
        let Some(at) = tree else { return false };
        count();
        let node = &mut self.nodes[at as usize];
        let (before, after, weight) = (node.before, node.after, node.all);
        let has_changed = match key.cmp(&node.key) {
            Ordering::Less => self.set_below(before, key, own),
            Ordering::Greater => self.set_below(after, key, own),
            Ordering::Equal => {
                node.own = own;
                true
            }
        };
        if has_changed {
            self.weigh(at);
        }
        has_changed && self.nodes[at as usize].all != weight
    }

    /// Returns true to continue.
    fn visit_below(
        &self,
        tree: Subtree,
        end: &OrderKey<O>,
        worth_it: &dyn Fn(&W) -> bool,
        each: &mut dyn FnMut(OrderKey<O>, W) -> bool,
    ) -> bool {
        let Some(node) = self.at(tree).filter(|it| worth_it(&it.all)) else {
            return true;
        };
        count();
        self.visit_below(node.before, end, worth_it, each)
            && (node.key >= *end
                || (!worth_it(&node.own) || each(node.key, node.own))
                    && self.visit_below(node.after, end, worth_it, each))
    }
}

fn join<W: Weight>(first: Option<W>, later: Option<W>) -> Option<W> {
    match (first, later) {
        (Some(first), Some(later)) => Some(first.join(later)),
        (first, later) => first.or(later),
    }
}

/// Counts one visit of a node, or of a region, for tests.
#[inline]
pub(super) fn count() {
    #[cfg(all(test, not(loom)))]
    steps::add();
}

/// The nodes and regions that this thread visited, for tests.
#[cfg(all(test, not(loom)))]
pub(super) mod steps {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<u64> = const { Cell::new(0) });

    pub(super) fn add() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Returns the number of visits since the last call.
    pub(crate) fn take() -> u64 {
        STEPS.replace(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A list, so that the order of joining shows.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Hash(u64, u64);

    impl Weight for Hash {
        fn join(self, later: Self) -> Self {
            let value = self.0.wrapping_mul(later.1).wrapping_add(later.0);
            Self(value, self.1.wrapping_mul(later.1))
        }
    }

    fn weight(value: u64) -> Hash {
        Hash(value, 31)
    }

    proptest! {
        /// It equals a sorted list.
        #[test]
        fn it_is_a_sorted_list(changes in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..40), 0..200)) {
            let mut tree = Ordered::default();
            let mut model = BTreeMap::new();
            for (adds, order, id) in changes {
                let key = (order, RegionId(id));
                if !adds {
                    tree.remove(&key);
                    model.remove(&key);
                } else {
                    let new = weight(order * 100 + id + model.len() as u64);
                    match model.insert(key, new) {
                        None => tree.insert(key, new),
                        Some(_) => tree.set(&key, new),
                    }
                }
                let sum = |items: &mut dyn Iterator<Item = (&(u64, RegionId), &Hash)>| {
                    items.map(|it| *it.1).reduce(Weight::join)
                };
                prop_assert_eq!(tree.items(), model.iter().map(|it| (*it.0, *it.1)).collect::<Vec<_>>());
                prop_assert_eq!(tree.len(), model.len());
                prop_assert_eq!(tree.first(), model.first_key_value().map(|it| (*it.0, *it.1)));
                prop_assert_eq!(tree.last(), model.last_key_value().map(|it| (*it.0, *it.1)));
                prop_assert_eq!(tree.all(), sum(&mut model.iter()));
                prop_assert_eq!(tree.all_after(&key), sum(&mut model.iter().filter(|it| *it.0 > key)));
                let mut shown = Vec::new();
                tree.visit_before(&key, &|_| true, &mut |key, _| {
                    shown.push(key);
                    shown.len() < 5
                });
                let before: Vec<_> = model.keys().filter(|it| **it < key).take(5).copied().collect();
                prop_assert_eq!(shown, before);
            }
        }
    }

    #[test]
    fn one_that_keeps_its_size_keeps_its_nodes() {
        let mut tree = Ordered::default();
        for id in 0..100 {
            tree.insert((id, RegionId(id)), weight(id));
        }
        for id in 0..10_000 {
            tree.remove(&(id, RegionId(id)));
            tree.insert((id + 100, RegionId(id + 100)), weight(id));
        }
        assert_eq!((tree.len(), tree.nodes.len()), (100, 100));
    }

    #[test]
    fn a_large_one_is_no_deeper_than_it_has_to_be() {
        let mut tree = Ordered::default();
        for id in 0..10_000 {
            tree.insert((id, RegionId(id)), weight(id));
        }
        steps::take();
        for id in 0..10_000 {
            tree.remove(&(id, RegionId(id)));
            tree.insert((id, RegionId(id)), weight(id));
        }
        let each = steps::take() / 10_000;
        assert!(each < 150, "{each} steps for one change");
    }
}
