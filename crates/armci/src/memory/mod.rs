//! Memory that ARMCI allocates, and that other processes name by its address.
//!
//! Each process has an *arena*: its part of one symmetric allocation. At the start only addresses
//! are reserved. A process allocates in its arena by itself, so groups and single processes can
//! allocate too. Each process notes the allocations that it knows of, and checks each access
//! against them. A page that was used once stays with the arena.

mod heap;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{
            AtomicPtr, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use hydrant::{AllocOptions, Job, Rank, Strategy, Symmetric};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use self::heap::ArenaHeap;
use crate::{Error, Result, error::not_null};

/// Real memory is added to the arena in pieces of this many bytes.
const PIECE: usize = 1 << 20;

/// The least number of bytes that Hydrant's heap keeps beside the arena, for mutexes and the like.
const BESIDE: usize = 4 << 20;

/// The size in bytes of an arena that is registered as a whole at the start, if no limit is set.
const PINNED: usize = 64 << 20;

/// The memory of all processes, as this process knows it.
pub(crate) struct Memory {
    pub(crate) arena: Symmetric<u8>,
    /// The same memory as words that can be changed atomically.
    pub(crate) ints: Symmetric<i32>,
    pub(crate) longs: Symmetric<i64>,
    procs: Box<[ProcessMemory]>,
    own: Mutex<OwnArena>,
    /// For each part of an allocation of several processes, all parts of that allocation.
    together: Mutex<FxHashMap<AllocationPart, Arc<[AllocationPart]>>>,
    me: usize,
}

/// A process, and the offset at which its part of an allocation begins.
type AllocationPart = (usize, usize);

/// The memory of a process. Its size is a power of two, because each access indexes a list of these.
#[repr(align(128))]
struct ProcessMemory {
    /// The start of the process's arena: the address of its mapping here, else its address at the
    /// owner.
    base: usize,
    /// The start of the arena at its owner.
    base_at_owner: usize,
    /// The start of this process's arena at the other process.
    own_base_there: usize,
    is_mapped: bool,
    /// The allocation that the last lookup found; never null.
    last: AtomicPtr<KnownAllocation>,
    allocations: RwLock<Allocations>,
}

/// The allocations of a process that this process knows of.
#[derive(Default)]
struct Allocations {
    /// The index in `all` of each live allocation, by its start.
    live: BTreeMap<usize, usize>,
    /// Entries stay as long as this list, so a reader of `last` never reads freed memory.
    all: Vec<Arc<KnownAllocation>>,
    /// The indices in `all` of entries that are not in use.
    free: Vec<usize>,
}

/// The start and end of an allocation in an arena. An entry that is not in use has its end before its
/// start.
struct KnownAllocation {
    start: AtomicUsize,
    end: AtomicUsize,
}

struct OwnArena {
    heap: ArenaHeap,
    /// Bytes of the arena that have real memory.
    committed: usize,
}

/// The location of memory that a caller named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    /// The offset in the process's arena.
    Arena(usize),
    /// Memory of this process that ARMCI did not allocate.
    Own(*mut u8),
}

impl KnownAllocation {
    fn new(start: usize, end: usize) -> Self {
        let (start, end) = (AtomicUsize::new(start), AtomicUsize::new(end));
        Self { start, end }
    }

    /// The number of bytes from `at` to the end, if `at` is in the allocation.
    #[inline]
    fn bytes_from(&self, at: usize) -> Option<usize> {
        let (start, end) = (self.start.load(Relaxed), self.end.load(Relaxed));
        (start <= at && at <= end).then(|| end - at)
    }
}

