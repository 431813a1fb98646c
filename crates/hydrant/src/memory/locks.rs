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

use hydrant_conduit::{Standing, Window, memory::Factor};

use crate::{
    Error, Rank, Result,
    progress::Progress,
    segment::{LOCKS, SCRATCH},
};

/// Bytes of a stretch: long enough that taking its lock costs little beside adding to all of it.
const STRETCH: usize = 16 << 10;
/// A lock has a cache line of its own.
const LINE: usize = 64;
/// Tries before others get the processor.
const SPINS: u32 = 100;
/// Tries between two looks whether the holder is still there.
const LOOK: u32 = 1000;

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
    fn take<'a>(&self, area: &'a Area, stretch: usize) -> Result<Held<'a>> {
        let at = stretch % (LOCKS / LINE) * LINE;
        let word = area.locks.atomic_u64(at);
        let word = word.map_err(|_| Error::other("a lock outside the locks"))?;
        match word.compare_exchange(0, self.own, Acquire, Relaxed) {
            Ok(_) => Ok(Held(word)),
            Err(_) => self.take_in_time(word),
        }
    }

    #[cold]
    fn take_in_time<'a>(&self, word: &'a AtomicU64) -> Result<Held<'a>> {
        for tries in 1_u32.. {
            match word.compare_exchange_weak(0, self.own, Acquire, Relaxed) {
                Ok(_) => break,
                Err(holder) if tries.is_multiple_of(LOOK) => self.look_after(holder)?,
                Err(_) if tries < SPINS => hint::spin_loop(),
                Err(_) => thread::yield_now(),
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
            // The lock of an element is that of its first byte.
            let place = (self.window.addr() + at).wrapping_sub(self.area.segment);
            let stretch = place / STRETCH;
            // To the end of the element: its size is a power of two, and a division takes as long as
            // adding to a short run.
            let left = (STRETCH - place % STRETCH + size - 1) & !(size - 1);
            if self.held.as_ref().is_none_or(|(held, _)| *held != stretch) {
                // Never two at once, or those who take them in another order wait for each other.
                self.held = None;
                self.held = Some((stretch, self.locks.take(self.area, stretch)?));
            }
            let (now, rest) = data.split_at(left.min(data.len()));
            (self.window.accumulate(at, now, factor))
                .map_err(|_| Error::other("an accumulate outside its window"))?;
            (at, data) = (at + now.len(), rest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hydrant_conduit::memory::Number;

    use super::*;

    /// Threads that add to one place, of several stretches: nothing is lost.
    #[test]
    fn nothing_is_lost_where_many_add() {
        const COUNT: usize = 5000;
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
        thread::scope(|scope| {
            for own in 1..4 {
                let (locks, memory, ones) = (locks(own), &memory, &ones);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut adder = locks.adder(Rank(0), memory).unwrap();
                        adder.add(0, ones, &one).unwrap();
                    }
                });
            }
        });
        let mut sums = vec![0.0_f64; COUNT];
        memory.read(0, bytemuck::cast_slice_mut(&mut sums)).unwrap();
        assert_eq!(sums, [150.0; COUNT]);
        assert_eq!(window.load::<u64>(0), Ok(0));
        assert!(locks(1).adder(Rank(1), &memory).is_err());
    }
}
