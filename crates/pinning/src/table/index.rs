//! From the number of a bucket to the number of its record: open addressing with
//! linear probing, read while its owner changes it.
//!
//! A reader may look in the middle of a change. Then it may miss a bucket that is
//! there, or be led to a record that is not the bucket's; the record itself says whose
//! it is, so the second is found out and the first is a miss like any other, which the
//! owner looks into again. That is why entries are relaxed, and why one can be moved up
//! when one before it goes: no tombstones, nothing to clean up later.
//!
//! When the index is full the owner enters all in one of twice the size. The old ones
//! stay, for nobody knows who still reads them; together they are smaller than the new.

use std::sync::OnceLock;

use super::slab::Slab;
use super::sync::{AtomicU32, Ordering};
use super::word;

/// The smallest index has `2^FIRST` entries; loom walks through every atomic.
const FIRST: u32 = if cfg!(loom) { 3 } else { 7 };
/// The largest has `2^LAST`: enough for all records at [`MAX_LOAD`].
const LAST: u32 = 27;
const SIZES: usize = (LAST - FIRST + 1) as usize;

/// The index grows when more than 7 of 8 entries would be used.
const MAX_LOAD: (u64, u64) = (7, 8);

const EMPTY: u32 = 0;

/// Where buckets are.
#[derive(Debug)]
pub(super) struct Index {
    /// The entries in force are `2^bits`, at `sizes[bits - FIRST]`.
    bits: AtomicU32,
    sizes: [OnceLock<Entries>; SIZES],
}

/// An entry is the number of the record and one in its lower bits, as many as the size
/// asks for, and above that as much of the hash as has room, so that few wrong records
/// are looked at.
type Entries = Box<[AtomicU32]>;

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

    /// The record that an entry names, if it may be the bucket's: else, and where it is empty, no less
    /// than the mask.
    #[inline]
    fn slot(self, entry: u32) -> u32 {
        (entry ^ self.mark).wrapping_sub(1)
    }
}

/// Where a bucket is to be looked for.
pub(super) struct Places<'a> {
    entries: &'a [AtomicU32],
    probe: Probe,
}

/// What is at the first place of a bucket, where most are.
pub(super) enum First {
    /// Nothing, and so nowhere.
    Empty,
    /// A record that may be the bucket's.
    Record(u32),
    /// Another's.
    Other,
}

impl Places<'_> {
    #[inline(always)] // on the path of every hit
    pub(super) fn first(&self) -> First {
        let entry = self.entries.get(self.probe.home as usize);
        let entry = entry.map_or(EMPTY, |entry| entry.load(Ordering::Relaxed));
        let slot = self.probe.slot(entry);
        match entry {
            _ if slot < self.probe.mask => First::Record(slot),
            EMPTY => First::Empty,
            _ => First::Other,
        }
    }

    /// The first that `look` makes of the records that may be the bucket's.
    #[inline]
    pub(super) fn search<T>(self, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        self.search_from(self.probe.home, look)
    }

    /// The same, behind the [first](Self::first) place.
    #[inline]
    pub(super) fn search_on<T>(self, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        self.search_from(self.probe.after(self.probe.home), look)
    }

    #[inline(always)]
    fn search_from<T>(&self, first: u32, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        let probe = self.probe;
        let mut position = first;
        // Bounded, because what is read may change all the while.
        for _ in 0..self.entries.len() {
            let entry = (self.entries.get(position as usize)?).load(Ordering::Relaxed);
            if entry == EMPTY {
                return None;
            }
            let slot = probe.slot(entry);
            if slot < probe.mask
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
        index.sizes[0].get_or_init(|| empty(FIRST));
        index
    }

    /// Where `bucket` may be.
    #[inline(always)] // on the path of every hit
    pub(super) fn places(&self, bucket: u64) -> Option<Places<'_>> {
        let bits = self.bits.load(Ordering::Acquire);
        Some(Places {
            entries: self.sizes.get((bits - FIRST) as usize)?.get()?,
            probe: Probe::new(bucket, bits),
        })
    }

    /// The first that `look` makes of the records where `bucket` may be.
    #[inline]
    pub(super) fn find<T>(&self, bucket: u64, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        self.places(bucket)?.search(look)
    }

    /// Adds a bucket that is not there. Only one thread may change the index.
    pub(super) fn insert(&self, bucket: u64, slot: u32) {
        let (entries, bits) = self.current();
        enter(entries, Probe::new(bucket, bits), slot);
    }

    /// Takes a bucket out whose record, like all others, still says whose it is.
    pub(super) fn remove(&self, bucket: u64, slot: u32, slab: &Slab) {
        let (entries, bits) = self.current();
        let probe = Probe::new(bucket, bits);
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
            let home = Probe::new(bucket_of(entry, probe.mask, slab), bits).home;
            // It may not come to stand before its home.
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

    /// Grows, if `records` need it.
    pub(super) fn fit(&self, records: u32, slab: &Slab) {
        let (old, old_bits) = self.current();
        let mut bits = old_bits;
        while u64::from(records) * MAX_LOAD.1 > (MAX_LOAD.0 << bits) {
            // The first step is a double one: in a small table, old ones weigh.
            bits += if bits == FIRST { 2 } else { 1 };
        }
        if bits == old_bits {
            return;
        }
        // Entered first and shown then, so that readers go on finding all.
        self.sizes[(bits - FIRST) as usize].get_or_init(|| {
            let new = empty(bits);
            let used = old.iter().map(|entry| entry.load(Ordering::Relaxed));
            for entry in used.filter(|entry| *entry != EMPTY) {
                let mask = (1 << old_bits) - 1;
                let bucket = bucket_of(entry, mask, slab);
                enter(&new, Probe::new(bucket, bits), (entry & mask) - 1);
            }
            new
        });
        self.bits.store(bits, Ordering::Release);
    }

    /// What the entries take, in bytes.
    pub(super) fn memory(&self) -> usize {
        let sizes = self.sizes.iter().filter_map(OnceLock::get);
        sizes.map(|entries| size_of_val(&**entries)).sum()
    }

    /// The entries in force, for the owner.
    fn current(&self) -> (&Entries, u32) {
        let bits = self.bits.load(Ordering::Relaxed);
        let entries = self.sizes[(bits - FIRST) as usize].get();
        (entries.expect("the owner sees what it has added"), bits)
    }
}

fn empty(bits: u32) -> Entries {
    (0..1 << bits).map(|_| AtomicU32::new(EMPTY)).collect()
}

fn enter(entries: &Entries, probe: Probe, slot: u32) {
    let mut position = probe.home;
    while entries[position as usize].load(Ordering::Relaxed) != EMPTY {
        position = probe.after(position);
    }
    entries[position as usize].store(probe.entry(slot), Ordering::Relaxed);
}

fn bucket_of(entry: u32, mask: u32, slab: &Slab) -> u64 {
    let slot = (entry & mask) - 1;
    let record = slab.record(slot).expect("an entry is of a record");
    word::bucket(record.word.load(Ordering::Relaxed))
}
