//! The registration queue, ordered by deadline, with room between neighbours (§3.2, "Adjusting
//! Registration Deadlines").

use super::RegionId;
use crate::time::Time;

/// A region to be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    pub(super) region: RegionId,
    /// When it is needed.
    pub(super) wanted: Time,
    /// When it is to be registered: maybe earlier, so that the next one can be in time as well.
    pub(super) deadline: Time,
    /// How long its registration takes, with that of one item of the deregistration queue.
    cost_ns: u64,
}

/// The regions to be registered, the most urgent first.
#[derive(Clone, Debug, Default)]
pub(super) struct RegistrationQueue {
    items: Vec<Item>,
}

impl RegistrationQueue {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The most urgent.
    pub(super) fn first(&self) -> Option<Item> {
        self.items.first().copied()
    }

    /// Puts a region in, or moves it. `cost_ns` is what one item of this queue and one of the other
    /// take, which is to fit between the deadline before and this one.
    pub(super) fn insert(&mut self, region: RegionId, wanted: Time, cost_ns: u64) {
        self.items.retain(|it| it.region != region);
        let at = self
            .items
            .partition_point(|it| (it.wanted, it.region) < (wanted, region));
        let item = Item {
            region,
            wanted,
            deadline: wanted,
            cost_ns,
        };
        self.items.insert(at, item);
        self.space();
    }

    pub(super) fn remove(&mut self, region: RegionId) {
        let before = self.items.len();
        self.items.retain(|it| it.region != region);
        if self.items.len() != before {
            self.space();
        }
    }

    /// Decreases deadlines where the gap to the next is too short for that one's registration.
    fn space(&mut self) {
        let mut next: Option<Item> = None;
        for item in self.items.iter_mut().rev() {
            let latest = next.map_or(Time::NEVER, |next| next.deadline.before(next.cost_ns));
            item.deadline = item.wanted.min(latest);
            next = Some(*item);
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

    #[test]
    fn neighbours_are_spaced_and_others_left() {
        let mut queue = RegistrationQueue::default();
        queue.insert(region(1), Time(1000), 100);
        queue.insert(region(2), Time(1010), 100);
        queue.insert(region(3), Time(5000), 100);
        let deadlines = |queue: &RegistrationQueue| -> Vec<_> {
            queue
                .items
                .iter()
                .map(|it| (it.region.0, it.deadline.0))
                .collect()
        };
        assert_eq!(deadlines(&queue), [(1, 910), (2, 1010), (3, 5000)]);
        // Moved away, it makes no more room.
        queue.insert(region(2), Time(2000), 100);
        assert_eq!(deadlines(&queue), [(1, 1000), (2, 2000), (3, 5000)]);
        queue.remove(region(1));
        assert_eq!(queue.first().unwrap().region, region(2));
    }

    proptest! {
        /// Whatever is put in: registering in this order, each as late as its deadline allows, all
        /// are registered when wanted, if that is possible at all from the first start on.
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

        /// Deadlines are not decreased for nothing.
        #[test]
        fn a_deadline_is_decreased_only_for_the_next(wanted in prop::collection::vec(0u64..2000, 1..12)) {
            let mut queue = RegistrationQueue::default();
            for (number, &it) in (0..).zip(&wanted) {
                queue.insert(region(number), Time(it + 10_000), 50);
            }
            for pair in queue.items.windows(2) {
                let touches = pair[0].deadline == pair[1].deadline.before(50);
                prop_assert!(pair[0].deadline == pair[0].wanted || touches);
            }
            prop_assert!(queue.items.last().is_some_and(|it| it.deadline == it.wanted));
        }
    }
}
