//! The choice of stores for long data in memory that another processor has read and will read
//! again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hydrant_base::recent::RecentTime;

/// The least bytes for which stores past the caches can be faster, if other processors have the
/// memory in their caches. Such stores cost some hundreds of nanoseconds extra.
pub(super) const LONG: usize = 8 << 10;

/// One of this many copies tries the other sort of stores. The system may have moved a thread to a
/// processor that shares other caches with the reader's, or none.
const TRIAL: u32 = 256;

/// The same, for the first copies after cached stores were found to be faster. Earlier copies past
/// the caches may have touched pages for the first time, which takes longer than either sort. A
/// trial past the caches costs little.
const FIRST_TRIAL: u32 = 8;
/// The most copies that are counted.
const MOST: u32 = 1 << 30;

/// The factor by which cached stores may take the writer longer. The reader fetches data past the
/// caches from memory, and the writer's clock does not see that.
///
/// Measured on Zen, in ticks a KiB. Through a cache that both share, stores take 75 to 230. Past it
/// they take 45 to 165, and messages take 1.3 to 1.7 times as long. Between processors that share
/// no cache, stores take 870 to 1040 and 60 to 80. Messages through the caches then take 2 to 4
/// times as long.
const WORTH: u64 = 6;
/// The same factor for memory in the reader's own cache. Cached stores wait for that cache, even if
/// the reader shares another. They are faster only if the reader runs on this very processor.
///
/// Measured on Zen between two processors that share a cache: data sent through the caches to a
/// board of 256 KiB takes 1.6 to 1.8 times as long.
const WORTH_OF_OWN: u64 = 1;

/// The sorts of stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    /// Through the caches. Such stores wait for each line that another processor has.
    Cached,
    /// Past the caches.
    NonTemporal,
}

/// The measured times of a writer's copies, by the sort of their stores. They tell whether the
/// writer shares a cache with the reader.
///
/// The writer changes the times. With several writers, some copies are not counted.
#[derive(Debug)]
pub struct StoreTimes {
    /// The factor by which cached stores may take longer.
    worth: u64,
    /// The recent ticks of the processor's clock for a KiB, by the [`Sort`].
    ticks: [RecentTime; 2],
    /// The copies since one sort was last found to be faster, by which trials are scheduled. The
    /// lowest bit is 1 if cached stores are faster.
    copies: AtomicU32,
}

impl Default for StoreTimes {
    /// For memory that is larger than a processor's own cache.
    fn default() -> Self {
        Self::with(WORTH)
    }
}

impl StoreTimes {
    /// For memory that fits a processor's own cache.
    #[must_use]
    pub fn to_own_cache() -> Self {
        Self::with(WORTH_OF_OWN)
    }

    fn with(worth: u64) -> Self {
        Self {
            worth,
            ticks: Default::default(),
            copies: AtomicU32::new(0),
        }
    }

    /// Calls `copy` for `len` bytes with the sort of stores to use, and notes its time.
    #[inline]
    pub(super) fn copy<R>(&self, len: usize, copy: impl FnOnce(Sort) -> R) -> R {
        let sort = self.next();
        let begun = ticks();
        let outcome = copy(sort);
        self.record(sort, ticks().wrapping_sub(begun), len);
        outcome
    }

    /// Returns true if cached stores were found to be faster. Always false without a processor
    /// clock.
    pub fn are_cached(&self) -> bool {
        match self.ticks.each_ref().map(RecentTime::mean) {
            _ if !cfg!(target_arch = "x86_64") => false,
            [0, _] | [_, 0] => false,
            [cached, past] => self.prefer_cached(cached, past),
        }
    }

    fn prefer_cached(&self, cached: u64, past: u64) -> bool {
        cached <= past.saturating_mul(self.worth)
    }

