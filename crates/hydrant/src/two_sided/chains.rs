//! Entries in order, each in one queue or in several, which are found by pattern: what is first in a
//! queue is found, added and taken out in constant time, from all its queues at once. Queues of a kind that nobody
//! has [asked for](Chains::use_kind) are not kept.

use std::mem;

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
    #[inline]
    pub(super) fn use_kind(&mut self, kind: usize) {
        if !self.in_use[kind] {
            self.begin_to_use(kind);
        }
    }

    #[cold]
    fn begin_to_use(&mut self, kind: usize) {
        self.in_use[kind] = true;
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
    #[inline]
    pub(super) fn insert(&mut self, sequence: u64, value: T) -> Place {
        let nowhere = Links {
            previous: NONE,
            next: NONE,
        };
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
        for kind in 0..N {
            if self.in_use[kind]
                && let Some(node) = self.node(index)
            {
                self.link(kind, node.value.pattern(kind), index, sequence);
            }
        }
        Place { index, sequence }
    }

    /// Whether there are no entries.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.nodes.len()
    }

    /// The first entry of a queue.
    #[inline]
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
    #[inline]
    pub(super) fn remove(&mut self, place: Place) -> Option<(u64, T)> {
        let node = (self.nodes.get_mut(place.index as usize)?)
            .take_if(|node| node.sequence == place.sequence)?;
        for (kind, links) in node.links.into_iter().enumerate() {
            if self.in_use[kind] {
                let between = (links.next, links.previous);
                self.join(kind, node.value.pattern(kind), links, between);
            }
        }
        self.free.push(place.index);
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

    #[inline]
    fn node(&self, index: u32) -> Option<&Node<T, N>> {
        self.nodes.get(index as usize)?.as_ref()
    }

    /// The queue of a pattern, to be changed.
    #[inline]
    fn queue(&mut self, pattern: Pattern) -> &mut Ends {
        let kind = pattern.kind();
        if self.last[kind].0 != pattern {
            self.change_to(pattern);
        }
        &mut self.last[kind].1
    }

    /// Another queue of its kind is changed than was changed last.
    fn change_to(&mut self, pattern: Pattern) {
        let ends = self.queues.remove(&pattern).unwrap_or(Ends::EMPTY);
        let last = &mut self.last[pattern.kind()];
        let (before, ends) = mem::replace(last, (pattern, ends));
        if ends.first != NONE {
            self.queues.insert(before, ends);
        }
    }

    /// The queue of a kind that was changed last.
    #[inline]
    fn ends(&mut self, pattern: Pattern) -> &mut Ends {
        &mut self.last[pattern.kind()].1
    }

    #[inline]
    fn link(&mut self, kind: usize, pattern: Pattern, index: u32, sequence: u64) {
        let last = self.queue(pattern).last;
        match self.node(last).map(|node| node.sequence < sequence) {
            None => {
                *self.ends(pattern) = Ends {
                    first: index,
                    last: index,
                };
            }
            Some(true) => {
                self.ends(pattern).last = index;
                self.set(kind, last, |links| links.next = index);
                self.set(kind, index, |links| links.previous = last);
            }
            Some(false) => self.link_within(kind, pattern, index, sequence),
        }
    }

    /// What was taken out for a moment goes back to where it was.
    #[cold]
    fn link_within(&mut self, kind: usize, pattern: Pattern, index: u32, sequence: u64) {
        let (mut previous, mut next) = (self.ends(pattern).last, NONE);
        while let Some(node) = self.node(previous)
            && node.sequence > sequence
        {
            (previous, next) = (node.links[kind].previous, previous);
        }
        let links = Links { previous, next };
        self.set(kind, index, |it| *it = links);
        self.join(kind, pattern, links, (index, index));
    }

    /// Says what follows on the entry, or the beginning of the queue, before a place, and what precedes the one, or
    /// the end, behind it.
    #[inline]
    fn join(
        &mut self,
        kind: usize,
        pattern: Pattern,
        Links { previous, next }: Links,
        (follows, precedes): (u32, u32),
    ) {
        if previous == NONE || next == NONE {
            let ends = self.queue(pattern);
            if previous == NONE {
                ends.first = follows;
            }
            if next == NONE {
                ends.last = precedes;
            }
        }
        self.set(kind, previous, |links| links.next = follows);
        self.set(kind, next, |links| links.previous = precedes);
    }

    /// Changes the links of an entry, if there is one.
    #[inline]
    fn set(&mut self, kind: usize, index: u32, change: impl FnOnce(&mut Links)) {
        if let Some(Some(node)) = self.nodes.get_mut(index as usize) {
            change(&mut node.links[kind]);
        }
    }
}
