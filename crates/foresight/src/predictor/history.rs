//! The last few durations of something, and estimates of the next.

use std::collections::VecDeque;

/// The number of durations kept.
pub(super) const KEPT: usize = 32;

/// The weight of a duration relative to the next newer one.
const DECAY: f64 = 0.9;

/// Times that differ by less than this share of the period are nearly the same.
const NARROW: f64 = 0.01;

/// Durations that differ by more than this share are unrelated.
const WIDE: f64 = 0.05;

/// With fewer durations than this, the shortest is taken: the first are long, because caches are cold.
const FEW: usize = 4;

/// The last few durations, newest last.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    times: VecDeque<u64>,
}

impl History {
    pub(super) fn push(&mut self, ns: u64) {
        if self.times.len() == KEPT {
            self.times.pop_front();
        }
        self.times.push_back(ns);
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn bytes(&self) -> usize {
        self.times.capacity() * size_of::<u64>()
    }

    pub(super) fn clear(&mut self) {
        self.times.clear();
    }

    /// True if too few durations are known to tell the usual one.
    pub(super) fn is_sparse(&self) -> bool {
        self.times.len() < FEW
    }

    pub(super) fn shortest(&self) -> Option<u64> {
        self.times.iter().min().copied()
    }

    /// A duration that the next is hardly below: as far below the shortest as the shortest is below the median.
    pub(super) fn hardly_less(&self) -> Option<u64> {
        let shortest = self.shortest()?;
        let spread = self.quantile(KEPT, 0.5)? - shortest;
        Some(shortest.saturating_sub(spread))
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.times.back().copied()
    }

    /// The `share` quantile of the last `of` durations.
    pub(super) fn quantile(&self, of: usize, share: f64) -> Option<u64> {
        let mut last: Vec<u64> = self.times.iter().rev().take(of).copied().collect();
        last.sort_unstable();
        let at = (last.len() as f64 * share) as usize;
        last.get(at.min(last.len().saturating_sub(1))).copied()
    }

    /// The duration around which most others lie, on the scale of a period. Newer durations weigh more.
    ///
    /// Noise only ever lengthens a computation, and comes in bursts. So durations have a sharp lower edge, just above
    /// which they are densest, and a long tail. The tail draws the mean, and somewhat the median; the shortest is by
    /// its nature an exception. The densest is the most likely next duration.
    pub(super) fn densest(&self, period_ns: u64) -> Option<u64> {
        if self.is_sparse() {
            return self.shortest();
        }
        let scale = (period_ns as f64).max(1.0);
        let mut weights = [0.0; KEPT];
        let mut weight = 1.0;
        for it in weights.iter_mut().take(self.times.len()).rev() {
            *it = weight;
            weight *= DECAY;
        }
        let mut times = [0_u64; KEPT];
        for (to, it) in times.iter_mut().zip(&self.times) {
            *to = *it;
        }
        let times = &times[..self.times.len()];
        let densities = densities(times, &weights, scale);
        let rated = densities.into_iter().zip(times.iter().copied());
        // Among equals, take the shorter: being early costs less.
        let best = rated.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        best.map(|it| it.1)
    }
}

/// The weight of the durations near each duration. Two durations are equally near to each other, so that each pair is
/// compared once.
fn densities(times: &[u64], weights: &[f64; KEPT], scale: f64) -> [f64; KEPT] {
    let mut all = [0.0; KEPT];
    for (at, time) in times.iter().enumerate() {
        // A duration is nearest to itself.
        all[at] += weights[at] * 2.0;
        for (other, other_time) in times.iter().enumerate().skip(at + 1) {
            let apart = time.abs_diff(*other_time) as f64 / scale;
            if apart < WIDE {
                let near = (1.0 - apart / NARROW).max(0.0) + (1.0 - apart / WIDE);
                all[at] += weights[other] * near;
                all[other] += weights[at] * near;
            }
        }
    }
    all
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// They equal the plain sum over all durations, to the last bit: a prediction is the same in every run.
        #[test]
        fn densities_are_sums_over_all(
            times in prop::collection::vec(prop_oneof![3 => 900u64..1100, 1 => any::<u64>()], 1..=KEPT),
            period_ns in prop_oneof![3 => 500u64..2000, 1 => any::<u64>()],
            decay in 0.5f64..1.0,
        ) {
            let scale = (period_ns as f64).max(1.0);
            let weights = std::array::from_fn(|at| decay.powi(at as i32));
            let plain = |at: u64| -> f64 {
                let near = |apart: f64| (1.0 - apart / NARROW).max(0.0) + (1.0 - apart / WIDE).max(0.0);
                let weighted = times.iter().zip(&weights);
                weighted.map(|(&time, weight)| weight * near(time.abs_diff(at) as f64 / scale)).sum()
            };
            let all = densities(&times, &weights, scale);
            for (at, time) in times.iter().enumerate() {
                prop_assert_eq!(all[at].to_bits(), plain(*time).to_bits());
            }
        }
    }

    fn history(times: &[u64]) -> History {
        let mut history = History::default();
        times.iter().for_each(|&it| history.push(it));
        history
    }

    #[test]
    fn an_empty_history_knows_nothing() {
        let none = History::default();
        assert_eq!((none.quantile(9, 0.5), none.densest(1)), (None, None));
    }

    #[test]
    fn quantiles_are_of_the_last() {
        let history = history(&[1, 50, 10, 30, 20, 40]);
        assert_eq!(history.quantile(5, 0.5), Some(30));
        assert_eq!(history.quantile(5, 0.0), Some(10));
        assert_eq!(history.quantile(99, 1.0), Some(50));
    }

    #[test]
    fn the_estimate_is_nearer_the_less_durations_vary() {
        assert_eq!(history(&[100, 100, 100]).hardly_less(), Some(100));
        assert_eq!(history(&[100, 110, 120]).hardly_less(), Some(90));
        assert_eq!(history(&[10, 100, 100]).hardly_less(), Some(0));
    }

    #[test]
    fn the_densest_is_neither_the_shortest_nor_drawn_by_the_tail() {
        let times = [900, 1000, 1002, 1400, 1001, 1900, 1003, 1200, 1300];
        assert_eq!(history(&times).densest(1000), Some(1002));
    }

    #[test]
    fn the_newer_count_more() {
        let mut times = [1000; 20].to_vec();
        times.extend([2000; 10]);
        assert_eq!(history(&times).densest(1000), Some(2000));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut times = vec![1];
        times.extend([5; KEPT]);
        assert_eq!(history(&times).quantile(KEPT, 0.0), Some(5));
    }
}
