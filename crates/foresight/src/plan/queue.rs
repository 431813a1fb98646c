//! The registration queue, ordered by deadline, with room between neighbours (§3.2, "Adjusting
//! Registration Deadlines").

use rustc_hash::FxHashMap;

use super::RegionId;
use super::tree::{Ordered, Weight};
use crate::time::Time;

/// A region to be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueuedRegion {
    pub(super) region: RegionId,
    /// The time of need.
    pub(super) wanted: Time,
    /// The time by which to register it. It may be earlier than the need, so that later items can be in time as well.
    pub(super) deadline: Time,
}

/// The regions to be registered, the most urgent first.
///
/// The deadline of an item is the time it is wanted. It may be earlier: the deadline of the next item, less the time
/// that the next one's registration takes. Only the deadline of the most urgent item is ever used. It follows from
/// the latest begin of the first item, which the tree adds up.
#[derive(Clone, Debug, Default)]
pub(super) struct RegistrationQueue {
    items: Ordered<Time, QueuedWork>,
    /// The time at which each is wanted.
    wanted: FxHashMap<RegionId, Time>,
}

/// Registrations, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct QueuedWork {
    /// The latest moment at which the first may begin for all to be in time; it may be negative.
    starts: i128,
    /// The time that the first takes, with one item of the deregistration queue.
    first_ns: u64,
    /// The time that all of them take.
    takes_ns: i128,
}

impl Weight for QueuedWork {
    fn join(self, later: Self) -> Self {
        Self {
            starts: self.starts.min(later.starts - self.takes_ns),
            first_ns: self.first_ns,
            takes_ns: self.takes_ns + later.takes_ns,
        }
    }
}

impl RegistrationQueue {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The most urgent item.
    pub(super) fn first(&self) -> Option<QueuedRegion> {
        let ((wanted, region), _) = self.items.first()?;
        let all = self.items.all()?;
        let deadline = all.starts + i128::from(all.first_ns);
        Some(QueuedRegion {
            region,
            wanted,
            deadline: Time(u64::try_from(deadline.max(0)).unwrap_or(u64::MAX)),
        })
    }

    /// Inserts a region, or moves it. `cost_ns` is the duration of one item of this queue and one of the other, which
    /// must fit between the deadline before and this one.
    pub(super) fn insert(&mut self, region: RegionId, wanted: Time, cost_ns: u64) {
        self.remove(region);
        self.wanted.insert(region, wanted);
        let work = QueuedWork {
            starts: i128::from(wanted.0) - i128::from(cost_ns),
            first_ns: cost_ns,
            takes_ns: i128::from(cost_ns),
        };
        self.items.insert((wanted, region), work);
    }

    pub(super) fn remove(&mut self, region: RegionId) {
        if let Some(wanted) = self.wanted.remove(&region) {
            self.items.remove(&(wanted, region));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(number: u64) -> RegionId {
        RegionId(number)
    }

    /// The deadlines of all, in order, computed by the rule itself.
    fn deadlines(items: &[(u64, u64)]) -> Vec<u64> {
        let mut next: Option<(u64, u64)> = None;
        let mut deadlines = Vec::new();
        for &(wanted, cost_ns) in items.iter().rev() {
            let latest = next.map_or(u64::MAX, |(deadline, cost_ns)| {
                deadline.saturating_sub(cost_ns)
            });
            let deadline = wanted.min(latest);
            next = Some((deadline, cost_ns));
            deadlines.insert(0, deadline);
        }
        deadlines
    }

    #[test]
    fn neighbours_are_spaced_and_others_left() {
        let mut queue = RegistrationQueue::default();
        queue.insert(region(1), Time(1000), 100);
        queue.insert(region(2), Time(1010), 100);
        queue.insert(region(3), Time(5000), 100);
        let first =
            |queue: &RegistrationQueue| queue.first().map(|it| (it.region.0, it.deadline.0));
        assert_eq!(first(&queue), Some((1, 910)));
        // The moved item needs no room before the first.
        queue.insert(region(2), Time(2000), 100);
        assert_eq!(first(&queue), Some((1, 1000)));
        queue.remove(region(1));
        assert_eq!(first(&queue), Some((2, 2000)));
        queue.insert(region(4), Time(20), 1000);
        queue.insert(region(5), Time(30), 1000);
        assert_eq!(first(&queue), Some((4, 0)), "no time is before the first");
    }

    proptest! {
        /// Registers items in this order, each as late as its deadline allows. All are in time, if that is possible
        /// at all from the first start on.
        #[test]
        fn all_are_in_time(items in prop::collection::vec((0u64..12, 0u64..2000, 1u64..100), 1..40)) {
            let mut queue = RegistrationQueue::default();
            let mut model = std::collections::BTreeMap::new();
            for (number, wanted, cost_ns) in items {
                queue.insert(region(number), Time(wanted + 10_000), cost_ns);
                model.insert(number, (wanted + 10_000, cost_ns));
            }
            prop_assert_eq!(queue.len(), model.len());
            let mut now = 0;
            while let Some(item) = queue.first() {
                let (wanted, cost_ns) = model.remove(&item.region.0).unwrap();
                // No earlier than it has to be.
                now = item.deadline.0.saturating_sub(cost_ns).max(now) + cost_ns;
                prop_assert!(now <= item.deadline.0 && now <= wanted);
                queue.remove(item.region);
            }
            prop_assert!(model.is_empty());
        }

        /// The first deadline follows the rule, for any insertions, moves, removals and durations.
        #[test]
        fn the_first_deadline_is_that_of_the_rule(
            changes in prop::collection::vec((0u64..12, prop::option::of((0u64..2000, prop_oneof![8 => 1u64..100, 1 => any::<u64>()]))), 1..60),
        ) {
            let mut queue = RegistrationQueue::default();
            let mut model = std::collections::BTreeMap::new();
            for (number, change) in changes {
                match change {
                    Some((wanted, cost_ns)) => {
                        queue.insert(region(number), Time(wanted), cost_ns);
                        model.insert(number, (wanted, cost_ns));
                    }
                    None => {
                        queue.remove(region(number));
                        model.remove(&number);
                    }
                }
                let mut items: Vec<_> = model.iter().map(|(number, it)| (it.0, *number, it.1)).collect();
                items.sort_unstable();
                let plain: Vec<_> = items.iter().map(|it| (it.0, it.2)).collect();
                let expected = items.first().zip(deadlines(&plain).first().copied());
                let expected = expected.map(|(it, deadline)| QueuedRegion {
                    region: region(it.1),
                    wanted: Time(it.0),
                    deadline: Time(deadline),
                });
                prop_assert_eq!(queue.first(), expected);
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
