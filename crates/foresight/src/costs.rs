//! The duration of each step of the helper: every component of t_p in condition (1) (§3.2, "Time Control and
//! Estimation").
//!
//! These are estimates of the longest duration. A deadline met too early costs a moment of registered memory. A
//! missed deadline costs a registration on the critical path.

use crate::time::Time;

/// The cost of a memory operation, `a × pages + b` (§3.2): linear in the pages, with a part for each operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinearCost {
    /// a: nanoseconds for each page.
    pub per_page_ns: f64,
    /// b: nanoseconds for each operation.
    pub per_operation_ns: f64,
}

impl LinearCost {
    /// The cost for `pages` pages, in nanoseconds.
    pub fn of(&self, pages: u64) -> u64 {
        // A cast from float saturates, and maps NaN to zero.
        (self.per_page_ns * pages as f64 + self.per_operation_ns).ceil() as u64
    }

    /// The line of least squares through measurements of pages and nanoseconds ("we determine a and b through linear
    /// regression"). Neither part is negative. `None` without a measurement.
    pub fn fit(measured: &[(u64, u64)]) -> Option<Self> {
        if measured.is_empty() {
            return None;
        }
        let count = measured.len() as f64;
        let mean = |of: fn(&(u64, u64)) -> u64| {
            measured.iter().map(|it| of(it) as f64).sum::<f64>() / count
        };
        let (pages, ns) = (mean(|it| it.0), mean(|it| it.1));
        let (mut spread, mut common) = (0.0, 0.0);
        for &(x, y) in measured {
            let (x, y) = (x as f64 - pages, y as f64 - ns);
            spread += x * x;
            common += x * y;
        }
        // With a single size, the slope is unknown.
        let slope = if spread > 0.0 { common / spread } else { 0.0 };
        let through_mean = ns - slope * pages;
        Some(match (slope < 0.0, through_mean < 0.0) {
            (true, _) => Self {
                per_page_ns: 0.0,
                per_operation_ns: ns,
            },
            // The best line through the origin.
            (false, true) => {
                let (mut squares, mut products) = (0.0, 0.0);
                for &(x, y) in measured {
                    squares += x as f64 * x as f64;
                    products += x as f64 * y as f64;
                }
                Self {
                    per_page_ns: products / squares,
                    per_operation_ns: 0.0,
                }
            }
            (false, false) => Self {
                per_page_ns: slope,
                per_operation_ns: through_mean,
            },
        })
    }
}

/// The durations of the helper's steps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// t_register.
    pub register: LinearCost,
    /// t_deregister.
    pub deregister: LinearCost,
    /// t_hash: hashing a call site, finding it and updating its entry, in nanoseconds.
    pub hash_ns: u64,
    /// One comparison of an item of a queue or a table. The model compares every item, as the paper does, though
    /// fewer comparisons happen.
    pub comparison_ns: u64,
}

impl Costs {
    /// A NIC and a processor of today: 16 µs and 0.25 µs a page to register, the figures that UCX plans with.
    /// Deregistration costs the same. The helper needs some µs to read a record.
    pub const TYPICAL: Costs = Costs {
        register: LinearCost {
            per_page_ns: 250.0,
            per_operation_ns: 16_000.0,
        },
        deregister: LinearCost {
            per_page_ns: 250.0,
            per_operation_ns: 16_000.0,
        },
        hash_ns: 4_000,
        comparison_ns: 5,
    };

    /// t_insert and t_update: an insertion into, or a walk over, a queue of `items` items.
    pub fn queue(&self, items: usize) -> u64 {
        self.comparison_ns.saturating_mul(items as u64 + 1)
    }

    /// t_cache: a search among `entries` entries.
    pub fn cache(&self, entries: usize) -> u64 {
        self.comparison_ns.saturating_mul(entries as u64 + 1)
    }

