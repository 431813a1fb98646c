//! The extents that this rank registered, by key.
//!
//! The upper half of a key is the NIC's rkey, by which a peer's NIC finds the memory. The lower
//! half is the index of the extent's slot in this table, and a few check bits. The local side finds
//! the slot by this index, without a search.
//!
//! A NIC answers a wrong key by breaking the connection. The check bits allow the sender to refuse
//! a key that was never made.

use std::sync::{
    OnceLock,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hydrant_conduit::{FreePlaces, Key};
use parking_lot::{Mutex, MutexGuard};

use crate::nic::MemoryRegion;

const CHUNK: usize = 1024;
/// Bits of a key for the index of its slot.
const INDEX_BITS: u32 = 20;
/// Bits of a key for the check.
const CHECK_BITS: u32 = 32 - INDEX_BITS;
/// Most extents of a table.
pub(crate) const MAX_EXTENTS: usize = 1 << INDEX_BITS;

/// A registered extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalExtent {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) lkey: u32,
    pub(crate) writable: bool,
}

impl LocalExtent {
    /// Returns whether an access stays within the extent.
    pub(crate) fn covers(&self, addr: u64, len: u64) -> bool {
        addr >= self.start && len <= self.len && addr - self.start <= self.len - len
    }
}

#[derive(Default)]
struct ExtentSlot {
    /// The extent's key, or zero if the slot is free.
    key: AtomicU64,
    start: AtomicU64,
    len: AtomicU64,
    lkey: AtomicU32,
    writable: AtomicBool,
    /// The registration. `None` while the slot is free, or if the extent is empty.
    region: Mutex<Option<MemoryRegion>>,
}

/// All registered extents of a rank.
pub(crate) struct ExtentTable {
    /// The slots, in chunks that are made on first use.
    chunks: Box<[OnceLock<Box<[ExtentSlot]>>]>,
    /// The free slots.
    free: Mutex<FreePlaces>,
    /// The number of slots.
    limit: usize,
}

impl ExtentTable {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, MAX_EXTENTS);
        Self {
            chunks: (0..limit.div_ceil(CHUNK))
                .map(|_| OnceLock::new())
                .collect(),
            free: Mutex::new(FreePlaces::new(limit as u32)),
            limit,
        }
    }

    /// Reserves a slot for an extent, if one is free.
    pub(crate) fn reserve(&self) -> Option<ReservedSlot<'_>> {
        let index = self.free().take_oldest()?;
        let chunk = &self.chunks[index as usize / CHUNK];
        chunk.get_or_init(|| (0..CHUNK).map(|_| ExtentSlot::default()).collect());
        Some(ReservedSlot { table: self, index })
    }

    /// Returns the extent of a key.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<LocalExtent> {
        let entry = self.entry(index_in(key))?;
        if key.0 == 0 || entry.key.load(Acquire) != key.0 {
            return None;
        }
        let extent = LocalExtent {
            start: entry.start.load(Acquire),
            len: entry.len.load(Acquire),
            lkey: entry.lkey.load(Acquire),
            writable: entry.writable.load(Acquire),
        };
        // A second look at the key: the values are not a mix of two extents.
        (entry.key.load(Relaxed) == key.0).then_some(extent)
    }

    /// Runs `work` with the extent of a key, which cannot be deregistered meanwhile.
    pub(crate) fn with_extent<R>(
        &self,
        key: Key,
        work: impl FnOnce(LocalExtent) -> R,
    ) -> Option<R> {
        let entry = self.entry(index_in(key))?;
        let _region = entry.region.lock();
        self.find(key).map(work)
    }

    /// Returns the extent of a key that peers may hold.
    pub(crate) fn find_remote(&self, key: Key) -> Option<LocalExtent> {
        rkey_in(key)?;
        self.find(key)
    }

    /// Revokes a key. Returns its region, to be dropped, and its slot, which becomes free when it
    /// is dropped.
    pub(crate) fn remove(&self, key: Key) -> Option<(Option<MemoryRegion>, ReservedSlot<'_>)> {
        let index = index_in(key);
        let entry = self.entry(index).filter(|_| key.0 != 0)?;
        // Of two threads that remove the key, only one finds it.
        let mut region = entry.region.lock();
        entry
            .key
            .compare_exchange(key.0, 0, Release, Relaxed)
            .ok()?;
        Some((region.take(), ReservedSlot { table: self, index }))
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    fn entry(&self, index: u32) -> Option<&ExtentSlot> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.get()?;
        chunk.get(index as usize % CHUNK)
    }

    fn free(&self) -> MutexGuard<'_, FreePlaces> {
        self.free.lock()
    }
}

