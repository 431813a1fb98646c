//! Timing: batches long enough for the clock, warm-up, medians, and the sides of a ratio in turns.
//!
//! A side runs `n` operations and returns the time that they took. In every repetition the sides
//! are sampled in turn (reference, ours, reference, ours, …). So a machine that slows down slows
//! all sides, and ratios survive where absolute figures do not.

use std::time::Duration;

pub(crate) use crate::timing::median;
use crate::timing::{Sampled, Timing};

/// The repetitions where the caller gives no number.
pub(crate) const REPETITIONS: u32 = 101;

/// A side of a comparison: runs this many operations and returns the time.
pub(crate) type Side<'s, E = hydrant::Error> = &'s mut dyn FnMut(u64) -> Result<Duration, E>;

/// More operations than any batch needs. A side that reports no time must not run for ever.
const MAX_OPERATIONS: u64 = 1 << 24;

/// The amount to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasurementPlan {
    /// Repetitions that count.
    pub(crate) repetitions: usize,
    /// Repetitions before the counted ones.
    pub(crate) warm_up: usize,
    /// The least time of a batch, so that the cost of reading the clock is negligible.
    pub(crate) batch: Duration,
    /// True if operations take so long that each can be timed by itself, where one rank runs them
    /// alone.
    pub(crate) singly: bool,
}

impl MeasurementPlan {
    /// The plan for this many repetitions; `quick` only shows that it works.
    pub(crate) fn new(repetitions: Option<usize>, quick: bool) -> Self {
        let (usual, warm_up, micros) = if quick {
            (5, 1, 50)
        } else {
            (REPETITIONS as usize, 5, 200)
        };
        MeasurementPlan {
            repetitions: repetitions.unwrap_or(usual).max(1),
            warm_up,
            batch: Duration::from_micros(micros),
            singly: false,
        }
    }

    /// The plan for a network, whose operations take microseconds and more. A batch is long, and
    /// its operations are samples of their own, as in perftest. Where kernels and threads take
    /// part, one operation may be delayed by a thread about to sleep, and must not spoil the rest.
    pub(crate) fn of_a_network(repetitions: Option<usize>, quick: bool) -> Self {
        let (usual, warm_up, millis) = if quick { (5, 1, 5) } else { (21, 2, 10) };
        MeasurementPlan {
            repetitions: repetitions.unwrap_or(usual).max(1),
            warm_up,
            batch: Duration::from_millis(millis),
            singly: true,
        }
    }

    /// The number of operations that fill a batch of this side.
    fn calibrate<E>(&self, side: Side<'_, E>) -> Result<u64, E> {
        let mut count = 1;
        loop {
            let mut took = side(count)?;
            // The best of three: a preempted batch must not pass for a long one.
            if took * 8 >= self.batch {
                took = took.min(side(count)?).min(side(count)?);
            }
            if took >= self.batch || count >= MAX_OPERATIONS {
                return Ok(count);
            }
            // From an eighth of the batch on, the estimate is good enough; below, the count
            // doubles.
            count = if took * 8 >= self.batch {
                let scale = self.batch.as_secs_f64() / took.as_secs_f64();
                ((count as f64 * scale).ceil() as u64 + 1).min(MAX_OPERATIONS)
            } else {
                (count * 2).min(MAX_OPERATIONS)
            };
        }
    }

