//! Locks for accumulates: one for each stretch of a rank's memory, by address.
//!
//! The locks lie in the rank's segment, so that all ranks of its host share them. For ranks of
//! other hosts the owner adds, under the same locks. A lock is held while numbers are added, and
//! never while its holder waits for anything. So a thread that finds the lock taken retries until
//! it is free. The word of a lock names its holder. If the holder ended with the lock, half of its
//! sum may be in memory, and nobody takes the lock again.

use std::{
    hint,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
};

use hydrant_conduit::{
    Standing, Window,
    memory::{Factor, Fault, Runs},
};

use crate::{
    Error, Rank, Result,
    progress::Progress,
    segment::{LOCKS, SCRATCH},
};

/// The bytes of a stretch. It is long enough that most sections touch only few stretches, whose
/// runs are then added together. It is also long enough that its lock costs little beside the
/// additions.
const STRETCH: usize = 64 << 10;
/// Each lock has a cache line of its own.
const LINE: usize = 64;
/// Tries before the thread yields.
const SPINS: u32 = 100;
/// Tries between two checks that the holder is still present.
const HOLDER_CHECK: u32 = 1 << 16;

/// The locks of each rank whose memory is mapped here.
pub(crate) struct Locks {
    ranks: Box<[Option<LockArea>]>,
    /// The word that this rank writes into a lock that it takes: its number plus one.
    own: u64,
    /// Knows which ranks are lost.
    progress: Weak<Progress>,
}

struct LockArea {
    locks: Window,
    /// The address of the segment, from which stretches are counted.
    segment: usize,
}

/// A lock that this thread holds until this is dropped.
struct HeldLock<'a>(&'a AtomicU64);

impl Drop for HeldLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// Adds runs to a rank's memory. It keeps the last lock for the next run.
pub(crate) struct Adder<'a> {
    locks: &'a Locks,
    area: &'a LockArea,
    window: &'a Window,
    /// The held lock and its stretch.
    held: Option<(usize, HeldLock<'a>)>,
}

impl Locks {
    /// # Errors
    /// [`Error::Other`](crate::Error::Other) if a segment has no system area.
    pub(crate) fn new(progress: &Arc<Progress>) -> Result<Self> {
        let conduit = progress.conduit();
        let area = |rank| {
            let Some(window) = conduit.window(Rank(rank)) else {
                return Ok(None);
            };
            let locks = window.part(SCRATCH, LOCKS);
            let locks = locks.ok_or_else(|| Error::other("the segment has no system area"))?;
            let segment = window.addr();
            Ok(Some(LockArea { locks, segment }))
        };
        Ok(Self {
            ranks: (0..progress.size).map(area).collect::<Result<_>>()?,
            own: u64::from(progress.rank.0) + 1,
            progress: Arc::downgrade(progress),
        })
    }

    /// Returns an adder for memory of a rank that is mapped here.
    ///
    /// # Errors
    /// [`Error::Other`](crate::Error::Other) if the memory is not mapped here.
    #[inline]
    pub(crate) fn adder<'a>(&'a self, rank: Rank, window: &'a Window) -> Result<Adder<'a>> {
        match self.ranks.get(rank.index()) {
            Some(Some(area)) => Ok(Adder {
                locks: self,
                area,
                window,
                held: None,
            }),
            _ => Err(Error::other("a lock of memory that is not mapped here")),
        }
    }

    #[inline]
    fn take<'a>(&self, area: &'a LockArea, lock: usize) -> Result<HeldLock<'a>> {
        let word = area.locks.atomic_u64(lock * LINE);
        let word = word.map_err(|_| Error::other("a lock outside the locks"))?;
        match word.compare_exchange(0, self.own, Acquire, Relaxed) {
            Ok(_) => Ok(HeldLock(word)),
            Err(_) => self.take_contended(word),
        }
    }

    #[cold]
    fn take_contended<'a>(&self, word: &'a AtomicU64) -> Result<HeldLock<'a>> {
        let mut tries = 0_u32;
        while let Err(holder) = word.compare_exchange_weak(0, self.own, Acquire, Relaxed) {
            tries = tries.wrapping_add(1);
            match tries {
                _ if tries.is_multiple_of(HOLDER_CHECK) => self.check_holder(holder)?,
                ..SPINS => hint::spin_loop(),
                _ => thread::yield_now(),
            }
        }
        Ok(HeldLock(word))
    }

    /// Checks that the holder of a lock can still release it.
    fn check_holder(&self, holder: u64) -> Result<()> {
        let progress = self.progress.upgrade().ok_or(Error::JobOver)?;
        let holder = Rank((holder as u32).wrapping_sub(1));
        let is_rank = holder.0 < progress.size;
        if is_rank && progress.conduit().standing(holder) == Standing::Lost {
            return Err(Error::PeerLost(holder));
        }
        Ok(())
    }
}

