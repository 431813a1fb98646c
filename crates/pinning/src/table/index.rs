//! The index from a bucket's number to its record's number: open addressing with linear probing.
//! Threads read it while its owner changes it.
//!
//! A reader may look in the middle of a change. Then it may miss a bucket that is there, or find
//! another bucket's record. The record itself holds its bucket, so the reader notices a wrong
//! record. A wrong miss is a miss like any other, and the owner looks again. That is why entries
//! are relaxed, and why an entry may move up when one before it goes. So there are no tombstones
//! and nothing to clean up later.
//!
//! When the index is full, the owner enters all buckets in an index of twice the size. The old
//! indexes stay, because a reader may still be in one. Together they are smaller than the new one.

use std::sync::OnceLock;

use super::slab::RecordSlab;
use super::word;
use crate::sync::{AtomicU32, Ordering};

/// The smallest index has `2^FIRST` entries; loom walks through every atomic.
const FIRST: u32 = if cfg!(loom) { 3 } else { 7 };
/// The largest has `2^LAST`: enough for all records at [`MAX_LOAD`].
const LAST: u32 = 27;
/// The places of indexes, by the exponent of their size, so that a hit needs no check.
const SIZES: usize = 32;
const _: () = assert!((LAST as usize) < SIZES);

/// The index grows when more than 7 of 8 entries would be used.
const MAX_LOAD: (u64, u64) = (7, 8);

const EMPTY: u32 = 0;

/// The index of buckets.
#[derive(Debug)]
pub(super) struct Index {
    /// The entries in force are `2^bits`, at `sizes[bits]`.
    bits: AtomicU32,
    /// The first [`FIRST`] places stay empty.
    sizes: [OnceLock<IndexEntries>; SIZES],
}

/// An entry holds the number of the record, which is not 0, in its lower bits, as many as the size
/// asks for. The bits above hold as much of the hash as has room, so that few wrong records are looked
/// at.
type IndexEntries = Box<[AtomicU32]>;

/// The hash of a bucket, for an index of so many entries.
#[derive(Clone, Copy)]
struct Probe {
    home: u32,
    /// The upper part of the bucket's entry.
    mark: u32,
    /// The largest position, and the mask of an entry's lower part.
    mask: u32,
}

impl Probe {
    /// `entries` is a power of two.
    #[inline(always)]
    fn new(bucket: u64, entries: usize) -> Self {
        // Fibonacci hashing spreads neighbours as evenly as can be. The product with the number of
        // entries has the upper bits of the hash above, and the other bits below.
        let hash = bucket.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let product = u128::from(hash) * entries as u128;
        let mask = entries as u32 - 1;
        Probe {
            home: (product >> 64) as u32,
            // The lower bits of the hash differ for neighbours, too.
            mark: hash as u32 & !mask,
            mask,
        }
    }

    #[inline]
    fn after(self, position: u32) -> u32 {
        (position + 1) & self.mask
    }

    fn entry(self, slot: u32) -> u32 {
        self.mark | slot
    }

    /// The record that an entry names, if it may be the bucket's. Else the result is above the mask,
    /// or for an empty entry 0, which is no record.
    #[inline]
    fn slot(self, entry: u32) -> u32 {
        entry ^ self.mark
    }
}

/// The entries in which a bucket may be found, in order.
pub(super) struct ProbeSequence<'a> {
    entries: &'a [AtomicU32],
    probe: Probe,
}

/// The entry at the home position of a bucket, where most buckets are.
pub(super) enum HomeEntry {
    /// A record that may be the bucket's.
    Record(u32),
    /// The entry is empty, so the bucket is nowhere.
    Empty,
    /// The record of another bucket.
    Other,
}

impl ProbeSequence<'_> {
    #[inline(always)] // on the path of every hit
    pub(super) fn home(&self) -> HomeEntry {
        let Some(entry) = self.entries.get(self.probe.home as usize) else {
            return HomeEntry::Empty;
        };
        let entry = entry.load(Ordering::Relaxed);
        let slot = self.probe.slot(entry);
        match entry {
            _ if slot <= self.probe.mask => HomeEntry::Record(slot),
            EMPTY => HomeEntry::Empty,
            _ => HomeEntry::Other,
        }
    }

    /// Returns the first result of `look` for the records that may be the bucket's.
    #[inline]
    pub(super) fn search<T>(self, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        let probe = self.probe;
        let mut position = probe.home;
        // The loop is bounded, because the entries may change all the while.
        for _ in 0..self.entries.len() {
            let entry = (self.entries.get(position as usize)?).load(Ordering::Relaxed);
            if entry == EMPTY {
                return None;
            }
            let slot = probe.slot(entry);
            if slot <= probe.mask
                && let Some(found) = look(slot)
            {
                return Some(found);
            }
            position = probe.after(position);
        }
        None
    }
}

