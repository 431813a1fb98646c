//! From the number of a bucket to the number of its record: open addressing with
//! linear probing, read while its owner changes it.
//!
//! A reader may look in the middle of a change. Then it may miss a bucket that is
//! there, or be led to a record that is not the bucket's; the record itself says whose
//! it is, so the second is found out and the first is a miss like any other, which the
//! owner looks into again. That is why all accesses are relaxed, why an entry can be
//! moved up when one before it goes (no tombstones, nothing to clean up later), and why
//! the index can grow in place: the lines it has are kept and as many are added.

use std::sync::OnceLock;

use super::slab::Slab;
use super::sync::{AtomicU32, Ordering};
use super::word;

/// The first segment has `2^FIRST` entries; loom walks through every atomic.
const FIRST: u32 = if cfg!(loom) { 3 } else { 6 };
/// The most entries are `2^LAST`: enough for all records at [`MAX_LOAD`].
const LAST: u32 = 27;
const SEGMENTS: usize = (LAST - FIRST + 1) as usize;

/// The index grows when more than 7 of 8 entries would be used.
const MAX_LOAD: (u64, u64) = (7, 8);

const EMPTY: u32 = 0;

/// Where buckets are.
#[derive(Debug)]
pub(super) struct Index {
    /// There are `2^bits` entries.
    bits: AtomicU32,
    /// Entries by position: the first `2^FIRST`, as many again, twice that, and so on.
    ///
    /// An entry is the number of the record and one in its lower `bits`, and above that
    /// as much of the hash as has room, so that few wrong records are looked at.
    segments: [OnceLock<Box<[AtomicU32]>>; SEGMENTS],
}

/// A bucket's hash, seen by an index of `2^bits` entries.
#[derive(Clone, Copy)]
struct Probe {
    home: u32,
    /// What the upper part of its entry must be.
    mark: u32,
    /// The largest position, and the lower part of an entry.
    mask: u32,
}

impl Probe {
    #[inline]
    fn new(bucket: u64, bits: u32) -> Self {
        // Fibonacci hashing: neighbours are spread as evenly as can be.
        let hash = bucket.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = (1 << bits) - 1;
        Probe {
            home: (hash >> (64 - bits)) as u32,
            mark: ((hash << bits) >> 32) as u32 & !mask,
            mask,
        }
    }

    #[inline]
    fn after(self, position: u32) -> u32 {
        (position + 1) & self.mask
    }

    fn entry(self, slot: u32) -> u32 {
        self.mark | (slot + 1)
    }
}

impl Index {
    pub(super) fn new() -> Self {
        let index = Index {
            bits: AtomicU32::new(FIRST),
            segments: [const { OnceLock::new() }; SEGMENTS],
        };
        index.reach(FIRST);
        index
    }

    /// The first record for which `wanted` holds among those where `bucket` may be.
    #[inline]
    pub(super) fn find(&self, bucket: u64, mut wanted: impl FnMut(u32) -> bool) -> Option<u32> {
        let probe = Probe::new(bucket, self.bits.load(Ordering::Relaxed));
        let mut position = probe.home;
        // Bounded, because what is read may change all the while.
        for _ in 0..=probe.mask {
            let entry = self.entry(position)?.load(Ordering::Relaxed);
            if entry == EMPTY {
                return None;
            }
            let slot = (entry ^ probe.mark).wrapping_sub(1);
            if slot < probe.mask && wanted(slot) {
                return Some(slot);
            }
            position = probe.after(position);
        }
        None
    }

    /// Adds a bucket that is not there. Only one thread may change the index.
    pub(super) fn insert(&self, bucket: u64, slot: u32) {
        let probe = self.probe(bucket);
        let mut position = probe.home;
        while self.at(position).load(Ordering::Relaxed) != EMPTY {
            position = probe.after(position);
        }
        let entry = probe.entry(slot);
        self.at(position).store(entry, Ordering::Relaxed);
    }

    /// Takes a bucket out whose record, like all others, still says whose it is.
    pub(super) fn remove(&self, bucket: u64, slot: u32, slab: &Slab) {
        let probe = self.probe(bucket);
        let mut hole = probe.home;
        while self.at(hole).load(Ordering::Relaxed) != probe.entry(slot) {
            hole = probe.after(hole);
        }
        let mut position = probe.after(hole);
        loop {
            let entry = self.at(position).load(Ordering::Relaxed);
            if entry == EMPTY {
                break;
            }
            let home = self.probe(bucket_of(entry, probe.mask, slab)).home;
            // It may not come to stand before its home.
            let from_home = position.wrapping_sub(home) & probe.mask;
            let from_hole = position.wrapping_sub(hole) & probe.mask;
            if from_home >= from_hole {
                self.at(hole).store(entry, Ordering::Relaxed);
                hole = position;
            }
            position = probe.after(position);
        }
        self.at(hole).store(EMPTY, Ordering::Relaxed);
    }

    /// Grows, if `records` need it. Readers miss what was not yet entered anew.
    pub(super) fn fit(&self, records: u32, slab: &Slab) {
        let old = self.bits.load(Ordering::Relaxed);
        let mut bits = old;
        while u64::from(records) * MAX_LOAD.1 > (MAX_LOAD.0 << bits) {
            bits += 1;
        }
        if bits == old {
            return;
        }
        let mask = (1 << old) - 1;
        let taken_out = (0..=mask).map(|position| self.at(position).swap(EMPTY, Ordering::Relaxed));
        let slots: Vec<u32> = taken_out
            .filter(|entry| *entry != EMPTY)
            .map(|entry| (entry & mask) - 1)
            .collect();
        self.reach(bits);
        self.bits.store(bits, Ordering::Relaxed);
        for slot in slots {
            self.insert(bucket_in(slot, slab), slot);
        }
    }

    /// What the entries take, in bytes.
    pub(super) fn memory(&self) -> usize {
        let segments = self.segments.iter().filter_map(OnceLock::get);
        segments.map(|segment| size_of_val(&**segment)).sum()
    }

    fn probe(&self, bucket: u64) -> Probe {
        Probe::new(bucket, self.bits.load(Ordering::Relaxed))
    }

    /// Adds the segments of `2^bits` entries that are not there.
    fn reach(&self, bits: u32) {
        for number in 0..=(bits - FIRST) {
            let entries = 1_u32 << (FIRST + number.saturating_sub(1));
            let segment = &self.segments[number as usize];
            segment.get_or_init(|| (0..entries).map(|_| AtomicU32::new(EMPTY)).collect());
        }
    }

    /// The entry at a position; `None` where a reader sees the new size before the
    /// new segment.
    #[inline]
    fn entry(&self, position: u32) -> Option<&AtomicU32> {
        let (segment, offset) = locate(position);
        self.segments.get(segment)?.get()?.get(offset)
    }

    fn at(&self, position: u32) -> &AtomicU32 {
        self.entry(position)
            .expect("the owner sees what it has added")
    }
}

fn bucket_of(entry: u32, mask: u32, slab: &Slab) -> u64 {
    bucket_in((entry & mask) - 1, slab)
}

fn bucket_in(slot: u32, slab: &Slab) -> u64 {
    let record = slab.record(slot).expect("an entry is of a record");
    word::bucket(record.word.load(Ordering::Relaxed))
}

/// Which segment a position is in, and where.
#[inline]
fn locate(position: u32) -> (usize, usize) {
    let below = (1 << FIRST) - 1;
    let log = (position | below).ilog2();
    let before = (1 << log) & !below;
    ((log + 1 - FIRST) as usize, (position - before) as usize)
}