impl Adder<'_> {
    /// Adds `factor` times each element of `data` to the elements from byte `at` of the window on.
    /// If it fails, part of the data may have been added.
    ///
    /// # Errors
    /// [`Error::PeerLost`], also for a rank that ended while it added; [`Error::JobOver`].
    #[inline]
    pub(crate) fn add(&mut self, mut at: usize, mut data: &[u8], factor: &Factor) -> Result<()> {
        let size = factor.number().size();
        while !data.is_empty() {
            // The size is a power of two, so a mask replaces a division that would cost as much as
            // a short run.
            let whole = match self.bytes_left(at) {
                left if left < data.len() => left & !(size - 1),
                _ => data.len(),
            };
            if whole == 0 {
                let (one, rest) = data.split_at(size.min(data.len()));
                self.add_astride(at, one, factor)?;
                (at, data) = (at + one.len(), rest);
                continue;
            }
            self.hold(at)?;
            let (now, rest) = data.split_at(whole);
            (self.window.accumulate(at, now, factor)).map_err(outside)?;
            (at, data) = (at + now.len(), rest);
        }
        Ok(())
    }

    /// Adds to an element that spans two stretches, under both locks. So the addition is atomic for
    /// every rank that holds either lock.
    #[cold]
    #[inline(never)]
    fn add_astride(&mut self, at: usize, one: &[u8], factor: &Factor) -> Result<()> {
        // Two locks are taken in their order, and no thread waits for a lock before one that it
        // holds.
        self.held = None;
        let stretch = self.segment_offset(at) / STRETCH;
        let (mut first, mut second) = (lock_of(stretch), lock_of(stretch + 1));
        if second < first {
            (first, second) = (second, first);
        }
        let _first = self.locks.take(self.area, first)?;
        let _second = self.locks.take(self.area, second)?;
        self.window.accumulate(at, one, factor).map_err(outside)
    }

    /// As [`add`](Self::add), for runs from `src` to byte `at`. Runs under one lock are added
    /// together.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Safety
    /// 1. Each run on that side is readable.
    /// 2. No run overlaps the runs in the window.
    /// 3. No other code writes to the runs meanwhile.
    #[allow(unsafe_code)] // memory is named by its address
    #[inline]
    pub(crate) unsafe fn add_runs(
        &mut self,
        at: usize,
        src: *const u8,
        runs: &Runs,
        factor: &Factor,
    ) -> Result<()> {
        let (window, offset) = (self.window, self.segment_offset(at));
        let left = |further| STRETCH - offset.wrapping_add(further) % STRETCH;
        let first = at;
        runs.try_parts(left, |part| {
            let [there, here] = part.start();
            let at = first.wrapping_add(there);
            if part.span() > self.bytes_left(at) {
                // SAFETY: the caller's condition 1: this is one run, which ends in another stretch. By
                // condition 3 no other code writes to it.
                let data =
                    unsafe { std::slice::from_raw_parts(src.wrapping_add(here), part.run()) };
                return self.add_across(at, data, factor);
            }
            self.hold(at)?;
            // SAFETY: the part holds runs of the caller: 1. readable, 2. apart from the window,
            // 3. not written by other code.
            unsafe { window.accumulate_part_from(first, src, part, factor) }.map_err(outside)
        })
    }

    /// As [`add_runs`](Self::add_runs), for runs of `data`, the first from byte `from` on.
    ///
    /// # Errors
    /// As [`add`](Self::add); [`Error::Other`] if the runs leave `data`.
    #[allow(unsafe_code)] // the slice keeps the conditions
    pub(crate) fn add_runs_of(
        &mut self,
        at: usize,
        (data, from): (&[u8], usize),
        runs: &Runs,
        factor: &Factor,
    ) -> Result<()> {
        let [_, span] = runs.spans();
        let data = data.get(from..).filter(|rest| span <= rest.len());
        let data = data.ok_or_else(|| outside(Fault::OutOfBounds))?;
        // SAFETY: 1. The runs lie in `data`, as was checked above. 2. No reference leads into a
        // window. 3. `data` is borrowed.
        unsafe { self.add_runs(at, data.as_ptr(), runs, factor) }
    }

    /// As [`add_list`](Self::add_list), for runs of `data`. The list has for each run its offset in
    /// the window and its offset in `data`.
    ///
    /// # Errors
    /// As [`add`](Self::add); [`Error::Other`] if a run leaves `data`.
    #[allow(unsafe_code)] // the slice keeps the conditions
    pub(crate) fn add_list_of(
        &mut self,
        run: usize,
        data: &[u8],
        list: impl Iterator<Item = (usize, usize)> + Clone,
        factor: &Factor,
    ) -> Result<()> {
        let most = data.len().checked_sub(run);
        if list
            .clone()
            .any(|(_, from)| most.is_none_or(|most| from > most))
        {
            return Err(outside(Fault::OutOfBounds));
        }
        let list = list.map(|(at, from)| (at, data.as_ptr().wrapping_add(from)));
        // SAFETY: 1. The runs lie in `data`, as was checked above. 2. No reference leads into a
        // window. 3. `data` is borrowed.
        unsafe { self.add_list(run, list, factor) }
    }

    /// As [`add`](Self::add), for a list of runs of `run` bytes each. The list has for each run its
    /// offset in the window and its address.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Safety
    /// 1., 2. and 3. as [`add_runs`](Self::add_runs).
    #[allow(unsafe_code)] // memory is named by its address
    #[inline]
    pub(crate) unsafe fn add_list(
        &mut self,
        run: usize,
        list: impl Iterator<Item = (usize, *const u8)>,
        factor: &Factor,
    ) -> Result<()> {
        let (window, mut outcome) = (self.window, Ok(()));
        // The range of window offsets at which a run under the held lock may begin: the first
        // offset and the number of offsets.
        let mut under = (0, 0);
        let list = list.filter_map(|(at, src)| {
            if at.wrapping_sub(under.0) < under.1 {
                return Some((at, src));
            }
            // SAFETY: the caller's conditions 1, 2 and 3, for one run of the list.
            under = unsafe { self.lock_for_run(at, (src, run), factor, &mut outcome) };
            (under.1 > 0).then_some((at, src))
        });
        // SAFETY: the caller's conditions 1, 2 and 3.
        let added = unsafe { window.accumulate_list_from(run, list, factor) };
        outcome.and(added.map_err(outside))
    }

    /// Takes the lock for a run of a list. Returns the range of offsets at which runs of this
    /// length are under that lock. A run that ends in another stretch is added here, and the range
    /// is empty. The range is also empty after a failure.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`add_runs`](Self::add_runs).
    #[allow(unsafe_code)] // memory is named by its address
    #[cold]
    #[inline(never)]
    unsafe fn lock_for_run(
        &mut self,
        at: usize,
        (src, run): (*const u8, usize),
        factor: &Factor,
        outcome: &mut Result<()>,
    ) -> (usize, usize) {
        let left = self.bytes_left(at);
        if outcome.is_ok() {
            *outcome = if run <= left {
                self.hold(at)
            } else {
                // SAFETY: the caller's condition 1; by condition 3 no other code writes to the run.
                let data = unsafe { std::slice::from_raw_parts(src, run) };
                self.add(at, data, factor)
            };
        }
        match outcome {
            Ok(()) if run <= left => (at.wrapping_sub(STRETCH - left), STRETCH - run + 1),
            _ => (0, 0),
        }
    }

    /// As [`add`](Self::add), out of line for runs that end in another stretch.
    #[cold]
    #[inline(never)]
    fn add_across(&mut self, at: usize, data: &[u8], factor: &Factor) -> Result<()> {
        self.add(at, data, factor)
    }

    /// Returns the bytes from an offset in the window to the end of its stretch.
    #[inline]
    fn bytes_left(&self, at: usize) -> usize {
        STRETCH - self.segment_offset(at) % STRETCH
    }

    /// Returns the offset in the segment of a byte of the window.
    #[inline]
    fn segment_offset(&self, at: usize) -> usize {
        (self.window.addr().wrapping_add(at)).wrapping_sub(self.area.segment)
    }

    /// Takes the lock of a byte, unless this holds it already.
    #[inline]
    fn hold(&mut self, at: usize) -> Result<()> {
        let stretch = self.segment_offset(at) / STRETCH;
        if self.held.as_ref().is_none_or(|(held, _)| *held != stretch) {
            // Released first, because threads that need two locks take them in order.
            self.held = None;
            let lock = self.locks.take(self.area, lock_of(stretch))?;
            self.held = Some((stretch, lock));
        }
        Ok(())
    }
}