impl Index {
    pub(super) fn new() -> Self {
        let index = Index {
            bits: AtomicU32::new(FIRST),
            sizes: [const { OnceLock::new() }; SIZES],
        };
        index.sizes[FIRST as usize].get_or_init(|| empty(FIRST));
        index
    }

    /// The entries in which `bucket` may be found.
    #[inline(always)] // on the path of every hit
    pub(super) fn probes(&self, bucket: u64) -> Option<ProbeSequence<'_>> {
        let bits = self.bits.load(Ordering::Acquire);
        let entries = self.sizes[bits as usize % SIZES].get()?;
        Some(ProbeSequence {
            entries,
            probe: Probe::new(bucket, entries.len()),
        })
    }

    /// Returns the first result of `look` for the records that may be of `bucket`.
    #[inline]
    pub(super) fn find<T>(&self, bucket: u64, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        self.probes(bucket)?.search(look)
    }

    /// Adds a bucket that is not there. Only one thread may change the index.
    pub(super) fn insert(&self, bucket: u64, slot: u32) {
        let (entries, _) = self.current();
        enter(entries, Probe::new(bucket, entries.len()), slot);
    }

    /// Removes a bucket. Its record, like all others, must still hold its bucket.
    pub(super) fn remove(&self, bucket: u64, slot: u32, slab: &RecordSlab) {
        let (entries, _) = self.current();
        let probe = Probe::new(bucket, entries.len());
        let at = |position: u32| &entries[position as usize];
        let mut hole = probe.home;
        while at(hole).load(Ordering::Relaxed) != probe.entry(slot) {
            hole = probe.after(hole);
        }
        let mut position = probe.after(hole);
        loop {
            let entry = at(position).load(Ordering::Relaxed);
            if entry == EMPTY {
                break;
            }
            let home = Probe::new(bucket_of(entry, probe.mask, slab), entries.len()).home;
            // An entry may not move before its home.
            let from_home = position.wrapping_sub(home) & probe.mask;
            let from_hole = position.wrapping_sub(hole) & probe.mask;
            if from_home >= from_hole {
                at(hole).store(entry, Ordering::Relaxed);
                hole = position;
            }
            position = probe.after(position);
        }
        at(hole).store(EMPTY, Ordering::Relaxed);
    }

    /// Grows the index, if `records` need it.
    pub(super) fn fit(&self, records: u32, slab: &RecordSlab) {
        let (old, old_bits) = self.current();
        let mut bits = old_bits;
        while u64::from(records) * MAX_LOAD.1 > (MAX_LOAD.0 << bits) {
            // The first step doubles twice, because old indexes weigh in a small table.
            bits += if bits == FIRST { 2 } else { 1 };
        }
        if bits == old_bits {
            return;
        }
        // The entries come first and the new size after them, so that readers find all buckets all
        // the time.
        self.sizes[bits as usize].get_or_init(|| {
            let new = empty(bits);
            let used = old.iter().map(|entry| entry.load(Ordering::Relaxed));
            for entry in used.filter(|entry| *entry != EMPTY) {
                let mask = (1 << old_bits) - 1;
                let bucket = bucket_of(entry, mask, slab);
                enter(&new, Probe::new(bucket, new.len()), entry & mask);
            }
            new
        });
        self.bits.store(bits, Ordering::Release);
    }

    /// The memory of the entries, in bytes.
    pub(super) fn memory(&self) -> usize {
        let sizes = self.sizes.iter().filter_map(OnceLock::get);
        sizes.map(|entries| size_of_val(&**entries)).sum()
    }

    /// The current entries, for the owner.
    fn current(&self) -> (&IndexEntries, u32) {
        let bits = self.bits.load(Ordering::Relaxed);
        let entries = self.sizes[bits as usize].get();
        (entries.expect("the owner sees what it has added"), bits)
    }
}

fn empty(bits: u32) -> IndexEntries {
    (0..1 << bits).map(|_| AtomicU32::new(EMPTY)).collect()
}

fn enter(entries: &IndexEntries, probe: Probe, slot: u32) {
    let mut position = probe.home;
    while entries[position as usize].load(Ordering::Relaxed) != EMPTY {
        position = probe.after(position);
    }
    entries[position as usize].store(probe.entry(slot), Ordering::Relaxed);
}

fn bucket_of(entry: u32, mask: u32, slab: &RecordSlab) -> u64 {
    let slot = entry & mask;
    let record = slab.record(slot).expect("an entry is of a record");
    word::bucket(record.word.load(Ordering::Relaxed))
}
