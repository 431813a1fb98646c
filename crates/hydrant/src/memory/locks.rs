//! Locks for those who accumulate: one for each stretch of a rank's memory, by address.
//!
//! They lie in the rank's segment, so that all ranks of its host take the same ones; for those of other
//! hosts the owner adds, which takes them, too. A lock is held while numbers are added and never while
//! anything is waited for, so that whoever finds it taken tries again until it is free. Its word says
//! who has it: of a rank that ended with a lock, half of what it added may be there, and nobody takes it
//! again.

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

/// Bytes of a stretch: long enough that most sections reach over few, whose runs are then added to
/// together, and that taking its lock costs little beside adding to all of it.
const STRETCH: usize = 64 << 10;
/// A lock has a cache line of its own.
const LINE: usize = 64;
/// Tries before others get the processor.
const SPINS: u32 = 100;
/// Tries between two looks whether the holder is still there.
const LOOK: u32 = 1 << 16;

/// The locks of each rank whose memory is mapped here.
pub(crate) struct Locks {
    ranks: Box<[Option<Area>]>,
    /// What this rank writes into a lock that it takes: its number, and one.
    own: u64,
    /// Who knows which ranks are lost.
    progress: Weak<Progress>,
}

struct Area {
    locks: Window,
    /// Where the segment begins, from which stretches are counted.
    segment: usize,
}