/// Returns the index of the lock of a stretch.
#[inline]
fn lock_of(stretch: usize) -> usize {
    stretch % (LOCKS / LINE)
}

#[cold]
fn outside(_: Fault) -> Error {
    Error::other("an accumulate outside its window")
}

#[cfg(test)]
mod tests {
    use hydrant_conduit::memory::Number;

    use super::*;

    /// A lost rank holds one of two locks. An element in both stretches needs both, so nothing is
    /// added to it.
    #[test]
    fn an_element_in_two_stretches_has_both_locks() {
        let window = Window::private(2 * LOCKS + STRETCH);
        let locks = Locks {
            ranks: Box::new([Some(LockArea {
                locks: window.part(0, LOCKS).unwrap(),
                segment: window.addr(),
            })]),
            own: 1,
            progress: Weak::new(),
        };
        let one = [1.0_f64, 0.0];
        let factor = Factor::from_bytes(Number::C64, bytemuck::bytes_of(&one)).unwrap();
        let astride = STRETCH - 8;
        let mut adder = locks.adder(Rank(0), &window).unwrap();
        for lock in [0, 1] {
            window.atomic_u64(lock * LINE).unwrap().store(2, Relaxed);
            for data in [&[[1.0_f64; 2]; 1][..], &[[1.0; 2]; 3]] {
                let added = adder.add(astride, bytemuck::cast_slice(data), &factor);
                assert!(matches!(added, Err(Error::JobOver)), "{added:?}");
            }
            assert_eq!(window.load::<[f64; 4]>(astride), Ok([0.0; 4]));
            window.atomic_u64(lock * LINE).unwrap().store(0, Relaxed);
        }
        let data = [[1.0_f64; 2]; 4];
        adder
            .add(astride - 16, bytemuck::cast_slice(&data), &factor)
            .unwrap();
        assert_eq!(window.load::<[f64; 8]>(astride - 16), Ok([1.0; 8]));
        drop(adder);
        let free = (0..LOCKS / LINE).all(|lock| window.load::<u64>(lock * LINE) == Ok(0));
        assert!(free, "a lock was kept");
    }