    /// Times of one operation of each side, which runs alone, in nanoseconds.
    pub(crate) fn alone<E>(&self, sides: &mut [Side<'_, E>]) -> Result<Vec<Timing>, E> {
        if !self.singly {
            return self.in_turns(sides, &mut Vec::new);
        }
        let mut counts = Vec::with_capacity(sides.len());
        for side in sides.iter_mut() {
            counts.push(self.calibrate(&mut **side)?);
        }
        let mut samples = vec![Vec::new(); sides.len()];
        for repetition in 0..self.warm_up + self.repetitions {
            for (i, side) in sides.iter_mut().enumerate() {
                for _ in 0..counts[i] {
                    let took = side(1)?;
                    if repetition >= self.warm_up {
                        samples[i].push(took.as_secs_f64() * 1e9);
                    }
                }
            }
        }
        let timing = |samples| Timing::new(samples, Sampled::Operation);
        Ok(samples.into_iter().map(timing).collect())
    }

    /// Times of one operation of each side, by batches, in nanoseconds. If the side of this process timed each
    /// operation of its batch by itself, `singles` returns and forgets these times, and they count instead.
    pub(crate) fn in_turns<E>(
        &self,
        sides: &mut [Side<'_, E>],
        singles: &mut dyn FnMut() -> Vec<f64>,
    ) -> Result<Vec<Timing>, E> {
        let mut counts = Vec::with_capacity(sides.len());
        for side in sides.iter_mut() {
            counts.push(self.calibrate(&mut **side)?);
        }
        singles();
        let mut batches = vec![Vec::with_capacity(self.repetitions); sides.len()];
        let mut operations = vec![Vec::new(); sides.len()];
        for repetition in 0..self.warm_up + self.repetitions {
            for (i, side) in sides.iter_mut().enumerate() {
                let took = side(counts[i])?;
                let times = singles();
                if repetition >= self.warm_up {
                    batches[i].push(took.as_secs_f64() * 1e9 / counts[i] as f64);
                    operations[i].extend(times);
                }
            }
        }
        let timing = |(operations, batches): (Vec<f64>, Vec<f64>)| match operations.as_slice() {
            [] => Timing::new(batches, Sampled::Batch),
            _ => Timing::new(operations, Sampled::Operation),
        };
        Ok(operations.into_iter().zip(batches).map(timing).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn in_turns<E>(plan: &MeasurementPlan, sides: &mut [Side<'_, E>]) -> Result<Vec<f64>, E> {
        let timings = plan.in_turns(sides, &mut Vec::new)?;
        Ok(timings.iter().map(Timing::median).collect())
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn median_ignores_the_one_that_was_preempted() {
        assert_eq!(median(&mut [5.0, 5.0, 90_000.0]), 5.0);
    }

    #[test]
    fn batch_is_filled_and_the_time_of_one_operation_comes_out() {
        let plan = MeasurementPlan {
            repetitions: 3,
            warm_up: 1,
            batch: Duration::from_micros(50),
            singly: false,
        };
        let mut largest = 0;
        let mut ours = |n: u64| {
            largest = largest.max(n);
            Ok::<_, Infallible>(Duration::from_nanos(7 * n))
        };
        let medians = in_turns(&plan, &mut [&mut ours]).unwrap();
        assert!((medians[0] - 7.0).abs() < 0.01, "{medians:?}");
        assert!(largest * 7 >= 50_000 && largest * 7 < 60_000, "{largest}");
    }

    #[test]
    fn sides_take_turns_and_drift_cancels_in_the_ratio() {
        let plan = MeasurementPlan {
            repetitions: 21,
            warm_up: 2,
            batch: Duration::from_micros(1),
            singly: false,
        };
        let clock = std::cell::Cell::new(0u32);
        // Both slow down with every batch that either runs; the second always takes twice the
        // first.
        let drift = |times: u64| {
            let clock = &clock;
            move |n: u64| {
                clock.set(clock.get() + 1);
                Ok::<_, Infallible>(Duration::from_nanos(
                    n * times * u64::from(10_000 + 10 * clock.get()),
                ))
            }
        };
        let medians = in_turns(&plan, &mut [&mut drift(1), &mut drift(2)]).unwrap();
        assert!((medians[1] / medians[0] - 2.0).abs() < 0.01, "{medians:?}");
    }

    #[test]
    fn a_preempted_first_batch_does_not_make_the_batches_short() {
        let plan = MeasurementPlan {
            repetitions: 3,
            warm_up: 0,
            batch: Duration::from_micros(50),
            singly: false,
        };
        let (mut calls, mut last) = (0, 0);
        let mut side = |n: u64| {
            (calls, last) = (calls + 1, n);
            let preempted = if calls == 1 {
                Duration::from_millis(10)
            } else {
                Duration::ZERO
            };
            Ok::<_, Infallible>(preempted + Duration::from_nanos(3 * n))
        };
        in_turns(&plan, &mut [&mut side]).unwrap();
        assert!(last * 3 >= 50_000, "{last}");
    }

    #[test]
    fn a_delayed_operation_is_one_sample_of_many() {
        let plan = MeasurementPlan {
            singly: true,
            ..MeasurementPlan::new(Some(3), true)
        };
        let mut calls = 0_u64;
        let mut side = |n: u64| {
            calls += 1;
            let trouble = if calls.is_multiple_of(10) {
                1_000_000
            } else {
                0
            };
            Ok::<_, Infallible>(Duration::from_nanos(9_000 * n + trouble))
        };
        let timings = plan.alone(&mut [&mut side]).unwrap();
        assert_eq!(timings[0].median(), 9_000.0);
        assert!(calls > 10, "{calls}");
    }

    #[test]
    fn a_side_that_reports_no_time_ends() {
        let plan = MeasurementPlan {
            repetitions: 1,
            warm_up: 0,
            batch: Duration::from_micros(50),
            singly: false,
        };
        let mut nothing = |_| Ok::<_, Infallible>(Duration::ZERO);
        assert_eq!(in_turns(&plan, &mut [&mut nothing]).unwrap(), [0.0]);
    }

    #[test]
    fn operations_that_were_timed_singly_count_instead_of_their_batch() {
        let plan = MeasurementPlan {
            warm_up: 1,
            ..MeasurementPlan::new(Some(2), true)
        };
        let recorded = std::cell::RefCell::new(Vec::new());
        let mut side = |n: u64| {
            recorded
                .borrow_mut()
                .extend((0..n).map(|i| if i == 0 { 20_000.0 } else { 2_000.0 }));
            Ok::<_, Infallible>(Duration::from_nanos(2_000 * n + 18_000))
        };
        let timings = plan.in_turns(&mut [&mut side], &mut || recorded.take());
        let spread = timings.unwrap()[0].spread().unwrap();
        assert_eq!(
            (spread.min, spread.p50, spread.sampled),
            (2_000.0, 2_000.0, Sampled::Operation)
        );
        assert!(spread.samples > 2, "{spread:?}");
    }

    #[test]
    fn errors_come_through() {
        let mut broken = |_| Err("peer lost");
        assert_eq!(
            in_turns(&MeasurementPlan::new(None, true), &mut [&mut broken]),
            Err("peer lost")
        );
    }
}
