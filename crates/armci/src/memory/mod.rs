//! Memory that other processes can name by its address: what ARMCI allocates.
//!
//! Each process has an *arena*, its part of one symmetric allocation, of which addresses alone are
//! reserved at the start, and allocates there by itself, so that groups and single processes can. What
//! others may name is noted at every process that was told, and each access is checked against that. A
//! page that was used once stays with the arena.

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

use self::heap::Heap;
use crate::{Error, Result, error::not_null};

/// Real memory comes to the arena in pieces of so many bytes.
const PIECE: usize = 1 << 20;

/// What Hydrant's heap keeps beside the arena, at least: for mutexes and the like.
const BESIDE: usize = 4 << 20;

/// Bytes of an arena that is registered as a whole at the start, if nobody says how many.
const PINNED: usize = 64 << 20;

/// All processes' memory, as this one knows it.
pub(crate) struct Memory {
    pub(crate) arena: Symmetric<u8>,
    /// The same memory as words that can be changed atomically.
    pub(crate) ints: Symmetric<i32>,
    pub(crate) longs: Symmetric<i64>,
    procs: Box<[Proc]>,
    own: Mutex<Own>,
    /// The parts of allocations that several processes made together, by each of them.
    together: Mutex<FxHashMap<Part, Arc<[Part]>>>,
    me: usize,
}

/// A process, and where its part of an allocation begins.
type Part = (usize, usize);

/// The memory of a process. Its size is a power of two, for each access looks one up.
#[repr(align(128))]
struct Proc {
    /// Where its arena begins, as this process calls it: where it is mapped, else where its owner has
    /// it.
    base: usize,
    /// Where its owner has it.
    theirs: usize,
    /// Where that process has the arena of this one.
    mine_there: usize,
    is_mapped: bool,
    /// What was found there last; never null.
    last: AtomicPtr<Range>,
    ranges: RwLock<Ranges>,
}

/// Allocations of a process.
#[derive(Default)]
struct Ranges {
    /// By where they begin, the places of the live ones in `all`.
    live: BTreeMap<usize, usize>,
    /// Never dropped while the process is known, so that whoever looks at one is safe.
    all: Vec<Arc<Range>>,
    /// Places in `all` that are not in use.
    free: Vec<usize>,
}

/// Bytes of an arena, from one up to another. Of one that is not in use it is the end that is first.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

struct Own {
    heap: Heap,
    /// Bytes of the arena that have real memory.
    committed: usize,
}

/// Where memory is that somebody named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// So many bytes behind the start of the process's arena.
    Arena(usize),
    /// Memory of this process that ARMCI did not allocate.
    Own(*mut u8),
}

impl Range {
    fn new(start: usize, end: usize) -> Self {
        let (start, end) = (AtomicUsize::new(start), AtomicUsize::new(end));
        Self { start, end }
    }

    /// Bytes from one on, if it is in there.
    #[inline]
    fn left(&self, at: usize) -> Option<usize> {
        let (start, end) = (self.start.load(Relaxed), self.end.load(Relaxed));
        (start <= at && at <= end).then(|| end - at)
    }
}

