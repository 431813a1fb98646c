//! By which stores long data goes to memory that another processor has read and is to read again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// From so many bytes on it can be faster to write past the caches what others have in theirs. What that takes by
/// itself is some hundreds of nanoseconds.
pub(super) const LONG: usize = 8 << 10;

/// Of so many copies, one is made by the other stores: the system may have moved a thread meanwhile to a processor that
/// shares caches with the other's, or shares none.
const TRIAL: u32 = 256;

/// How many times as long stores through the caches may take the writer: what went past them, the reader fetches from
/// memory, which the writer's clock does not see.
///
/// Measured on Zen, in ticks a KiB: 75 to 230 through a cache that both share, and 45 to 165 past it, where messages so
/// take 1.3 to 1.7 times as long; 870 to 1040 and 60 to 80 between processors that share none, where those through
/// the caches take 2 to 4 times as long.
const WORTH: u32 = 6;

/// Stores of one sort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    /// Through the caches. They wait for each line that another processor has.
    Cached,
    /// Past them.
    NonTemporal,
}

/// What the copies of a writer took, by the sort of their stores: which tells whether it shares a cache with whoever
/// reads.
///
/// The writer changes it; if there are several, some of their copies are not counted.
#[derive(Debug, Default)]
pub struct Stores {
    /// Ticks of the processor's clock for a KiB, of late; 0 before the first.
    cached: AtomicU32,
    /// The same of those past the caches.
    non_temporal: AtomicU32,
    /// Copies so far, by which trials have their turn.
    copies: AtomicU32,
}

impl Stores {
    /// Copies `len` bytes by stores of the sort that it is told, and notes what that took.
    #[inline]
    pub(super) fn copy<R>(&self, len: usize, copy: impl FnOnce(Sort) -> R) -> R {
        let sort = self.next();
        let begun = ticks();
        let outcome = copy(sort);
        self.took(sort, ticks().wrapping_sub(begun), len);
        outcome
    }

    fn next(&self) -> Sort {
        let copies = self.copies.load(Relaxed).wrapping_add(1);
        self.copies.store(copies, Relaxed);
        let is_cached = match (self.cached.load(Relaxed), self.non_temporal.load(Relaxed)) {
            (0, _) => true,
            (_, 0) => false,
            (cached, past) => {
                (cached <= past.saturating_mul(WORTH)) != copies.is_multiple_of(TRIAL)
            }
        };
        match is_cached {
            true => Sort::Cached,
            false => Sort::NonTemporal,
        }
    }

    fn took(&self, sort: Sort, ticks: u64, len: usize) {
        let of_late = match sort {
            Sort::Cached => &self.cached,
            Sort::NonTemporal => &self.non_temporal,
        };
        let per_kib = ticks.saturating_mul(1024) / len.max(1) as u64;
        let before = of_late.load(Relaxed);
        of_late.store(average(before, per_kib), Relaxed);
    }
}

/// What copies take of late, with one more. What is faster than those before counts for half, and alone if it takes
/// an eighth: then the system stopped the thread in the first of them, or the other rank has moved. What is slower counts for
/// an eighth, and as twice as slow at most, for the system may have stopped the thread now.
fn average(before: u32, now: u64) -> u32 {
    let most = match before {
        0 => u64::from(u32::MAX / 2),
        _ => 2 * u64::from(before),
    };
    let now = now.min(most) as u32;
    let after = match before {
        0 => now,
        _ if now < before / 8 => now,
        _ if now < before => before.midpoint(now),
        _ => before + (now - before).div_ceil(8),
    };
    after.clamp(1, u32::MAX / 2)
}

/// The processor's clock, of which only differences count. 0 where there is but one sort of stores.
#[inline]
fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies 16 KiB `count` times where each sort takes so long; how many went past the caches.
    fn past(stores: &Stores, [cached, non_temporal]: [u64; 2], count: u32) -> u32 {
        let mut past = 0;
        for _ in 0..count {
            let sort = stores.next();
            let ticks = match sort {
                Sort::Cached => cached,
                Sort::NonTemporal => non_temporal,
            };
            past += u32::from(sort == Sort::NonTemporal);
            stores.took(sort, ticks, 16 << 10);
        }
        past
    }

    #[test]
    fn the_faster_stores_are_taken_wherever_threads_are_moved() {
        let stores = Stores::default();
        let (near, far) = ([1500, 900], [15_000, 1000]);
        assert!(past(&stores, near, 2560) <= 11);
        // Some dozens until it is seen that the caches are not shared any more.
        assert!(past(&stores, far, 2560) >= 2500);
        assert!(past(&stores, far, 2560) >= 2549);
        assert!(past(&stores, near, 2560) <= 1024);
        assert!(past(&stores, near, 2560) <= 11);
    }

    #[test]
    fn a_copy_that_was_interrupted_says_little() {
        let stores = Stores::default();
        past(&stores, [1500, 900], 320);
        stores.took(Sort::Cached, u64::MAX, 16 << 10);
        assert!(past(&stores, [1500, 900], 320) <= 2);
    }

    #[test]
    fn a_first_copy_that_was_interrupted_is_forgotten_with_the_second() {
        let stores = Stores::default();
        assert_eq!(stores.next(), Sort::Cached);
        stores.took(Sort::Cached, 30_000_000, 16 << 10);
        assert!(past(&stores, [1500, 900], 2 * TRIAL) <= TRIAL + 1);
        assert!(past(&stores, [1500, 900], 2560) <= 11);
    }

    #[test]
    fn an_average_stays_a_number_to_compare() {
        assert_eq!(average(0, 0), 1);
        assert_eq!(average(0, u64::MAX), u32::MAX / 2);
        assert_eq!(average(u32::MAX / 2, u64::MAX), u32::MAX / 2);
        assert_eq!(average(1, 0), 1);
    }
}
