//! Entries in order of arrival, each in one or several queues, which are found by pattern. The
//! first entry of a queue is found in constant time. An insertion or a removal changes all queues
//! of an entry and takes constant time, too. A kind of queues is kept once somebody has
//! [used](PatternQueues::use_kind) it.

use std::mem;

use rustc_hash::FxHashMap;

use super::pattern::Pattern;

/// No entry.
const NONE: u32 = u32::MAX;

/// An entry of up to `N` queues.
pub(super) trait PatternKeyed<const N: usize> {
    /// Returns the pattern of the entry's queue of this kind. The patterns of an entry differ.
    fn pattern(&self, kind: usize) -> Pattern;
}

/// Entries in the order of their sequence numbers, each in one queue of each kind in use.
pub(super) struct PatternQueues<T, const N: usize> {
    /// The kinds in use, by number. A kind stays in use.
    in_use: [bool; N],
    nodes: Vec<Option<QueueNode<T, N>>>,
    /// Free slots of `nodes`.
    free: Vec<u32>,
    /// The last changed queue of each kind, which may be empty. Programs use the same queue again
    /// and again.
    last: [(Pattern, QueueEnds); Pattern::KINDS],
    /// The other queues. None of them is empty.
    queues: FxHashMap<Pattern, QueueEnds>,
}

struct QueueNode<T, const N: usize> {
    value: T,
    sequence: u64,
    links: [EntryLinks; N],
}

/// The first and the last entry of a queue.
#[derive(Clone, Copy)]
struct QueueEnds {
    first: u32,
    last: u32,
}

/// The neighbours of an entry in a queue.
#[derive(Clone, Copy)]
struct EntryLinks {
    previous: u32,
    next: u32,
}

impl QueueEnds {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };
}

/// Names an entry until the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuedId {
    index: u32,
    sequence: u64,
}

impl QueuedId {
    /// Returns the sequence number, which orders the entries.
    pub(super) fn order(self) -> u64 {
        self.sequence
    }
}

impl<T: PatternKeyed<N>, const N: usize> PatternQueues<T, N> {
    pub(super) fn new() -> Self {
        Self {
            in_use: [false; N],
            nodes: Vec::new(),
            free: Vec::new(),
            last: [(Pattern::ANY, QueueEnds::EMPTY); Pattern::KINDS],
            queues: FxHashMap::default(),
        }
    }

    /// Keeps queues of a kind from now on. The first call takes time for each entry.
    #[inline]
    pub(super) fn use_kind(&mut self, kind: usize) {
        if !self.in_use[kind] {
            self.start_using(kind);
        }
    }

    #[cold]
    fn start_using(&mut self, kind: usize) {
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

    /// Adds an entry to its queues, behind all entries with a lower number. An entry with the
    /// highest number is appended in constant time.
    #[inline]
    pub(super) fn insert(&mut self, sequence: u64, value: T) -> QueuedId {
        let nowhere = EntryLinks {
            previous: NONE,
            next: NONE,
        };
        let node = Some(QueueNode {
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
        QueuedId { index, sequence }
    }

    /// Returns whether there are no entries.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.nodes.len()
    }

    /// Returns the first entry of a queue.
    #[inline]
    pub(super) fn first(&self, pattern: Pattern) -> Option<(QueuedId, &T)> {
        let (last, ends) = &self.last[pattern.kind()];
        let index = if *last == pattern {
            ends.first
        } else {
            self.queues.get(&pattern)?.first
        };
        let node = self.node(index)?;
        let sequence = node.sequence;
        Some((QueuedId { index, sequence }, &node.value))
    }

    /// Removes an entry. Returns it with its number.
    #[inline]
    pub(super) fn remove(&mut self, id: QueuedId) -> Option<(u64, T)> {
        let node = (self.nodes.get_mut(id.index as usize)?)
            .take_if(|node| node.sequence == id.sequence)?;
        for (kind, links) in node.links.into_iter().enumerate() {
            if self.in_use[kind] {
                let between = (links.next, links.previous);
                self.join(kind, node.value.pattern(kind), links, between);
            }
        }
        self.free.push(id.index);
        Some((node.sequence, node.value))
    }

    /// Returns the ids of the entries that fulfil a condition, in no order.
    pub(super) fn ids(&self, mut fulfils: impl FnMut(&T) -> bool) -> Vec<QueuedId> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter_map(|(index, node)| Some((index as u32, node.as_ref()?)))
            .filter(|(_, node)| fulfils(&node.value))
            .map(|(index, node)| QueuedId {
                index,
                sequence: node.sequence,
            })
            .collect()
    }

    #[inline]
    fn node(&self, index: u32) -> Option<&QueueNode<T, N>> {
        self.nodes.get(index as usize)?.as_ref()
    }

    /// Returns the queue of a pattern, to be changed.
    #[inline]
    fn queue(&mut self, pattern: Pattern) -> &mut QueueEnds {
        let kind = pattern.kind();
        if self.last[kind].0 != pattern {
            self.change_to(pattern);
        }
        &mut self.last[kind].1
    }

    /// Makes the queue of `pattern` the last changed one of its kind.
    fn change_to(&mut self, pattern: Pattern) {
        let ends = self.queues.remove(&pattern).unwrap_or(QueueEnds::EMPTY);
        let last = &mut self.last[pattern.kind()];
        let (before, ends) = mem::replace(last, (pattern, ends));
        if ends.first != NONE {
            self.queues.insert(before, ends);
        }
    }

    /// Returns the last changed queue of the pattern's kind.
    #[inline]
    fn last_changed(&mut self, pattern: Pattern) -> &mut QueueEnds {
        &mut self.last[pattern.kind()].1
    }

    #[inline]
    fn link(&mut self, kind: usize, pattern: Pattern, index: u32, sequence: u64) {
        let last = self.queue(pattern).last;
        match self.node(last).map(|node| node.sequence < sequence) {
            None => {
                *self.last_changed(pattern) = QueueEnds {
                    first: index,
                    last: index,
                };
            }
            Some(true) => {
                self.last_changed(pattern).last = index;
                self.set(kind, last, |links| links.next = index);
                self.set(kind, index, |links| links.previous = last);
            }
            Some(false) => self.link_within(kind, pattern, index, sequence),
        }
    }

    /// Inserts an entry that was removed for a moment at its old position.
    #[cold]
    fn link_within(&mut self, kind: usize, pattern: Pattern, index: u32, sequence: u64) {
        let (mut previous, mut next) = (self.last_changed(pattern).last, NONE);
        while let Some(node) = self.node(previous)
            && node.sequence > sequence
        {
            (previous, next) = (node.links[kind].previous, previous);
        }
        let links = EntryLinks { previous, next };
        self.set(kind, index, |it| *it = links);
        self.join(kind, pattern, links, (index, index));
    }

    /// Sets the successor of `previous` and the predecessor of `next`. Without such an entry it
    /// sets the first or the last entry of the queue instead.
    #[inline]
    fn join(
        &mut self,
        kind: usize,
        pattern: Pattern,
        EntryLinks { previous, next }: EntryLinks,
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

    /// Changes the links of an entry, if it exists.
    #[inline]
    fn set(&mut self, kind: usize, index: u32, change: impl FnOnce(&mut EntryLinks)) {
        if let Some(Some(node)) = self.nodes.get_mut(index as usize) {
            change(&mut node.links[kind]);
        }
    }
}