impl Memory {
    /// Reserves the arenas. Collective.
    pub(crate) fn new(job: &Job, limit: Option<usize>) -> Result<Self> {
        let heap = job.settings().heap;
        let beside = (heap / 16).max(BESIDE).min(heap / 2);
        let strategy = job.settings().registration.strategy;
        let limit = match job.conduit().registration {
            Some(_) if strategy == Strategy::PinEverything => limit.or(Some(PINNED)),
            _ => limit,
        };
        let most = (heap - beside).saturating_sub(Heap::EDGES);
        let mine = limit.map_or(most, |limit| limit.min(most));
        let least = job.all_gather(&[mine])?.into_iter().min().unwrap_or(mine);
        let options = AllocOptions {
            reserve: true,
            ..AllocOptions::default()
        };
        let arena = job.alloc_with::<u8>(least + Heap::EDGES, options)?;
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
            let mut ranges = Ranges::default();
            ranges.all.push(Arc::new(Range::new(usize::MAX, 0)));
            Ok(Proc {
                base: bases[rank.index()],
                theirs,
                mine_there: mine_there[rank.index()],
                is_mapped: mapped.is_some(),
                last: AtomicPtr::new(Arc::as_ptr(&ranges.all[0]).cast_mut()),
                ranges: RwLock::new(ranges),
            })
        });
        Ok(Self {
            procs: procs.collect::<Result<_>>()?,
            own: Mutex::new(Own {
                heap: Heap::new(least, job.conduit().registration.is_none()),
                committed: 0,
            }),
            together: Mutex::default(),
            ints: arena.cast(),
            longs: arena.cast(),
            arena,
            me: job.rank().index(),
        })
    }

    /// Whether this process loads and stores there itself.
    #[inline]
    pub(crate) fn is_mapped(&self, proc: usize) -> bool {
        self.procs[proc].is_mapped
    }

    /// The number of a process.
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

    /// Where so many bytes of a process's memory are.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::UnknownAddress`], [`Error::PastAllocation`], [`Error::Null`].
    #[inline]
    pub(crate) fn find(&self, proc: i32, at: *mut u8, bytes: usize) -> Result<Place> {
        match self.find_last(proc, at, bytes) {
            Some(offset) => Ok(Place::Arena(offset)),
            None => self.find_slowly(proc, at, bytes),
        }
    }

    /// Where so many bytes are in a process's arena, if they are in the allocation that was found there last.
    #[inline(always)]
    pub(crate) fn find_last(&self, proc: i32, at: *mut u8, bytes: usize) -> Option<usize> {
        let known = self.procs.get(usize::try_from(proc).ok()?)?;
        let offset = at.addr().wrapping_sub(known.base);
        // SAFETY: ranges live as long as the table, and `last` always points to one.
        #[allow(unsafe_code)]
        let last = unsafe { &*known.last.load(Acquire) };
        (bytes <= last.left(offset)?).then_some(offset)
    }

    /// Where the allocation that has an address of a process's memory, which is mapped here, begins and
    /// ends, as this process calls it.
    #[inline]
    pub(crate) fn allocation(&self, proc: usize, at: *mut u8) -> Option<std::ops::Range<usize>> {
        let known = &self.procs[proc];
        let offset = at.addr().wrapping_sub(known.base);
        let within = |start: usize, end: usize| {
            (start <= offset && offset < end).then(|| known.base + start..known.base + end)
        };
        // SAFETY: ranges live as long as the table, and `last` always points to one.
        #[allow(unsafe_code)]
        let last = unsafe { &*known.last.load(Acquire) };
        within(last.start.load(Relaxed), last.end.load(Relaxed)).or_else(|| {
            known.look(offset)?;
            // SAFETY: as above.
            #[allow(unsafe_code)]
            let last = unsafe { &*known.last.load(Acquire) };
            within(last.start.load(Relaxed), last.end.load(Relaxed))
        })
    }

    #[cold]
    fn find_slowly(&self, proc: i32, at: *mut u8, bytes: usize) -> Result<Place> {
        let number = self.process(proc)?;
        not_null(at, "an address of memory")?;
        let known = &self.procs[number];
        for base in [known.base, known.theirs] {
            let offset = at.addr().wrapping_sub(base);
            // Of no bytes, one past the end is as good a place as any.
            let is_there = |(_, left): &(usize, usize)| *left > 0 || bytes == 0;
            let Some((_, left)) = known.look(offset).filter(is_there) else {
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
            return Ok(Place::Arena(offset));
        }
        if number == self.me && at.addr().wrapping_sub(known.base) >= self.arena.len() {
            return Ok(Place::Own(at));
        }
        Err(Error::UnknownAddress {
            proc,
            addr: at.addr(),
        })
    }

    /// Allocates bytes of this process: where they are in its arena. Of none there are none.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn take(&self, job: &Job, bytes: usize) -> Result<usize> {
        let mut own = self.own.lock();
        let lack = Error::OutOfMemory {
            proc: self.me,
            bytes,
        };
        let offset = own.heap.take(bytes).ok_or(lack)?;
        let needed = own.heap.end();
        if needed > own.committed {
            let end = needed.next_multiple_of(PIECE).min(self.arena.len());
            let committed = job.commit(&self.arena, own.committed, end - own.committed);
            if let Err(cause) = committed {
                own.heap.give(offset);
                return Err(cause.into());
            }
            own.committed = end;
        }
        Ok(offset)
    }

    /// Gives back what was [taken](Self::take).
    pub(crate) fn give(&self, offset: usize) {
        self.own.lock().heap.give(offset);
    }

    /// Notes that a process has allocated: others than this one know it, or are about to.
    pub(crate) fn note(&self, proc: usize, offset: usize, bytes: usize) {
        // Of what was there, and was freed by its owner alone, it is no part.
        self.together.lock().remove(&(proc, offset));
        self.procs[proc]
            .ranges
            .write()
            .insert(offset, offset + bytes);
    }

    /// Notes that parts were allocated together: who forgets one forgets all.
    pub(crate) fn note_together(&self, parts: Vec<Part>) {
        let parts: Arc<[Part]> = parts.into();
        let mut together = self.together.lock();
        for part in parts.iter() {
            together.insert(*part, Arc::clone(&parts));
        }
    }

    /// Forgets an allocation, of which a byte of a process is given: where this process's own part began,
    /// if it has one.
    pub(crate) fn forget(&self, proc: usize, offset: usize) -> Option<usize> {
        let start = self.procs[proc].ranges.write().remove(offset)?;
        let mut together = self.together.lock();
        let parts = together.remove(&(proc, start));
        let mut own = (proc == self.me).then_some(start);
        for part in parts.iter().flat_map(|parts| parts.iter()) {
            // What was allocated there since is another's.
            let is_same = match together.get(part) {
                Some(others) => parts
                    .as_ref()
                    .is_some_and(|parts| Arc::ptr_eq(parts, others)),
                None => false,
            };
            if is_same {
                together.remove(part);
                // Its owner may have freed it, and something else lie across its start.
                let begun = self.procs[part.0].ranges.write().drop_at(part.1);
                own = own.or((begun && part.0 == self.me).then_some(part.1));
            }
        }
        own
    }

    /// By what address this process calls a byte of a process's arena.
    pub(crate) fn address(&self, proc: usize, offset: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.procs[proc].base + offset)
    }

    /// The offset in its arena of a byte of some process's memory, given by its address here, and the number of bytes
    /// of its allocation before it.
    pub(crate) fn whose(&self, at: *mut u8) -> Option<(usize, usize, usize)> {
        let own_first = std::iter::once(self.me).chain(0..self.procs.len());
        own_first.into_iter().find_map(|proc| {
            let known = &self.procs[proc];
            let offset = at.addr().wrapping_sub(known.base);
            // An allocation of no bytes has its start alone.
            let is_in = |(before, left): &(usize, usize)| *left > 0 || *before == 0;
            let (before, _) = known.look(offset).filter(is_in)?;
            Some((proc, offset, before))
        })
    }

    /// Where a process's arena begins, as this process calls it, and its bytes.
    #[inline]
    pub(crate) fn arena_of(&self, proc: usize) -> (usize, usize) {
        (self.procs[proc].base, self.arena.len())
    }

    /// Where a process's arena begins, as that process calls it.
    pub(crate) fn owners_base(&self, proc: usize) -> usize {
        self.procs[proc].theirs
    }

    /// Where this process's arena begins, as another process calls it.
    pub(crate) fn base_at(&self, proc: usize) -> usize {
        self.procs[proc].mine_there
    }

    /// The rank of a process.
    #[inline]
    pub(crate) fn rank(proc: usize) -> Rank {
        Rank(proc as u32)
    }
}

