//! The last few times that something took, and what they say of the next.

use std::collections::VecDeque;

/// How many are kept.
pub(super) const KEPT: usize = 32;

/// Weight of a time that is one step older.
const DECAY: f64 = 0.9;

/// Times that differ by less than this share of the period are nearly the same.
const NARROW: f64 = 0.01;

/// Times that differ by more have nothing to do with each other.
const WIDE: f64 = 0.05;

/// Of fewer times than this, the shortest is taken: the first of all are long, as caches are cold.
const FEW: usize = 4;

/// The last few times, newest last.
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

    pub(super) fn clear(&mut self) {
        self.times.clear();
    }

    /// Whether too little is known to tell what is usual.
    pub(super) fn is_sparse(&self) -> bool {
        self.times.len() < FEW
    }

    pub(super) fn shortest(&self) -> Option<u64> {
        self.times.iter().min().copied()
    }

    /// A time that the next will hardly be less than: as much below the shortest as that is below the median.
    pub(super) fn hardly_less(&self) -> Option<u64> {
        let shortest = self.shortest()?;
        let spread = self.quantile(KEPT, 0.5)? - shortest;
        Some(shortest.saturating_sub(spread))
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.times.back().copied()
    }

    /// The time below which `share` of the last `of` are, at most.
    pub(super) fn quantile(&self, of: usize, share: f64) -> Option<u64> {
        let mut last: Vec<u64> = self.times.iter().rev().take(of).copied().collect();
        last.sort_unstable();
        let at = (last.len() as f64 * share) as usize;
        last.get(at.min(last.len().saturating_sub(1))).copied()
    }

    /// The time around which most of the others are, the newer counting more, on the scale of
    /// a period.
    ///
    /// Noise only ever makes a computation longer, and comes in bursts. So times have a sharp lower edge,
    /// just above which they are densest, and a long tail: their mean is drawn into the tail and their
    /// median somewhat, the shortest is an exception by its nature, and the densest is what the next will
    /// most likely be.
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
        let density = |at: u64| -> f64 {
            let near = |apart: f64| (1.0 - apart / NARROW).max(0.0) + (1.0 - apart / WIDE).max(0.0);
            let weighted = self.times.iter().zip(&weights);
            weighted
                .map(|(&time, weight)| weight * near(time.abs_diff(at) as f64 / scale))
                .sum()
        };
        let rated = self.times.iter().map(|&time| (density(time), time));
        // Of equals the shorter: to be early costs less.
        let best = rated.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        best.map(|it| it.1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn history(times: &[u64]) -> History {
        let mut history = History::default();
        times.iter().for_each(|&it| history.push(it));
        history
    }

    #[test]
    fn of_nothing_nothing_is_known() {
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
    fn the_less_it_varies_the_nearer_is_what_it_hardly_is_less_than() {
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