impl Memory {
    /// Reserves the arenas. Collective.
    pub(crate) fn new(job: &Job, limit: Option<usize>) -> Result<Self> {
        let heap = job.settings().heap;
        let beside = (heap / 16).max(BESIDE).min(heap / 2);
        let strategy = job.settings().registration;
        let limit = match job.conduit().registration {
            Some(_) if strategy == Strategy::PinEverything => limit.or(Some(PINNED)),
            _ => limit,
        };
        let most = (heap - beside).saturating_sub(ArenaHeap::EDGES);
        let mine = limit.map_or(most, |limit| limit.min(most));
        let least = job.all_gather(&[mine])?.into_iter().min().unwrap_or(mine);
        let options = AllocOptions {
            reserve: true,
            ..AllocOptions::default()
        };
        let arena = job.alloc_with::<u8>(least + ArenaHeap::EDGES, options)?;
        let own = arena.as_ptr(job.rank())?.unwrap_or(std::ptr::null_mut());
        not_null(own, "this process's own memory")?;
        let theirs = job.all_gather(&[own.addr()])?;
        let mut bases = Vec::with_capacity(theirs.len());
        for (rank, theirs) in job.ranks().zip(&theirs) {
            let mapped = arena.as_ptr(rank)?;
            bases.push(mapped.map_or(*theirs, <*mut u8>::addr));
        }
        let mine_there = job.all_to_all(&bases)?;
        let procs = job.ranks().zip(theirs).map(|(rank, theirs)| {
            let mapped = arena.as_ptr(rank)?;
            let mut allocations = Allocations::default();
            let unused = KnownAllocation::new(usize::MAX, 0);
            allocations.all.push(Arc::new(unused));
            Ok(ProcessMemory {
                base: bases[rank.index()],
                base_at_owner: theirs,
                own_base_there: mine_there[rank.index()],
                is_mapped: mapped.is_some(),
                last: AtomicPtr::new(Arc::as_ptr(&allocations.all[0]).cast_mut()),
                allocations: RwLock::new(allocations),
            })
        });
        Ok(Self {
            procs: procs.collect::<Result<_>>()?,
            own: Mutex::new(OwnArena {
                heap: ArenaHeap::new(least, job.conduit().registration.is_none()),
                committed: 0,
            }),
            together: Mutex::default(),
            ints: arena.cast(),
            longs: arena.cast(),
            arena,
            me: job.rank().index(),
        })
    }

    /// Returns true if this process loads and stores directly in the memory of `proc`.
    #[inline]
    pub(crate) fn is_mapped(&self, proc: usize) -> bool {
        self.procs[proc].is_mapped
    }

    /// Checks the number of a process.
    ///
    /// # Errors
    /// [`Error::NoProcess`].
    #[inline]
    pub(crate) fn process(&self, proc: i32) -> Result<usize> {
        match usize::try_from(proc) {
            Ok(number) if number < self.procs.len() => Ok(number),
            _ => Err(Error::NoProcess {
                proc,
                processes: self.procs.len(),
            }),
        }
    }

    /// The location of `bytes` bytes of a process's memory.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::UnknownAddress`], [`Error::PastAllocation`], [`Error::Null`].
    #[inline]
    pub(crate) fn find(&self, proc: i32, at: *mut u8, bytes: usize) -> Result<Location> {
        match self.find_last(proc, at, bytes) {
            Some(offset) => Ok(Location::Arena(offset)),
            None => self.find_slowly(proc, at, bytes),
        }
    }

    /// The offset of these bytes in the arena of `proc`, if they are in the allocation that the
    /// last lookup found.
    #[inline(always)]
    pub(crate) fn find_last(&self, proc: i32, at: *mut u8, bytes: usize) -> Option<usize> {
        let known = self.procs.get(usize::try_from(proc).ok()?)?;
        let offset = at.addr().wrapping_sub(known.base);
        // SAFETY: `last` always points to an entry of `all`, and entries live as long as the list.
        #[allow(unsafe_code)]
        let last = unsafe { &*known.last.load(Acquire) };
        (bytes <= last.bytes_from(offset)?).then_some(offset)
    }

    /// The bounds of the allocation around an address of a process whose memory is mapped here, as
    /// addresses of this process.
    #[inline]
    pub(crate) fn allocation(&self, proc: usize, at: *mut u8) -> Option<std::ops::Range<usize>> {
        let known = &self.procs[proc];
        let offset = at.addr().wrapping_sub(known.base);
        let within = |start: usize, end: usize| {
            (start <= offset && offset < end).then(|| known.base + start..known.base + end)
        };
        // SAFETY: `last` always points to an entry of `all`, and entries live as long as the list.
        #[allow(unsafe_code)]
        let last = unsafe { &*known.last.load(Acquire) };
        within(last.start.load(Relaxed), last.end.load(Relaxed)).or_else(|| {
            known.look_up(offset)?;
            // SAFETY: as above.
            #[allow(unsafe_code)]
            let last = unsafe { &*known.last.load(Acquire) };
            within(last.start.load(Relaxed), last.end.load(Relaxed))
        })
    }

