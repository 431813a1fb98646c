//! Every strategy at every point: Figures 3 and 4 of the Firehose paper for puts and gets of all
//! sizes. The accesses are in sequence, at random and skewed, over working sets below, at and
//! beyond M.
//!
//! Rank 0 works on the memory of rank 1, from and to one buffer of its own. Before that it touches
//! the working set once, or as much of it as fills M twice. Rank 1 does nothing but handle
//! messages. Each strategy is a job of its own with the same limits, and each point has memory of
//! its own, so that none inherits registrations. Time is that of the job's clock, so that emulated
//! machines are measured by theirs.

use std::time::{Duration, Instant};

use hydrant::{Rank, Symmetric};
use hydrant_base::Random;

use super::attend;
use crate::ensemble::Ensemble;
use crate::measure::median;
use crate::network::PARTNER;
use crate::row::{Row, WORKING_SET};
use crate::timing::{Sampled, Timing};

/// The limit M: small, so that a working set beyond it is quickly touched, and below the pinning
/// limit of the smallest emulated machine.
const M: u64 = 3 << 20;
const MAXVICTIM: u64 = 1 << 20;

/// Bytes of an operation, and the number of operations in a figure.
const SIZES: [(usize, u64); 6] = [
    (8, 1000),
    (64, 1000),
    (4 << 10, 600),
    (16 << 10, 400),
    (64 << 10, 160),
    (1 << 20, 40),
];
const QUICK_SIZES: [(usize, u64); 2] = [(8, 100), (64 << 10, 20)];

/// Working sets in quarters of M: below it, all of it, beyond it.
const QUARTERS: [u64; 3] = [2, 4, 16];

/// The number of samples in a median.
const SAMPLES: u64 = 5;

/// Bytes from one offset of a short operation to the next: one to a bucket.
const STEP: usize = 4096;

/// The order of offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AccessOrder {
    /// In sequence, and from the start again.
    Sequential,
    /// At random, all offsets equally likely.
    Random,
    /// A few offsets most of the time, wherever they lie.
    Skewed,
}

const ORDERS: [AccessOrder; 3] = [
    AccessOrder::Sequential,
    AccessOrder::Random,
    AccessOrder::Skewed,
];

impl AccessOrder {
    fn name(self) -> &'static str {
        match self {
            AccessOrder::Sequential => "sequential",
            AccessOrder::Random => "random",
            AccessOrder::Skewed => "skewed",
        }
    }
}

/// The limits that the jobs run with: settings and their values.
pub(crate) fn limits() -> [(&'static str, String); 2] {
    [
        ("HYDRANT_M", M.to_string()),
        ("HYDRANT_MAXVICTIM", MAXVICTIM.to_string()),
    ]
}

/// Runs on all ranks: rank 0 puts and gets.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let sizes = if e.quick {
        &QUICK_SIZES[..]
    } else {
        &SIZES[..]
    };
    let strategy = e.job.settings().registration;
    let m = e.job.settings().m.unwrap_or(M);
    let own = e
        .job
        .alloc::<u64>(SIZES[SIZES.len() - 1].0 / size_of::<u64>())?;
    let (over, mut turn) = (e.job.alloc::<u64>(1)?, 0);
    e.job.barrier()?;
    for gets in [false, true] {
        for (bytes, count) in sizes {
            for order in ORDERS {
                for quarters in QUARTERS {
                    let set = m / 4 * quarters;
                    let kind = if gets { "get" } else { "put" };
                    let words = hydrant_report::units::bytes(*bytes as f64);
                    let bench = format!("{kind} {words}, {}, {WORKING_SET}", order.name());
                    e.next(&format!("{strategy}: {bench} of {set} bytes"))?;
                    turn += 1;
                    let field = e.job.alloc::<u64>(set as usize / size_of::<u64>())?;
                    field.local()?.fill(0..field.len(), 1)?;
                    e.job.barrier()?;
                    if e.job.rank() == Rank(0) {
                        let point = MeasuredPoint {
                            gets,
                            bytes: *bytes,
                            order,
                            set: set as usize,
                            count: *count,
                            warm_up: 2 * m as usize,
                        };
                        let (mean, each) = point.measure(e, &field, &own)?;
                        over.put_value(PARTNER, 0, turn)?;
                        let row = Row::new(&bench, strategy.name(), "ns", mean).bytes(set);
                        e.row(row.spread(each.spread()))?;
                    } else if e.job.rank() == PARTNER {
                        attend(e, &over, turn)?;
                    }
                    e.job.barrier()?;
                    e.job.free(field)?;
                }
            }
        }
    }
    e.job.free(over)?;
    e.job.free(own)
}

/// One figure.
struct MeasuredPoint {
    gets: bool,
    bytes: usize,
    order: AccessOrder,
    set: usize,
    count: u64,
    /// The most bytes that the warm-up touches.
    warm_up: usize,
}

impl MeasuredPoint {
    /// The mean time of an operation, as the median of some runs; and, between hosts, the time of each.
    fn measure(
        &self,
        e: &Ensemble<'_>,
        field: &Symmetric<u64>,
        own: &Symmetric<u64>,
    ) -> hydrant::Result<(f64, Timing)> {
        // SAFETY: only rank 0 works here, and only on its partner's memory. Nobody else uses its
        // own part, which is freed after this.
        #[allow(unsafe_code)]
        let data = &mut unsafe { own.local_slice_mut() }?[..self.bytes / size_of::<u64>()];
        let place = self.bytes.max(STEP);
        let places = (self.set / place).max(1);
        let mut once = |at: usize| {
            let index = at * place / size_of::<u64>();
            if self.gets {
                field.get(PARTNER, index, data)
            } else {
                field.put(PARTNER, index, data)
            }
        };
        for at in (0..places).take(self.warm_up.div_ceil(place)) {
            once(at)?;
        }
        let mut random = Random::new(1);
        let mut next = 0;
        let (mut means, mut each) = (Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            let start = e.job.now();
            for _ in 0..self.count.div_ceil(SAMPLES) {
                let at = match self.order {
                    AccessOrder::Sequential => next,
                    AccessOrder::Random => random.below(places),
                    AccessOrder::Skewed => skewed(&mut random, places),
                };
                next = (next + 1) % places;
                let since = e.between_hosts.then(Instant::now);
                once(at)?;
                each.extend(since.map(|since| since.elapsed().as_secs_f64() * 1e9));
            }
            let took: Duration = e.job.now().saturating_sub(start);
            means.push(took.as_secs_f64() * 1e9 / self.count.div_ceil(SAMPLES) as f64);
        }
        Ok((median(&mut means), Timing::new(each, Sampled::Operation)))
    }
}

/// A skewed offset: the first tenth, in some order, makes up nearly half of the draws, by the cube
/// of an even draw. The order scatters the offsets.
fn skewed(random: &mut Random, places: usize) -> usize {
    const FINE: usize = 1 << 20;
    let even = random.below(FINE) as f64 / FINE as f64;
    let rank = ((even * even * even) * places as f64) as usize;
    // An odd prime, so that every offset has its turn.
    rank.min(places - 1) * 7919 % places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skewed_places_are_few_most_of_the_time_and_lie_anywhere() {
        let mut random = Random::new(1);
        let mut seen = vec![0_u32; 1000];
        for _ in 0..10_000 {
            seen[skewed(&mut random, 1000)] += 1;
        }
        let far = seen[500..].iter().sum::<u32>();
        assert!((3000..7000).contains(&far), "{far} in the upper half");
        seen.sort_unstable();
        let hot: u32 = seen[900..].iter().sum();
        assert!(hot > 4000, "{hot}");
    }
}
