//! The queue of victims: first in, first out, doubly linked by record number. So any record can
//! leave from the middle (Firehose §3.2, Table 1). The links of records without a bucket form the
//! list of free records.

use std::ops::Range;

use super::slab::FIRST_SLOT;

/// No record.
const NONE: u32 = u32::MAX;
/// In `before`: the record is not queued.
const OUT: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct QueueLinks {
    before: u32,
    after: u32,
}

/// The queue, and the free records.
#[derive(Debug)]
pub(super) struct VictimQueue {
    links: Vec<QueueLinks>,
    first: u32,
    last: u32,
    len: usize,
    free: u32,
}

impl VictimQueue {
    pub(super) fn new() -> Self {
        let unused = QueueLinks {
            before: OUT,
            after: NONE,
        };
        VictimQueue {
            links: vec![unused; FIRST_SLOT as usize],
            first: NONE,
            last: NONE,
            len: 0,
            free: NONE,
        }
    }

    /// The number of queued records.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The record that was queued longest.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn holds(&self, slot: u32) -> bool {
        self.links[slot as usize].before != OUT
    }

    /// Queues a record that is not queued.
    pub(super) fn push(&mut self, slot: u32) {
        self.links[slot as usize] = QueueLinks {
            before: self.last,
            after: NONE,
        };
        match self.last {
            NONE => self.first = slot,
            last => self.links[last as usize].after = slot,
        }
        self.last = slot;
        self.len += 1;
    }

    /// Removes a record, from wherever it is; does nothing if it is not queued.
    pub(super) fn take_out(&mut self, slot: u32) {
        let QueueLinks { before, after } = self.links[slot as usize];
        if before == OUT {
            return;
        }
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
        self.links[slot as usize].before = OUT;
        self.len -= 1;
    }

    /// Takes a record from the free list.
    pub(super) fn pop_free(&mut self) -> Option<u32> {
        let slot = self.free;
        if slot == NONE {
            return None;
        }
        self.free = self.links[slot as usize].after;
        Some(slot)
    }

    /// Frees a record that is not queued.
    pub(super) fn push_free(&mut self, slot: u32) {
        self.links[slot as usize].after = self.free;
        self.free = slot;
    }

    /// The numbers of the records that have links.
    pub(super) fn slots(&self) -> Range<u32> {
        FIRST_SLOT..self.links.len() as u32
    }

    /// Adds links below `end`, and adds the new records to the free list, lowest first.
    pub(super) fn grow(&mut self, end: u32) {
        let old = self.slots().end;
        self.links.reserve_exact((end - old) as usize);
        let unused = QueueLinks {
            before: OUT,
            after: NONE,
        };
        self.links.resize(end as usize, unused);
        for slot in (old..end).rev() {
            self.push_free(slot);
        }
    }

    /// The memory of the links, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.links.capacity() * size_of::<QueueLinks>()
    }
}