    #[cold]
    fn find_slowly(&self, proc: i32, at: *mut u8, bytes: usize) -> Result<Location> {
        let number = self.process(proc)?;
        not_null(at, "an address of memory")?;
        let known = &self.procs[number];
        for base in [known.base, known.base_at_owner] {
            let offset = at.addr().wrapping_sub(base);
            // An empty range may also lie just past the end of an allocation.
            let is_there = |(_, left): &(usize, usize)| *left > 0 || bytes == 0;
            let Some((_, left)) = known.look_up(offset).filter(is_there) else {
                continue;
            };
            if bytes > left {
                return Err(Error::PastAllocation {
                    proc,
                    addr: at.addr(),
                    bytes,
                    left,
                });
            }
            return Ok(Location::Arena(offset));
        }
        if number == self.me && at.addr().wrapping_sub(known.base) >= self.arena.len() {
            return Ok(Location::Own(at));
        }
        Err(Error::UnknownAddress {
            proc,
            addr: at.addr(),
        })
    }

    /// Allocates bytes in this process's arena. Returns their offset.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn allocate(&self, job: &Job, bytes: usize) -> Result<usize> {
        let mut own = self.own.lock();
        let lack = Error::OutOfMemory {
            proc: self.me,
            bytes,
        };
        let offset = own.heap.allocate(bytes).ok_or(lack)?;
        let needed = own.heap.end();
        if needed > own.committed {
            let end = needed.next_multiple_of(PIECE).min(self.arena.len());
            let committed = job.commit(&self.arena, own.committed, end - own.committed);
            if let Err(cause) = committed {
                own.heap.free(offset);
                return Err(cause.into());
            }
            own.committed = end;
        }
        Ok(offset)
    }

    /// Frees bytes that were [allocated](Self::allocate).
    pub(crate) fn free(&self, offset: usize) {
        self.own.lock().heap.free(offset);
    }

    /// Notes an allocation of a process that other processes know, or learn soon.
    pub(crate) fn note(&self, proc: usize, offset: usize, bytes: usize) {
        // The owner may have freed an older allocation here by itself, and the new one is no part
        // of that.
        self.together.lock().remove(&(proc, offset));
        self.procs[proc]
            .allocations
            .write()
            .insert(offset, offset + bytes);
    }

    /// Notes that several parts form one allocation. [`forget`](Self::forget) of one part forgets all.
    pub(crate) fn note_parts(&self, parts: Vec<AllocationPart>) {
        let parts: Arc<[AllocationPart]> = parts.into();
        let mut together = self.together.lock();
        for part in parts.iter() {
            together.insert(*part, Arc::clone(&parts));
        }
    }

    /// Forgets the allocation around an offset in the arena of `proc`. Returns the start of this
    /// process's own part, if it has one.
    pub(crate) fn forget(&self, proc: usize, offset: usize) -> Option<usize> {
        let start = self.procs[proc].allocations.write().remove(offset)?;
        let mut together = self.together.lock();
        let parts = together.remove(&(proc, start));
        let mut own = (proc == self.me).then_some(start);
        for part in parts.iter().flat_map(|parts| parts.iter()) {
            // A newer allocation at the same start belongs to another set of parts.
            let is_same = match together.get(part) {
                Some(others) => parts
                    .as_ref()
                    .is_some_and(|parts| Arc::ptr_eq(parts, others)),
                None => false,
            };
            if is_same {
                together.remove(part);
                // The owner may have freed the part by itself, and a newer allocation may cover its start.
                let existed = self.procs[part.0].allocations.write().remove_at(part.1);
                own = own.or((existed && part.0 == self.me).then_some(part.1));
            }
        }
        own
    }

    /// The address by which this process names a byte of a process's arena.
    pub(crate) fn address(&self, proc: usize, offset: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.procs[proc].base + offset)
    }

    /// Finds the process that owns an address of this process. Returns the process, the offset in its arena,
    /// and the number of bytes of the allocation before the address.
    pub(crate) fn owner_of(&self, at: *mut u8) -> Option<(usize, usize, usize)> {
        let own_first = std::iter::once(self.me).chain(0..self.procs.len());
        own_first.into_iter().find_map(|proc| {
            let known = &self.procs[proc];
            let offset = at.addr().wrapping_sub(known.base);
            // An allocation of no bytes contains only its start.
            let is_in = |(before, left): &(usize, usize)| *left > 0 || *before == 0;
            let (before, _) = known.look_up(offset).filter(is_in)?;
            Some((proc, offset, before))
        })
    }

    /// The start of a process's arena as an address of this process, and its bytes.
    #[inline]
    pub(crate) fn arena_of(&self, proc: usize) -> (usize, usize) {
        (self.procs[proc].base, self.arena.len())
    }

    /// The start of a process's arena as an address of its owner.
    pub(crate) fn base_at_owner(&self, proc: usize) -> usize {
        self.procs[proc].base_at_owner
    }

    /// The start of this process's arena as an address of `proc`.
    pub(crate) fn base_at(&self, proc: usize) -> usize {
        self.procs[proc].own_base_there
    }

    /// The rank of a process.
    #[inline]
    pub(crate) fn rank(proc: usize) -> Rank {
        Rank(proc as u32)
    }
}