/// A lock that this thread has, until this is dropped.
struct Held<'a>(&'a AtomicU64);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// Who adds to a rank's memory, a run after the other. It keeps the last lock for the next run.
pub(crate) struct Adder<'a> {
    locks: &'a Locks,
    area: &'a Area,
    window: &'a Window,
    /// Which lock it has.
    held: Option<(usize, Held<'a>)>,
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
            Ok(Some(Area { locks, segment }))
        };
        Ok(Self {
            ranks: (0..progress.size).map(area).collect::<Result<_>>()?,
            own: u64::from(progress.rank.0) + 1,
            progress: Arc::downgrade(progress),
        })
    }

    /// Who adds to memory of a rank that is mapped here.
    ///
    /// # Errors
    /// [`Error::Other`](crate::Error::Other) if it is not.
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
    fn take<'a>(&self, area: &'a Area, lock: usize) -> Result<Held<'a>> {
        let word = area.locks.atomic_u64(lock * LINE);
        let word = word.map_err(|_| Error::other("a lock outside the locks"))?;
        match word.compare_exchange(0, self.own, Acquire, Relaxed) {
            Ok(_) => Ok(Held(word)),
            Err(_) => self.take_in_time(word),
        }
    }

    #[cold]
    fn take_in_time<'a>(&self, word: &'a AtomicU64) -> Result<Held<'a>> {
        let mut tries = 0_u32;
        while let Err(holder) = word.compare_exchange_weak(0, self.own, Acquire, Relaxed) {
            tries = tries.wrapping_add(1);
            match tries {
                _ if tries.is_multiple_of(LOOK) => self.look_after(holder)?,
                ..SPINS => hint::spin_loop(),
                _ => thread::yield_now(),
            }
        }
        Ok(Held(word))
    }

    /// Whether who has a lock can still give it back.
    fn look_after(&self, holder: u64) -> Result<()> {
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
    /// Adds the multiple of each element of `data` to those from byte `at` of the window on. Of an
    /// error part may be done.
    ///
    /// # Errors
    /// [`Error::PeerLost`] of a rank that ended while it added, too; [`Error::JobOver`].
    #[inline]
    pub(crate) fn add(&mut self, mut at: usize, mut data: &[u8], factor: &Factor) -> Result<()> {
        let size = factor.number().size();
        while !data.is_empty() {
            // The size is a power of two, and a division takes as long as adding to a short run.
            let whole = match self.left(at) {
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

    /// Adds to an element that begins in a stretch and ends in the next: under both locks, so that it is
    /// one step to whoever adds to bytes of it under either.
    #[cold]
    #[inline(never)]
    fn add_astride(&mut self, at: usize, one: &[u8], factor: &Factor) -> Result<()> {
        // Nobody waits for a lock who has one that is behind it in the order of the locks.
        self.held = None;
        let stretch = self.place(at) / STRETCH;
        let (mut first, mut second) = (lock_of(stretch), lock_of(stretch + 1));
        if second < first {
            (first, second) = (second, first);
        }
        let _first = self.locks.take(self.area, first)?;
        let _second = self.locks.take(self.area, second)?;
        self.window.accumulate(at, one, factor).map_err(outside)
    }

    /// As [`add`](Self::add), of runs, the first from `src` to byte `at`. As many as are under one lock
    /// are added to together.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// 1. Each run on that side is readable.
    /// 2. It lies apart from the runs in the window.
    /// 3. Nobody writes to it meanwhile.
    #[allow(unsafe_code)] // memory is named by its address
    #[inline]
    pub(crate) unsafe fn add_runs(
        &mut self,
        at: usize,
        src: *const u8,
        runs: &Runs,
        factor: &Factor,
    ) -> Result<()> {
        let (window, place) = (self.window, self.place(at));
        let left = |further| STRETCH - place.wrapping_add(further) % STRETCH;
        let first = at;
        runs.try_parts(left, |part| {
            let [there, here] = part.start();
            let at = first.wrapping_add(there);
            if part.span() > self.left(at) {
                // SAFETY: the caller's promise: it is one run, which ends in another stretch.
                let data =
                    unsafe { std::slice::from_raw_parts(src.wrapping_add(here), part.run()) };
                return self.add_across(at, data, factor);
            }
            self.hold(at)?;
            // SAFETY: the caller's promise.
            unsafe { window.accumulate_part_from(first, src, part, factor) }.map_err(outside)
        })
    }

    /// As [`add_runs`](Self::add_runs), of runs of `data`, the first from byte `from` on.
    ///
    /// # Errors
    /// As there; [`Error::Other`] if they leave `data`.
    #[allow(unsafe_code)] // the slice is the promise
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
        // SAFETY: the runs lie in `data`, which is borrowed; nobody holds a reference into a window.
        unsafe { self.add_runs(at, data.as_ptr(), runs, factor) }
    }

    /// As [`add_list`](Self::add_list), of runs of `data`: for each the byte where it goes, and where in
    /// `data` it is.
    ///
    /// # Errors
    /// As there; [`Error::Other`] if one leaves `data`.
    #[allow(unsafe_code)] // the slice is the promise
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
        // SAFETY: the runs lie in `data`, which is borrowed; nobody holds a reference into a window.
        unsafe { self.add_list(run, list, factor) }
    }

    /// As [`add`](Self::add), of a list of runs of `run` bytes each: for each the byte where it goes, and
    /// where it is.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As [`add_runs`](Self::add_runs).
    #[allow(unsafe_code)] // memory is named by its address
    #[inline]
    pub(crate) unsafe fn add_list(
        &mut self,
        run: usize,
        list: impl Iterator<Item = (usize, *const u8)>,
        factor: &Factor,
    ) -> Result<()> {
        let (window, mut outcome) = (self.window, Ok(()));
        // Bytes of the window where a run may begin that is under the lock this has: the first, and how
        // many.
        let mut under = (0, 0);
        let list = list.filter_map(|(at, src)| {
            if at.wrapping_sub(under.0) < under.1 {
                return Some((at, src));
            }
            // SAFETY: the caller's promise.
            under = unsafe { self.next(at, (src, run), factor, &mut outcome) };
            (under.1 > 0).then_some((at, src))
        });
        // SAFETY: the caller's promise.
        let added = unsafe { window.accumulate_list_from(run, list, factor) };
        outcome.and(added.map_err(outside))
    }

    /// Takes the lock of a run of a list: where runs of its length may begin that are under that lock. Of a
    /// run that ends in another stretch it adds to all. There are none then, nor once something failed.
    ///
    /// # Safety
    /// As [`add_runs`](Self::add_runs).
    #[allow(unsafe_code)] // memory is named by its address
    #[cold]
    #[inline(never)]
    unsafe fn next(
        &mut self,
        at: usize,
        (src, run): (*const u8, usize),
        factor: &Factor,
        outcome: &mut Result<()>,
    ) -> (usize, usize) {
        let left = self.left(at);
        if outcome.is_ok() {
            *outcome = if run <= left {
                self.hold(at)
            } else {
                // SAFETY: the caller's promise.
                let data = unsafe { std::slice::from_raw_parts(src, run) };
                self.add(at, data, factor)
            };
        }
        match outcome {
            Ok(()) if run <= left => (at.wrapping_sub(STRETCH - left), STRETCH - run + 1),
            _ => (0, 0),
        }
    }

    /// As [`add`](Self::add), out of the way of runs that are under one lock.
    #[cold]
    #[inline(never)]
    fn add_across(&mut self, at: usize, data: &[u8], factor: &Factor) -> Result<()> {
        self.add(at, data, factor)
    }

    /// Bytes from one of the window to the end of its stretch.
    #[inline]
    fn left(&self, at: usize) -> usize {
        STRETCH - self.place(at) % STRETCH
    }

    /// Where a byte of the window is, counted as stretches are.
    #[inline]
    fn place(&self, at: usize) -> usize {
        (self.window.addr().wrapping_add(at)).wrapping_sub(self.area.segment)
    }

    /// Takes the lock of a byte, unless this has it.
    #[inline]
    fn hold(&mut self, at: usize) -> Result<()> {
        let stretch = self.place(at) / STRETCH;
        if self.held.as_ref().is_none_or(|(held, _)| *held != stretch) {
            // Those who take two at once take them in order.
            self.held = None;
            let lock = self.locks.take(self.area, lock_of(stretch))?;
            self.held = Some((stretch, lock));
        }
        Ok(())
    }
}

/// Which lock is that of a stretch.
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

    /// A lock that another has, who is gone: of an element that lies in two stretches both are taken, and
    /// nothing is added to it while somebody has one of them.
    #[test]
    fn an_element_in_two_stretches_has_both_locks() {
        let window = Window::private(2 * LOCKS + STRETCH);
        let locks = Locks {
            ranks: Box::new([Some(Area {
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

    /// Threads that add to one place, of several stretches, by one run and by many, some of which reach
    /// from one stretch into the next: nothing is lost.
    #[test]
    fn nothing_is_lost_where_many_add() {
        const COUNT: usize = 20_000;
        let window = Window::private(LOCKS + COUNT * 8 + 16);
        let locks = |own| Locks {
            ranks: Box::new([Some(Area {
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