impl Proc {
    /// How many bytes of its allocation come before one of the arena, and how many from there on, if it
    /// is in one or right behind it.
    fn look(&self, offset: usize) -> Option<(usize, usize)> {
        let ranges = self.ranges.read();
        let (start, place) = ranges.live.range(..=offset).next_back()?;
        let range = &ranges.all[*place];
        let left = range.left(offset)?;
        self.last.store(Arc::as_ptr(range).cast_mut(), Release);
        Some((offset - start, left))
    }
}

impl Ranges {
    /// Notes bytes in use, in the place of what was there: whoever freed that need not have said so.
    fn insert(&mut self, start: usize, end: usize) {
        let stale: Vec<usize> = (self.live.range(..end))
            .rev()
            .take_while(|(_, place)| self.all[**place].end.load(Relaxed) > start)
            .map(|(start, _)| *start)
            .collect();
        stale.into_iter().for_each(|start| _ = self.drop_at(start));
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(Arc::new(Range::new(usize::MAX, 0)));
            self.all.len() - 1
        });
        self.all[place].end.store(end, Relaxed);
        self.all[place].start.store(start, Relaxed);
        self.live.insert(start, place);
    }

    fn remove(&mut self, offset: usize) -> Option<usize> {
        let (start, place) = self.live.range(..=offset).next_back()?;
        let start = *start;
        self.all[*place].left(offset)?;
        self.drop_at(start);
        Some(start)
    }

    /// Whether there was one that begins there.
    fn drop_at(&mut self, start: usize) -> bool {
        let Some(place) = self.live.remove(&start) else {
            return false;
        };
        self.all[place].start.store(usize::MAX, Relaxed);
        self.all[place].end.store(0, Relaxed);
        self.free.push(place);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_anew_replaces_what_was_there() {
        let mut ranges = Ranges::default();
        ranges.insert(0, 100);
        ranges.insert(128, 200);
        ranges.insert(256, 300);
        ranges.insert(64, 260);
        let live: Vec<usize> = ranges.live.keys().copied().collect();
        assert_eq!(live, [64]);
        assert_eq!(ranges.remove(261), None);
        assert_eq!(ranges.remove(100), Some(64));
        assert_eq!(ranges.remove(100), None);
        assert_eq!(ranges.all.len(), 3);
    }
}