    fn next(&self) -> Sort {
        let before = self.copies.load(Relaxed);
        let [cached, past] = self.ticks.each_ref().map(RecentTime::mean);
        let is_faster = self.prefer_cached(cached, past);
        let copies = if is_faster == (before & 1 == 1) {
            // The count has room, and trials continue.
            (before >> 1) % MOST + 1
        } else {
            1
        };
        self.copies
            .store(copies << 1 | u32::from(is_faster), Relaxed);
        let trial = if is_faster {
            (copies / 16).next_power_of_two().clamp(FIRST_TRIAL, TRIAL)
        } else {
            TRIAL
        };
        let is_trial = copies.is_multiple_of(trial);
        match (cached, past) {
            (0, _) => Sort::Cached,
            (_, 0) => Sort::NonTemporal,
            _ if is_faster != is_trial => Sort::Cached,
            _ => Sort::NonTemporal,
        }
    }

    /// Records that a copy of `len` bytes took so many ticks.
    fn record(&self, sort: Sort, ticks: u64, len: usize) {
        let per_kib = ticks.saturating_mul(1024) / len.max(1) as u64;
        self.ticks[sort as usize].record_low(per_kib);
    }
}

/// Returns the processor's clock, of which only differences count. 0 if there is only one sort of
/// stores.
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

    /// Copies 16 KiB `count` times, with these ticks for each sort. Returns the number of copies
    /// past the caches.
    fn past(stores: &StoreTimes, [cached, non_temporal]: [u64; 2], count: u32) -> u32 {
        let mut past = 0;
        for _ in 0..count {
            let sort = stores.next();
            let ticks = match sort {
                Sort::Cached => cached,
                Sort::NonTemporal => non_temporal,
            };
            past += u32::from(sort == Sort::NonTemporal);
            stores.record(sort, ticks, 16 << 10);
        }
        past
    }

    #[test]
    fn the_faster_stores_are_used_after_threads_move() {
        let stores = StoreTimes::default();
        let (near, far) = ([1500, 900], [15_000, 1000]);
        // The first trial comes after eight copies, and the later ones less often.
        assert!(past(&stores, near, 256) <= 33);
        assert!(past(&stores, near, 4096) <= 150);
        assert!(past(&stores, near, 2560) <= 11);
        assert!(stores.are_cached());
        // After some dozens of copies it is clear that the caches are not shared any more.
        assert!(past(&stores, far, 2560) >= 2500);
        assert!(!stores.are_cached());
        assert!(past(&stores, far, 2560) >= 2549);
        assert!(past(&stores, near, 2560) <= 1024);
        assert!(past(&stores, near, 2560) <= 11);
    }

    #[test]
    fn an_interrupted_copy_counts_little() {
        let stores = StoreTimes::default();
        past(&stores, [1500, 900], 4096);
        stores.record(Sort::Cached, u64::MAX, 16 << 10);
        assert!(past(&stores, [1500, 900], 320) <= 2);
    }

    #[test]
    fn an_interrupted_first_copy_is_forgotten_with_the_second() {
        let stores = StoreTimes::default();
        assert_eq!(stores.next(), Sort::Cached);
        stores.record(Sort::Cached, 30_000_000, 16 << 10);
        assert!(past(&stores, [1500, 900], 2 * TRIAL) <= TRIAL + 33);
        assert!(past(&stores, [1500, 900], 2560) <= 150);
    }

    /// The first copies of both sorts touch pages. Only trials update the time past the caches.
    #[test]
    fn first_touches_are_soon_forgotten() {
        let stores = StoreTimes::default();
        past(&stores, [40_000, 30_000], 32);
        past(&stores, [15_000, 1000], 256);
        assert!(past(&stores, [15_000, 1000], 256) >= 200);
    }

    #[test]
    fn stores_do_not_wait_for_the_readers_own_cache() {
        let stores = StoreTimes::to_own_cache();
        past(&stores, [1500, 900], 4096);
        assert!(past(&stores, [1500, 900], 2560) >= 2540);
        // The same processor.
        assert!(past(&stores, [600, 900], 4096) <= 1024);
        assert!(past(&stores, [600, 900], 2560) <= 11);
    }
}
