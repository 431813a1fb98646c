//! The choice between two routes by their recent times.
//!
//! A route's first times are not believed: its first uses register memory that stays registered,
//! wake sleepers or touch fresh pages. Later the faster route is used, and the slower one is tried
//! again once the time saved since pays for that. So a change of the machine's load is noticed, and
//! costs little where there is none.
//!
//! All values are atomic and relaxed, so threads may share them. With several writers, some times
//! are not counted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The uses of a route before its time is believed. The first ones touch fresh memory and wake
/// sleepers.
pub const TRIES: u32 = 4;

/// Trials of the slower route may take one part in so many of the time of all uses: 0.4 %, which is
/// less than the noise of a benchmark.
pub const TRIALS: u64 = 256;

/// A later time moves the mean by one part in so many, as with TCP's estimate of a round trip
/// (Jacobson 1988, "Congestion Avoidance and Control").
const PART: u64 = 8;

/// The bits that count samples.
const SAMPLES: u32 = 8;

/// The recent time of a route, in any unit.
#[derive(Default, Debug)]
pub struct RecentTime(AtomicU64);

impl RecentTime {
    /// Returns the mean; 0 before the first sample.
    #[inline]
    pub fn mean(&self) -> u64 {
        self.0.load(Relaxed) >> SAMPLES
    }

    /// Returns the number of samples, up to the `first` of [`record`](Self::record).
    #[inline]
    pub fn samples(&self) -> u32 {
        self.0.load(Relaxed) as u32 & ((1 << SAMPLES) - 1)
    }

    /// Records a time. Among the `first` samples the shortest counts, because no use is faster than
    /// its route can be. Later the mean counts, because a peer may be asleep at every second use. A
    /// far longer time has another cause, and counts as twice the mean.
    pub fn record(&self, took: u64, first: u32) {
        let (mean, samples) = (self.mean(), self.samples());
        let mean = match mean {
            0 => took,
            _ if took < mean && samples < first => took,
            _ if took < mean => mean - (mean - took).div_ceil(PART),
            _ => mean + (took - mean).min(mean) / PART,
        };
        self.set(mean.max(1), (samples + 1).min(first));
    }

    /// Records a time of a route whose uses are often longer for causes outside it, as an interrupted
    /// copy is. A shorter time counts for half, and one below an eighth of the mean counts alone. A
    /// longer time counts for an eighth, and as at most twice the mean.
    pub fn record_low(&self, took: u64) {
        let mean = match self.mean() {
            0 => took,
            mean if took < mean / 8 => took,
            mean if took < mean => mean.midpoint(took),
            mean => mean + (took - mean).min(mean).div_ceil(PART),
        };
        self.set(mean.max(1), self.samples());
    }

    /// Records a time that differs from one use to the next, so that the mean of all counts.
    pub fn average(&self, took: u64, first: u32) {
        let mean = match self.mean() {
            0 => took,
            mean => (mean * (PART - 1)).saturating_add(took) / PART,
        };
        self.set(mean.max(1), (self.samples() + 1).min(first));
    }

    /// Believes the mean no more than after so many samples.
    pub fn forget(&self, samples: u32) {
        self.set(self.mean(), samples);
    }

    fn set(&self, mean: u64, samples: u32) {
        // The largest mean leaves room for its multiples.
        let mean = mean.min(u64::MAX >> (SAMPLES + 4));
        self.0.store(mean << SAMPLES | u64::from(samples), Relaxed);
    }
}

/// The time that trials may spend.
#[derive(Default, Debug)]
pub struct Savings(AtomicU64);

impl Savings {
    /// Adds a part of the time that uses took.
    #[inline]
    pub fn earn(&self, took: u64) {
        let saved = self.0.load(Relaxed).saturating_add(took / TRIALS);
        self.0.store(saved, Relaxed);
    }

    /// Spends the savings, and returns true, if they are more than a trial costs.
    #[inline]
    pub fn spend(&self, cost: u64) -> bool {
        let can = self.0.load(Relaxed) > cost;
        if can {
            self.0.store(0, Relaxed);
        }
        can
    }
}

