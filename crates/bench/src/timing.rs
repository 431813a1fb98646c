//! The times of a side: their median, and how they spread.

use serde::{Deserialize, Serialize};

/// The thing that one sample is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sampled {
    /// A single operation.
    Operation,
    /// The mean of a batch of operations.
    Batch,
}

/// The least sample and the percentiles, in the unit of the row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    /// The number of samples.
    pub(crate) samples: u64,
    pub(crate) sampled: Sampled,
}

/// The samples of one side, in nanoseconds for an operation, or in what [`map`](Timing::map) made of them.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    samples: Vec<f64>,
    sampled: Sampled,
}

impl Timing {
    pub(crate) fn new(mut samples: Vec<f64>, sampled: Sampled) -> Self {
        samples.sort_by(f64::total_cmp);
        Timing { samples, sampled }
    }

    /// The middle of the samples.
    pub(crate) fn median(&self) -> f64 {
        median(&mut self.samples.clone())
    }

    /// Changes every sample, as from a time to a rate.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Timing::new(self.samples.into_iter().map(change).collect(), self.sampled)
    }

    /// The times of one operation, from those of `count` that were in flight together.
    pub(crate) fn each_of(mut self, count: usize) -> Self {
        if count > 1 {
            self.sampled = Sampled::Batch;
        }
        self.map(|nanos| nanos / count as f64)
    }

    /// The spread of the samples; none without samples.
    pub(crate) fn spread(&self) -> Option<Spread> {
        Some(Spread {
            min: *self.samples.first()?,
            p50: self.median(),
            p90: self.percentile(90),
            p99: self.percentile(99),
            samples: self.samples.len() as u64,
            sampled: self.sampled,
        })
    }

    /// The least sample that is at least as large as `share` hundredths of all (the nearest rank).
    fn percentile(&self, share: usize) -> f64 {
        let rank = (self.samples.len() * share).div_ceil(100).max(1);
        self.samples[rank - 1]
    }
}

impl Spread {
    /// The spread over several rounds: the least of all, and the medians of the percentiles.
    pub(crate) fn over(rounds: &[Spread]) -> Option<Spread> {
        let first = rounds.first()?;
        let middle =
            |of: fn(&Spread) -> f64| median(&mut rounds.iter().map(of).collect::<Vec<_>>());
        Some(Spread {
            min: rounds
                .iter()
                .map(|round| round.min)
                .fold(first.min, f64::min),
            p50: middle(|round| round.p50),
            p90: middle(|round| round.p90),
            p99: middle(|round| round.p99),
            samples: rounds.iter().map(|round| round.samples).sum(),
            sampled: first.sampled,
        })
    }
}

/// The middle of the samples, or the mean of the two in the middle; NaN of none.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => samples[middle],
        _ => (samples[middle - 1] + samples[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_of_the_nearest_rank() {
        let timing = Timing::new((1..=200).rev().map(f64::from).collect(), Sampled::Operation);
        let spread = timing.spread().unwrap();
        assert_eq!(
            (spread.min, spread.p50, spread.p90, spread.p99),
            (1.0, 100.5, 180.0, 198.0)
        );
        let one = Timing::new(vec![7.0], Sampled::Batch).spread().unwrap();
        assert_eq!(
            (one.min, one.p50, one.p90, one.p99, one.samples),
            (7.0, 7.0, 7.0, 7.0, 1)
        );
        assert_eq!(Timing::new(Vec::new(), Sampled::Batch).spread(), None);
    }

    #[test]
    fn operations_in_flight_together_are_a_batch() {
        let of = |count| {
            let timing = Timing::new(vec![8.0], Sampled::Operation).each_of(count);
            timing.spread().map(|spread| (spread.min, spread.sampled))
        };
        assert_eq!(of(1), Some((8.0, Sampled::Operation)));
        assert_eq!(of(4), Some((2.0, Sampled::Batch)));
    }

    #[test]
    fn rates_have_percentiles_of_their_own() {
        let times = Timing::new(vec![1.0, 2.0, 4.0], Sampled::Batch);
        let rates = times.map(|time| 8.0 / time).spread().unwrap();
        assert_eq!((rates.min, rates.p50, rates.p99), (2.0, 4.0, 8.0));
    }

    #[test]
    fn rounds_are_merged() {
        let round = |times: [f64; 3]| {
            Timing::new(times.to_vec(), Sampled::Batch)
                .spread()
                .unwrap()
        };
        let over = Spread::over(&[
            round([1.0, 5.0, 9.0]),
            round([2.0, 3.0, 4.0]),
            round([0.5, 4.0, 7.0]),
        ]);
        let over = over.unwrap();
        assert_eq!(
            (over.min, over.p50, over.p99, over.samples),
            (0.5, 4.0, 7.0, 9)
        );
    }
}
