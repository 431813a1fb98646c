//! An ordered set that keeps the sum of all its items, and of all items after a key: a treap.
//!
//! Each node has the weight of its subtree. So every query takes as many steps as the tree is deep, for any number of
//! regions. The shape depends on the keys alone, and is the same in every run.

use std::cmp::Ordering;

use hydrant_base::mix;

use super::RegionId;

/// The weight of an item, and of many together.
pub(super) trait Weight: Copy {
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
    before: Subtree<O, W>,
    after: Subtree<O, W>,
}

type Subtree<O, W> = Option<Box<TreeNode<O, W>>>;

/// Items in order.
#[derive(Clone, Debug)]
pub(super) struct Ordered<O, W> {
    root: Subtree<O, W>,
    len: usize,
}

impl<O, W> Default for Ordered<O, W> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

impl<O: Ord + Copy, W: Weight> Ordered<O, W> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Inserts an item. Its key must be new.
    pub(super) fn insert(&mut self, key: OrderKey<O>, own: W) {
        let (before, after) = split(self.root.take(), &key);
        let node = Box::new(TreeNode {
            key,
            own,
            all: own,
            priority: mix(key.1.0),
            before: None,
            after: None,
        });
        self.root = merge(merge(before, Some(node)), after);
        self.len += 1;
    }

    /// Removes an item, if it is there.
    pub(super) fn remove(&mut self, key: &OrderKey<O>) {
        let was_in;
        (self.root, was_in) = remove(self.root.take(), key);
        self.len -= usize::from(was_in);
    }

    /// Changes the weight of an item that is there.
    pub(super) fn set(&mut self, key: &OrderKey<O>, own: W) {
        set(&mut self.root, key, own);
    }

    pub(super) fn first(&self) -> Option<(OrderKey<O>, W)> {
        let mut node = self.root.as_deref()?;
        while let Some(before) = node.before.as_deref() {
            count();
            node = before;
        }
        Some((node.key, node.own))
    }

    pub(super) fn last(&self) -> Option<(OrderKey<O>, W)> {
        let mut node = self.root.as_deref()?;
        while let Some(after) = node.after.as_deref() {
            count();
            node = after;
        }
        Some((node.key, node.own))
    }

    /// The weight of all items.
    pub(super) fn all(&self) -> Option<W> {
        self.root.as_deref().map(|node| node.all)
    }

    /// The weight of the items after a key.
    pub(super) fn all_after(&self, key: &OrderKey<O>) -> Option<W> {
        let mut sum = None;
        let mut node = self.root.as_deref();
        while let Some(at) = node {
            count();
            if at.key <= *key {
                node = at.after.as_deref();
                continue;
            }
            let later = join(Some(at.own), at.after.as_deref().map(|it| it.all));
            sum = join(later, sum);
            node = at.before.as_deref();
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
        visit_before(self.root.as_deref(), end, worth_it, each);
    }

    /// All items, in order.
    #[cfg(all(test, not(loom)))]
    pub(super) fn items(&self) -> Vec<(OrderKey<O>, W)> {
        fn add<O: Copy, W: Copy>(tree: &Subtree<O, W>, items: &mut Vec<(OrderKey<O>, W)>) {
            if let Some(node) = tree {
                add(&node.before, items);
                items.push((node.key, node.own));
                add(&node.after, items);
            }
        }
        let mut items = Vec::new();
        add(&self.root, &mut items);
        items
    }
}

impl<O, W: Weight> TreeNode<O, W> {
    /// Updates a node whose children are correct.
    fn weigh(&mut self) {
        count();
        let of = |tree: &Subtree<O, W>| tree.as_deref().map(|it| it.all);
        let own = join(of(&self.before), Some(self.own));
        if let Some(all) = join(own, of(&self.after)) {
            self.all = all;
        }
    }
}

fn join<W: Weight>(first: Option<W>, later: Option<W>) -> Option<W> {
    match (first, later) {
        (Some(first), Some(later)) => Some(first.join(later)),
        (first, later) => first.or(later),
    }
}

/// Splits a tree into the items before a key and the rest.
fn split<O: Ord, W: Weight>(
    tree: Subtree<O, W>,
    key: &OrderKey<O>,
) -> (Subtree<O, W>, Subtree<O, W>) {
    let Some(mut node) = tree else {
        return (None, None);
    };
    if node.key < *key {
        let (middle, after) = split(node.after.take(), key);
        node.after = middle;
        node.weigh();
        (Some(node), after)
    } else {
        let (before, middle) = split(node.before.take(), key);
        node.before = middle;
        node.weigh();
        (before, Some(node))
    }
}

/// Joins two trees; all keys of `before` precede those of `after`.
fn merge<O, W: Weight>(before: Subtree<O, W>, after: Subtree<O, W>) -> Subtree<O, W> {
    match (before, after) {
        (Some(mut first), Some(mut second)) => {
            if first.priority >= second.priority {
                first.after = merge(first.after.take(), Some(second));
                first.weigh();
                Some(first)
            } else {
                second.before = merge(Some(first), second.before.take());
                second.weigh();
                Some(second)
            }
        }
        (before, after) => before.or(after),
    }
}

fn remove<O: Ord, W: Weight>(tree: Subtree<O, W>, key: &OrderKey<O>) -> (Subtree<O, W>, bool) {
    let Some(mut node) = tree else {
        return (None, false);
    };
    let was_in;
    match key.cmp(&node.key) {
        Ordering::Less => (node.before, was_in) = remove(node.before.take(), key),
        Ordering::Greater => (node.after, was_in) = remove(node.after.take(), key),
        Ordering::Equal => return (merge(node.before.take(), node.after.take()), true),
    }
    node.weigh();
    (Some(node), was_in)
}

fn set<O: Ord, W: Weight>(tree: &mut Subtree<O, W>, key: &OrderKey<O>, own: W) {
    let Some(node) = tree else { return };
    match key.cmp(&node.key) {
        Ordering::Less => set(&mut node.before, key, own),
        Ordering::Greater => set(&mut node.after, key, own),
        Ordering::Equal => node.own = own,
    }
    node.weigh();
}

/// Returns true to continue.
fn visit_before<O: Ord + Copy, W: Copy>(
    tree: Option<&TreeNode<O, W>>,
    end: &OrderKey<O>,
    worth_it: &dyn Fn(&W) -> bool,
    each: &mut dyn FnMut(OrderKey<O>, W) -> bool,
) -> bool {
    let Some(node) = tree.filter(|it| worth_it(&it.all)) else {
        return true;
    };
    count();
    visit_before(node.before.as_deref(), end, worth_it, each)
        && (node.key >= *end
            || (!worth_it(&node.own) || each(node.key, node.own))
                && visit_before(node.after.as_deref(), end, worth_it, each))
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