/// The recent times of two routes, and the choice between them. Routes are numbered 0 and 1, and each
/// is tried `FIRST` times.
///
/// ```
/// use hydrant_base::recent::{Chooser, TRIES};
///
/// let chooser: Chooser = Chooser::default();
/// for _ in 0..2 * TRIES {
///     let route = chooser.choose(0);
///     chooser.record(route, [500, 300][route]);
/// }
/// assert_eq!(chooser.choose(0), 1);
/// ```
#[derive(Default, Debug)]
pub struct Chooser<const FIRST: u32 = TRIES> {
    times: [RecentTime; 2],
    /// Uses that were begun as trials, by route, up to `FIRST`.
    tried: [AtomicU32; 2],
    saved: Savings,
}

impl<const FIRST: u32> Chooser<FIRST> {
    /// Chooses the route of a use that begins. Both are tried in turn, `first` before the other. It is
    /// also used while the times of the other are unknown.
    pub fn choose(&self, first: usize) -> usize {
        let tried = self.tried.each_ref().map(|it| it.load(Relaxed));
        let fewer = [first, 1 - first][usize::from(tried[1 - first] < tried[first])];
        if tried[fewer] < FIRST {
            self.tried[fewer].store(tried[fewer] + 1, Relaxed);
            return fewer;
        }
        let means = self.means();
        let (better, worse) = match means {
            // All trials of a route are in flight, or failed.
            [0, _] | [_, 0] => return first,
            [zero, one] if zero < one => (0, 1),
            _ => (1, 0),
        };
        self.saved.earn(means[better]);
        let cost = (means[worse] - means[better]).saturating_mul(FIRST.into());
        if self.saved.spend(cost) {
            // This use and the next ones are trials.
            self.tried[worse].store(1, Relaxed);
            self.times[worse].forget(0);
            return worse;
        }
        better
    }

    /// Records the time of a use by its route.
    pub fn record(&self, route: usize, took: u64) {
        self.times[route].record(took, FIRST);
    }

    /// Returns the mean time of each route; 0 if no use has ended.
    pub fn means(&self) -> [u64; 2] {
        self.times.each_ref().map(RecentTime::mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses routes `count` times, with the given time for each. Returns the number of uses of route 0.
    fn run(chooser: &Chooser, count: u32, took: [u64; 2]) -> u32 {
        let mut zero = 0;
        for _ in 0..count {
            let route = chooser.choose(0);
            chooser.record(route, took[route]);
            zero += u32::from(route == 0);
        }
        zero
    }

    #[test]
    fn the_faster_route_is_used_whatever_is_tried_first() {
        assert_eq!(run(&Chooser::default(), 100, [29_000, 62_000]), 100 - TRIES);
        assert!(run(&Chooser::default(), 100, [367_000, 335_000]) <= TRIES + 4);
        // A far slower route is not tried again.
        assert_eq!(
            run(&Chooser::default(), 10_000, [10_000_000, 10_000]),
            TRIES
        );
        // A route that becomes faster is found again.
        let chooser: Chooser = Chooser::default();
        run(&chooser, 100, [60_000, 30_000]);
        let slower = 4000 - run(&chooser, 4000, [10_000, 30_000]);
        assert!(slower < 2000, "{slower}");
    }

    #[test]
    fn a_slow_time_says_little() {
        let time = RecentTime::default();
        time.record(1_000_000, 2);
        time.record(1000, 2);
        assert_eq!((time.mean(), time.samples()), (1000, 2));
        time.record(1_000_000, 2);
        assert!(time.mean() < 1200);
        (0..40).for_each(|_| time.record(500, 2));
        assert!(time.mean() < 510);
        time.forget(0);
        time.record(100, 2);
        assert_eq!((time.mean(), time.samples()), (100, 1));
        time.record(u64::MAX, 2);
        time.average(u64::MAX, 2);
        assert!(time.mean() > 100);
    }

    #[test]
    fn a_low_mean_falls_faster_than_it_rises() {
        let time = RecentTime::default();
        time.record_low(0);
        assert_eq!(time.mean(), 1);
        time.record_low(u64::MAX);
        assert_eq!(time.mean(), 2);
        let time = RecentTime::default();
        for (took, mean) in [
            (1600, 1600),
            (800, 1200),
            (2400, 1350),
            (100, 100),
            (900, 113),
        ] {
            time.record_low(took);
            assert_eq!(time.mean(), mean);
        }
    }
}