    /// Threads add to the same memory of several stretches, by one run and by many. Some runs cross
    /// into the next stretch. No addition is lost.
    #[test]
    fn no_addition_is_lost_between_threads() {
        const COUNT: usize = 20_000;
        let window = Window::private(LOCKS + COUNT * 8 + 16);
        let locks = |own| Locks {
            ranks: Box::new([Some(LockArea {
                locks: window.part(0, LOCKS).unwrap(),
                segment: window.addr(),
            })]),
            own,
            progress: Weak::new(),
        };
        let one = Factor::from_bytes(Number::F64, &1.0_f64.to_ne_bytes()).unwrap();
        let ones: Vec<u8> = [1.0_f64; COUNT]
            .into_iter()
            .flat_map(f64::to_ne_bytes)
            .collect();
        let memory = window.part(LOCKS + 4, COUNT * 8).unwrap();
        let mut loops = Runs::new(40);
        loops.repeat(COUNT / 10, 80, 80).unwrap();
        let list = (0..COUNT / 10).map(|turn| (80 * turn + 40, 80 * turn + 40));
        thread::scope(|scope| {
            for own in 1..4 {
                let (locks, memory, ones) = (locks(own), &memory, &ones);
                let (loops, list) = (&loops, list.clone());
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut adder = locks.adder(Rank(0), memory).unwrap();
                        adder.add(0, ones, &one).unwrap();
                        // Every second run of five elements in a loop, the others in a list.
                        adder.add_runs_of(0, (ones, 0), loops, &one).unwrap();
                        adder.add_list_of(40, ones, list.clone(), &one).unwrap();
                    }
                });
            }
        });
        let mut sums = vec![0.0_f64; COUNT];
        memory.read(0, bytemuck::cast_slice_mut(&mut sums)).unwrap();
        assert_eq!(sums, [300.0; COUNT]);
        assert_eq!(window.load::<u64>(0), Ok(0));
        assert!(locks(1).adder(Rank(1), &memory).is_err());
        let (locks, short) = (locks(1), [0; 39]);
        let mut adder = locks.adder(Rank(0), &memory).unwrap();
        assert!(adder.add_runs_of(0, (&short, 0), &loops, &one).is_err());
        assert!(adder.add_list_of(40, &short, list, &one).is_err());
    }
}
