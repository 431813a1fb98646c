//! By which stores long data goes to memory that another processor has read and is to read again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// From so many bytes on it can be faster to write past the caches what others have in theirs. What that takes by
/// itself is some hundreds of nanoseconds.
pub(super) const LONG: usize = 8 << 10;

/// Of so many copies one is made by the other stores: the system may have moved a thread meanwhile to a processor that
/// shares caches with the other's, or shares none.
const TRIAL: u32 = 256;

/// Of the first copies since those through the caches were found to be faster, one of so many: what went past the caches
/// may have touched pages for the first time, which takes longer than either. To go past them once costs little.
const FIRST_TRIAL: u32 = 8;
/// Copies that are counted.
const MOST: u32 = 1 << 30;

/// How many times as long stores through the caches may take the writer: what went past them, the reader fetches from
/// memory, which the writer's clock does not see.
///
/// Measured on Zen, in ticks a KiB: 75 to 230 through a cache that both share, and 45 to 165 past it, where messages so
/// take 1.3 to 1.7 times as long; 870 to 1040 and 60 to 80 between processors that share none, where those through
/// the caches take 2 to 4 times as long.
const WORTH: u32 = 6;
/// The same where the reader's own cache has what is written: stores through the caches wait for it, also where the
/// reader shares one, and are faster only if the reader has this very processor.
///
/// Measured on Zen between two processors that share a cache: what goes through the caches to a board of 256 KiB takes 1.6 to
/// 1.8 times as long.
const WORTH_OF_OWN: u32 = 1;

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
#[derive(Debug)]
pub struct Stores {
    /// How many times as long those through the caches may take.
    worth: u32,
    /// Ticks of the processor's clock for a KiB, of late; 0 before the first.
    cached: AtomicU32,
    /// The same of those past the caches.
    non_temporal: AtomicU32,
    /// Copies since one sort was last found to be faster than the other, by which trials have their turn; the lowest bit is
    /// which: 1 for those through the caches.
    copies: AtomicU32,
}

impl Default for Stores {
    /// To memory that is larger than a processor's own cache.
    fn default() -> Self {
        Self::with(WORTH)
    }
}

impl Stores {
    /// To memory that fits a processor's own cache.
    #[must_use]
    pub fn to_own_cache() -> Self {
        Self::with(WORTH_OF_OWN)
    }

    fn with(worth: u32) -> Self {
        Self {
            worth,
            cached: AtomicU32::new(0),
            non_temporal: AtomicU32::new(0),
            copies: AtomicU32::new(0),
        }
    }

    /// Copies `len` bytes by stores of the sort that it is told, and notes what that took.
    #[inline]
    pub(super) fn copy<R>(&self, len: usize, copy: impl FnOnce(Sort) -> R) -> R {
        let sort = self.next();
        let begun = ticks();
        let outcome = copy(sort);
        self.took(sort, ticks().wrapping_sub(begun), len);
        outcome
    }

    /// Whether stores through the caches were found to be faster: never where the processor's clock is not read.
    pub fn are_cached(&self) -> bool {
        match (self.cached.load(Relaxed), self.non_temporal.load(Relaxed)) {
            _ if !cfg!(target_arch = "x86_64") => false,
            (0, _) | (_, 0) => false,
            (cached, past) => self.prefer_cached(cached, past),
        }
    }

    fn prefer_cached(&self, cached: u32, past: u32) -> bool {
        cached <= past.saturating_mul(self.worth)
    }

    fn next(&self) -> Sort {
        let before = self.copies.load(Relaxed);
        let (cached, past) = (self.cached.load(Relaxed), self.non_temporal.load(Relaxed));
        let is_faster = self.prefer_cached(cached, past);
        let copies = match is_faster == (before & 1 == 1) {
            // There is room, and trials go on.
            true => (before >> 1) % MOST + 1,
            false => 1,
        };
        self.copies
            .store(copies << 1 | u32::from(is_faster), Relaxed);
        let trial = match is_faster {
            true => (copies / 16).next_power_of_two().clamp(FIRST_TRIAL, TRIAL),
            false => TRIAL,
        };
        let is_cached = match (cached, past) {
            (0, _) => true,
            (_, 0) => false,
            _ => is_faster != copies.is_multiple_of(trial),
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
        // A trial of eight copies, then of ever more.
        assert!(past(&stores, near, 256) <= 33);
        assert!(past(&stores, near, 4096) <= 150);
        assert!(past(&stores, near, 2560) <= 11);
        assert!(stores.are_cached());
        // Some dozens until it is seen that the caches are not shared any more.
        assert!(past(&stores, far, 2560) >= 2500);
        assert!(!stores.are_cached());
        assert!(past(&stores, far, 2560) >= 2549);
        assert!(past(&stores, near, 2560) <= 1024);
        assert!(past(&stores, near, 2560) <= 11);
    }

    #[test]
    fn a_copy_that_was_interrupted_says_little() {
        let stores = Stores::default();
        past(&stores, [1500, 900], 4096);
        stores.took(Sort::Cached, u64::MAX, 16 << 10);
        assert!(past(&stores, [1500, 900], 320) <= 2);
    }

    #[test]
    fn a_first_copy_that_was_interrupted_is_forgotten_with_the_second() {
        let stores = Stores::default();
        assert_eq!(stores.next(), Sort::Cached);
        stores.took(Sort::Cached, 30_000_000, 16 << 10);
        assert!(past(&stores, [1500, 900], 2 * TRIAL) <= TRIAL + 33);
        assert!(past(&stores, [1500, 900], 2560) <= 150);
    }

    /// The first copies of both sorts touch pages; of memory past the caches only trials tell.
    #[test]
    fn first_touches_are_soon_forgotten() {
        let stores = Stores::default();
        past(&stores, [40_000, 30_000], 32);
        past(&stores, [15_000, 1000], 256);
        assert!(past(&stores, [15_000, 1000], 256) >= 200);
    }

    #[test]
    fn who_reads_out_of_an_own_cache_is_not_waited_for() {
        let stores = Stores::to_own_cache();
        past(&stores, [1500, 900], 4096);
        assert!(past(&stores, [1500, 900], 2560) >= 2540);
        // The same processor.
        assert!(past(&stores, [600, 900], 4096) <= 1024);
        assert!(past(&stores, [600, 900], 2560) <= 11);
    }

    #[test]
    fn an_average_stays_a_number_to_compare() {
        assert_eq!(average(0, 0), 1);
        assert_eq!(average(0, u64::MAX), u32::MAX / 2);
        assert_eq!(average(u32::MAX / 2, u64::MAX), u32::MAX / 2);
        assert_eq!(average(1, 0), 1);
    }
}
