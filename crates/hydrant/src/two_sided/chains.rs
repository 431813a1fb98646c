//! Entries in order, each in one queue or in several, which are found by pattern: what is first in a
//! queue is found, added and taken out in constant time, from all its queues at once. Queues of a kind that nobody
//! has [asked for](Chains::use_kind) are not kept.

use std::{array, mem};

use rustc_hash::FxHashMap;

use super::pattern::Pattern;

/// No entry.
const NONE: u32 = u32::MAX;

/// What is in up to `N` queues.
pub(super) trait Queued<const N: usize> {
    /// The pattern of one of its queues, by kind; those of an entry differ.
    fn pattern(&self, kind: usize) -> Pattern;
}

/// Entries that are each in up to `N` queues, one of each kind that is in use, in the order of their sequence numbers.
pub(super) struct Chains<T, const N: usize> {
    /// Which kinds are in use, by their number: for good, once they are.
    in_use: [bool; N],
    nodes: Vec<Option<Node<T, N>>>,
    /// Places of `nodes` that are free.
    free: Vec<u32>,
    /// Of each kind, the queue that was changed last: programs use the same ones again and again. It may be empty.
    last: [(Pattern, Ends); Pattern::KINDS],
    /// The others, none of which is empty.
    queues: FxHashMap<Pattern, Ends>,
}

struct Node<T, const N: usize> {
    value: T,
    sequence: u64,
    links: [Links; N],
}

/// The first and the last entry of a queue.
#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

/// The entries before and after one in a queue.
#[derive(Clone, Copy)]
struct Links {
    previous: u32,
    next: u32,
}

impl Ends {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };
}

/// An entry, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    index: u32,
    sequence: u64,
}

impl Place {
    /// By what entries are in order.
    pub(super) fn order(self) -> u64 {
        self.sequence
    }
}

impl<T: Queued<N>, const N: usize> Chains<T, N> {
    pub(super) fn new() -> Self {
        Self {
            in_use: [false; N],
            nodes: Vec::new(),
            free: Vec::new(),
            last: [(Pattern::ANY, Ends::EMPTY); Pattern::KINDS],
            queues: FxHashMap::default(),
        }
    }

    /// Keeps queues of a kind from now on. The first time that takes time for each entry.
    pub(super) fn use_kind(&mut self, kind: usize) {
        if mem::replace(&mut self.in_use[kind], true) {
            return;
        }
        let mut all: Vec<(u64, u32)> = (self.nodes.iter().zip(0..))
            .filter_map(|(node, index)| Some((node.as_ref()?.sequence, index)))
            .collect();
        all.sort_unstable();
        for (sequence, index) in all {
            if let Some(node) = self.node(index) {
                self.link(kind, node.value.pattern(kind), index, sequence);
            }
        }
    }

    /// Adds an entry to its queues: behind all with a lower number. What has the highest number goes to the end in
    /// constant time.
    pub(super) fn insert(&mut self, sequence: u64, value: T) -> Place {
        let nowhere = Links {
            previous: NONE,
            next: NONE,
        };
        let patterns: [Pattern; N] = array::from_fn(|kind| value.pattern(kind));
        let node = Some(Node {
            value,
            sequence,
            links: [nowhere; N],
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        for (kind, pattern) in patterns.into_iter().enumerate() {
            if self.in_use[kind] {
                self.link(kind, pattern, index, sequence);
            }
        }
        Place { index, sequence }
    }

    /// The first entry of a queue.
    pub(super) fn first(&self, pattern: Pattern) -> Option<(Place, &T)> {
        let (last, ends) = &self.last[pattern.kind()];
        let index = match *last == pattern {
            true => ends.first,
            false => self.queues.get(&pattern)?.first,
        };
        let node = self.node(index)?;
        let sequence = node.sequence;
        Some((Place { index, sequence }, &node.value))
    }

    /// Takes an entry out, with its number.
    pub(super) fn remove(&mut self, place: Place) -> Option<(u64, T)> {
        let index = place.index;
        if self.node(index)?.sequence != place.sequence {
            return None;
        }
        let node = self.nodes.get_mut(index as usize)?.take()?;
        for (kind, links) in node.links.into_iter().enumerate() {
            if self.in_use[kind] {
                let between = (links.previous, links.next);
                self.join(kind, node.value.pattern(kind), between);
            }
        }
        self.free.push(index);
        Some((node.sequence, node.value))
    }

    /// The places of the entries of which this is so, in no order.
    pub(super) fn places(&self, mut is_so: impl FnMut(&T) -> bool) -> Vec<Place> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter_map(|(index, node)| Some((index as u32, node.as_ref()?)))
            .filter(|(_, node)| is_so(&node.value))
            .map(|(index, node)| Place {
                index,
                sequence: node.sequence,
            })
            .collect()
    }

    fn node(&self, index: u32) -> Option<&Node<T, N>> {
        self.nodes.get(index as usize)?.as_ref()
    }

    /// The queue of a pattern, to be changed.
    fn queue(&mut self, pattern: Pattern) -> &mut Ends {
        let last = &mut self.last[pattern.kind()];
        if last.0 != pattern {
            let ends = self.queues.remove(&pattern).unwrap_or(Ends::EMPTY);
            let (before, ends) = mem::replace(last, (pattern, ends));
            if ends.first != NONE {
                self.queues.insert(before, ends);
            }
        }
        &mut last.1
    }

    fn link(&mut self, kind: usize, pattern: Pattern, index: u32, sequence: u64) {
        let ends = *self.queue(pattern);
        let mut previous = ends.last;
        // What was taken out for a moment goes back to where it was.
        while let Some(node) = self.node(previous) {
            if node.sequence < sequence {
                break;
            }
            previous = node.links[kind].previous;
        }
        let next = match self.node(previous) {
            Some(node) => node.links[kind].next,
            None => ends.first,
        };
        self.set(kind, index, |links| *links = Links { previous, next });
        self.join(kind, pattern, (previous, index));
        self.join(kind, pattern, (index, next));
    }

    /// Has two entries of a queue follow each other; none is the end of the queue.
    fn join(&mut self, kind: usize, pattern: Pattern, (previous, next): (u32, u32)) {
        match previous {
            NONE => self.queue(pattern).first = next,
            _ => self.set(kind, previous, |links| links.next = next),
        }
        match next {
            NONE => self.queue(pattern).last = previous,
            _ => self.set(kind, next, |links| links.previous = previous),
        }
    }

    fn set(&mut self, kind: usize, index: u32, change: impl FnOnce(&mut Links)) {
        if let Some(Some(node)) = self.nodes.get_mut(index as usize) {
            change(&mut node.links[kind]);
        }
    }
}
