//! The extents that this rank registered, by key.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use hydrant_conduit::{FreePlaces, Key};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::{
    fabric::FabricRegion,
    keys::{self, MAX_EXTENTS},
};

const CHUNK: usize = 1024;

/// A registered extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalRegion {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) writable: bool,
    /// The descriptor for local accesses.
    pub(crate) descriptor: *mut c_void,
}

impl LocalRegion {
    /// Returns true if an access stays within the extent.
    #[inline]
    pub(crate) fn covers(&self, addr: u64, len: u64) -> bool {
        addr >= self.start && len <= self.len && addr - self.start <= self.len - len
    }
}

#[derive(Default)]
struct RegionSlot {
    /// The extent's key, or zero if the slot is free.
    key: AtomicU64,
    start: AtomicU64,
    len: AtomicU64,
    writable: AtomicBool,
    descriptor: AtomicPtr<c_void>,
    /// How many extents the slot has held.
    generation: AtomicU32,
    /// The registration. `None` while the slot is free, or if the extent is empty.
    region: Mutex<Option<FabricRegion>>,
}

/// All registered extents of a rank.
pub(crate) struct RegionTable {
    /// The slots, in chunks that are made on first use.
    chunks: Box<[OnceLock<Box<[RegionSlot]>>]>,
    /// The free slots.
    free: Mutex<FreePlaces>,
    /// The number of slots.
    limit: usize,
    /// The slot of each key, where the provider chooses the keys.
    foreign: Option<RwLock<FxHashMap<u64, u32>>>,
}

impl RegionTable {
    /// Makes a table of `limit` slots. `foreign`: the provider chooses the keys.
    pub(crate) fn new(limit: usize, foreign: bool) -> Self {
        let limit = limit.clamp(1, MAX_EXTENTS);
        Self {
            chunks: (0..limit.div_ceil(CHUNK))
                .map(|_| OnceLock::new())
                .collect(),
            free: Mutex::new(FreePlaces::new(limit as u32)),
            limit,
            foreign: foreign.then(RwLock::default),
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Reserves a slot for an extent, if one is free.
    pub(crate) fn reserve(&self) -> Option<ReservedRegion<'_>> {
        let index = self.free.lock().take_oldest()?;
        let chunk = &self.chunks[index as usize / CHUNK];
        chunk.get_or_init(|| (0..CHUNK).map(|_| RegionSlot::default()).collect());
        Some(ReservedRegion { table: self, index })
    }

    /// Returns the extent of a key.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<LocalRegion> {
        let slot = self.slot(self.index_of(key)?)?;
        if key.0 == 0 || slot.key.load(Acquire) != key.0 {
            return None;
        }
        let extent = LocalRegion {
            start: slot.start.load(Acquire),
            len: slot.len.load(Acquire),
            writable: slot.writable.load(Acquire),
            descriptor: slot.descriptor.load(Acquire),
        };
        // A second look at the key: the values are not a mix of two extents.
        (slot.key.load(Relaxed) == key.0).then_some(extent)
    }

    /// Runs `work` with the extent of a key, which cannot be deregistered meanwhile.
    pub(crate) fn with_extent<R>(
        &self,
        key: Key,
        work: impl FnOnce(LocalRegion) -> R,
    ) -> Option<R> {
        let slot = self.slot(self.index_of(key)?)?;
        let _region = slot.region.lock();
        self.find(key).map(work)
    }

    /// Revokes a key. Returns its region, to be dropped, and its slot, which becomes free when it is dropped.
    pub(crate) fn remove(&self, key: Key) -> Option<(Option<FabricRegion>, ReservedRegion<'_>)> {
        let index = self.index_of(key)?;
        let slot = self.slot(index).filter(|_| key.0 != 0)?;
        // Of two threads that remove the key, only one finds it.
        let mut region = slot.region.lock();
        (slot.key.compare_exchange(key.0, 0, Release, Relaxed)).ok()?;
        if let Some(foreign) = &self.foreign {
            foreign.write().remove(&key.0);
        }
        Some((region.take(), ReservedRegion { table: self, index }))
    }

    /// Ends all registrations.
    pub(crate) fn deregister(&mut self) {
        let made = self.chunks.iter_mut().filter_map(OnceLock::get_mut);
        for slot in made.flatten() {
            *slot.region.get_mut() = None;
        }
    }

    #[inline]
    fn index_of(&self, key: Key) -> Option<u32> {
        match &self.foreign {
            None => Some(keys::index_of(key)),
            Some(foreign) => foreign.read().get(&key.0).copied(),
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&RegionSlot> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.get()?;
        chunk.get(index as usize % CHUNK)
    }
}

/// A slot that nobody else uses. Dropping it frees the slot.
pub(crate) struct ReservedRegion<'a> {
    table: &'a RegionTable,
    index: u32,
}

impl ReservedRegion<'_> {
    /// Returns the key that an extent in this slot has, where the provider does not choose it.
    pub(crate) fn key(&self, start: u64) -> Option<Key> {
        let slot = self.table.slot(self.index)?;
        keys::make(start, self.index, slot.generation.load(Relaxed))
    }

    /// Frees the slot. Its next key is another.
    pub(crate) fn skip(self) {
        if let Some(slot) = self.table.slot(self.index) {
            slot.generation.fetch_add(1, Relaxed);
        }
    }

    /// Stores an extent in the slot under `key`. An empty extent has no region.
    pub(crate) fn fill(
        self,
        key: Key,
        region: Option<FabricRegion>,
        start: u64,
        len: u64,
        writable: bool,
    ) -> Key {
        let descriptor = (region.as_ref()).map_or(ptr::null_mut(), FabricRegion::descriptor);
        let slot = self
            .table
            .slot(self.index)
            .expect("the slot of a reservation");
        slot.generation.fetch_add(1, Relaxed);
        slot.start.store(start, Relaxed);
        slot.len.store(len, Relaxed);
        slot.writable.store(writable, Relaxed);
        slot.descriptor.store(descriptor, Relaxed);
        *slot.region.lock() = region;
        if let Some(foreign) = &self.table.foreign {
            foreign.write().insert(key.0, self.index);
        }
        slot.key.store(key.0, Release);
        std::mem::forget(self);
        key
    }
}

impl Drop for ReservedRegion<'_> {
    fn drop(&mut self) {
        self.table.free.lock().give_back(self.index);
    }
}