/// A slot that nobody else uses. Dropping it frees the slot.
pub(crate) struct ReservedSlot<'a> {
    table: &'a ExtentTable,
    index: u32,
}

impl ReservedSlot<'_> {
    /// Stores an extent in the slot. Returns its key. An empty extent has no region.
    pub(crate) fn fill(
        self,
        region: Option<MemoryRegion>,
        start: u64,
        len: u64,
        writable: bool,
    ) -> Option<Key> {
        let entry = self.table.entry(self.index)?;
        let (rkey, lkey) = region
            .as_ref()
            .map_or((0, 0), |region| (region.rkey, region.lkey));
        let key = make_key(rkey, self.index);
        entry.start.store(start, Relaxed);
        entry.len.store(len, Relaxed);
        entry.lkey.store(lkey, Relaxed);
        entry.writable.store(writable, Relaxed);
        *entry.region.lock() = region;
        entry.key.store(key.0, Release);
        std::mem::forget(self);
        Some(key)
    }
}

impl Drop for ReservedSlot<'_> {
    fn drop(&mut self) {
        self.table.free().give_back(self.index);
    }
}

fn make_key(rkey: u32, index: u32) -> Key {
    Key(u64::from(rkey) << 32 | u64::from(index) << CHECK_BITS | u64::from(check(rkey, index)))
}

fn index_in(key: Key) -> u32 {
    key.0 as u32 >> CHECK_BITS
}

fn check(rkey: u32, index: u32) -> u32 {
    let word = u64::from(rkey) << 32 | u64::from(index) | 1 << 31;
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CHECK_BITS)) as u32
}

/// Returns the rkey in a peer's key, if its check bits are right.
#[inline]
pub(crate) fn rkey_in(key: Key) -> Option<u32> {
    let rkey = (key.0 >> 32) as u32;
    (check(rkey, index_in(key)) == key.0 as u32 & ((1 << CHECK_BITS) - 1)).then_some(rkey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_contains_its_rkey_and_index() {
        for (rkey, index) in [(0x1234_5678, 0), (1, 77), (u32::MAX, (1 << INDEX_BITS) - 1)] {
            let key = make_key(rkey, index);
            assert_eq!((rkey_in(key), index_in(key)), (Some(rkey), index));
            assert!(![Key::SEGMENT, Key::ANY].contains(&key));
            assert_eq!(rkey_in(Key(key.0 ^ 1)), None);
        }
        assert_eq!(rkey_in(Key::SEGMENT), None);
        assert_eq!(rkey_in(Key::ANY), None);
    }

    #[test]
    fn an_extent_covers_the_ranges_within_it() {
        let extent = LocalExtent {
            start: 100,
            len: 50,
            lkey: 0,
            writable: true,
        };
        assert!(extent.covers(100, 50) && extent.covers(149, 1));
        assert!(!extent.covers(99, 1) && !extent.covers(100, 51) && !extent.covers(150, 1));
        assert!(!extent.covers(u64::MAX, 1) && !extent.covers(110, u64::MAX));
    }

    #[test]
    fn slots_run_out_and_are_reused() {
        let table = ExtentTable::new(2);
        let (first, second) = (table.reserve().unwrap(), table.reserve().unwrap());
        assert!(table.reserve().is_none());
        let index = first.index;
        drop(first);
        assert_eq!(table.reserve().unwrap().index, index);
        drop(second);
    }
}