impl ProcessMemory {
    /// Looks up the allocation around an offset, or ending there, and notes it in `last`. Returns its bytes
    /// before the offset, and from the offset on.
    fn look_up(&self, offset: usize) -> Option<(usize, usize)> {
        let allocations = self.allocations.read();
        let (start, index) = allocations.live.range(..=offset).next_back()?;
        let found = &allocations.all[*index];
        let left = found.bytes_from(offset)?;
        self.last.store(Arc::as_ptr(found).cast_mut(), Release);
        Some((offset - start, left))
    }
}

impl Allocations {
    /// Notes an allocation, and removes the older ones that it overlaps: their owner need not
    /// report that it freed them.
    fn insert(&mut self, start: usize, end: usize) {
        let stale: Vec<usize> = (self.live.range(..end))
            .rev()
            .take_while(|(_, index)| self.all[**index].end.load(Relaxed) > start)
            .map(|(start, _)| *start)
            .collect();
        stale
            .into_iter()
            .for_each(|start| _ = self.remove_at(start));
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Arc::new(KnownAllocation::new(usize::MAX, 0)));
            self.all.len() - 1
        });
        self.all[index].end.store(end, Relaxed);
        self.all[index].start.store(start, Relaxed);
        self.live.insert(start, index);
    }

    /// Removes the allocation around an offset. Returns its start.
    fn remove(&mut self, offset: usize) -> Option<usize> {
        let (start, index) = self.live.range(..=offset).next_back()?;
        let start = *start;
        self.all[*index].bytes_from(offset)?;
        self.remove_at(start);
        Some(start)
    }

    /// Removes the allocation that begins at `start`. Returns false if there is none.
    fn remove_at(&mut self, start: usize) -> bool {
        let Some(index) = self.live.remove(&start) else {
            return false;
        };
        self.all[index].start.store(usize::MAX, Relaxed);
        self.all[index].end.store(0, Relaxed);
        self.free.push(index);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_allocation_replaces_older_ones_that_it_overlaps() {
        let mut allocations = Allocations::default();
        allocations.insert(0, 100);
        allocations.insert(128, 200);
        allocations.insert(256, 300);
        allocations.insert(64, 260);
        let live: Vec<usize> = allocations.live.keys().copied().collect();
        assert_eq!(live, [64]);
        assert_eq!(allocations.remove(261), None);
        assert_eq!(allocations.remove(100), Some(64));
        assert_eq!(allocations.remove(100), None);
        assert_eq!(allocations.all.len(), 3);
    }
}