    /// t_p of the deregistration condition: deregistering, inserting into the registration queue,
    /// registering again, and updating the region's earliest deadline.
    pub fn to_deregister(&self, pages: u64, queued: usize) -> u64 {
        [
            self.deregister.of(pages),
            self.queue(queued),
            self.register.of(pages),
            self.queue(queued),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// t_p of the registration condition: one item of the deregistration queue, of at most `other_pages` pages
    /// (t_hash, t_cache, t_deregister, t_insert), and then the registration (t_register, t_update).
    pub fn to_delay(&self, pages: u64, other_pages: u64, queued: usize, cached: usize) -> u64 {
        [
            self.one_use(other_pages, queued, cached),
            self.register.of(pages),
            self.queue(queued),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// The duration of one item of the deregistration queue, of at most `pages` pages.
    pub fn one_use(&self, pages: u64, queued: usize, cached: usize) -> u64 {
        [
            self.hash_ns,
            self.cache(cached),
            self.deregister.of(pages),
            self.queue(queued),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// The work to be done, one piece after the other, before each of a series of deadlines.
///
/// A burst of communications needs all its buffers at nearly the same time, and there is one helper. The helper
/// therefore begins with the first as early as the sum of all requires.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegistrationBacklog {
    work_ns: u64,
    at: Time,
}

impl RegistrationBacklog {
    /// Adds work of `takes_ns` that must be done by `by`. Returns the time before `by` at which the first piece of
    /// the burst must begin.
    pub fn add(&mut self, by: Time, takes_ns: u64) -> u64 {
        let left_ns = self.work_ns.saturating_sub(by.since(self.at));
        self.work_ns = left_ns.saturating_add(takes_ns);
        self.at = by;
        self.work_ns
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_found_again() {
        let line = LinearCost {
            per_page_ns: 300.0,
            per_operation_ns: 7000.0,
        };
        let measured: Vec<_> = [1, 2, 16, 256].map(|pages| (pages, line.of(pages))).into();
        let fitted = LinearCost::fit(&measured).unwrap();
        assert!((fitted.per_page_ns - 300.0).abs() < 0.1, "{fitted:?}");
        assert!((fitted.per_operation_ns - 7000.0).abs() < 1.0, "{fitted:?}");
    }

    #[test]
    fn nothing_measured_is_no_line_and_one_size_no_slope() {
        assert_eq!(LinearCost::fit(&[]), None);
        let flat = LinearCost {
            per_page_ns: 0.0,
            per_operation_ns: 50.0,
        };
        assert_eq!(LinearCost::fit(&[(4, 40), (4, 60)]), Some(flat));
    }

    #[test]
    fn a_burst_is_prepared_as_a_whole() {
        let mut backlog = RegistrationBacklog::default();
        assert_eq!(backlog.add(Time(1000), 100), 100);
        assert_eq!(backlog.add(Time(1010), 100), 190);
        assert_eq!(backlog.add(Time(1020), 100), 280);
        // There is enough time for all until then.
        assert_eq!(backlog.add(Time(2000), 100), 100);
        assert_eq!(
            backlog.add(Time(500), 100),
            200,
            "a clock that was set back"
        );
    }

    #[test]
    fn the_components_are_those_of_the_paper() {
        let costs = Costs {
            register: LinearCost {
                per_page_ns: 1.0,
                per_operation_ns: 100.0,
            },
            deregister: LinearCost {
                per_page_ns: 2.0,
                per_operation_ns: 1000.0,
            },
            hash_ns: 10_000,
            comparison_ns: 100_000,
        };
        // deregister 1020, insert 3 × 100 000, register 110, update as insert.
        assert_eq!(costs.to_deregister(10, 2), 601_130);
        // hash, cache 5 ×, deregister 1040, insert 3 ×; register 110, update 3 ×.
        assert_eq!(
            costs.to_delay(10, 20, 2, 4),
            10_000 + 500_000 + 1040 + 300_000 + 110 + 300_000
        );
    }

    proptest! {
        #[test]
        fn a_fit_is_never_negative_nor_worse_than_a_constant(
            measured in prop::collection::vec((0u64..10_000, 0u64..1_000_000), 1..20),
        ) {
            let fitted = LinearCost::fit(&measured).unwrap();
            prop_assert!(fitted.per_page_ns >= 0.0 && fitted.per_operation_ns >= 0.0, "{:?}", fitted);
            let error = |of: &dyn Fn(u64) -> f64| -> f64 {
                measured.iter().map(|&(x, y)| (of(x) - y as f64).powi(2)).sum()
            };
            let line = |pages: u64| fitted.per_page_ns * pages as f64 + fitted.per_operation_ns;
            let mean = measured.iter().map(|it| it.1 as f64).sum::<f64>() / measured.len() as f64;
            // A line through the origin may lose to the mean.
            if fitted.per_operation_ns > 0.0 {
                prop_assert!(error(&line) <= error(&|_| mean) * 1.000_001 + 1e-3);
            }
        }
    }
}
