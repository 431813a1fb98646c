//! How much may be registered at once when something is registered ahead: what the uses of late needed at once, until
//! they were given up, and more only where less costs time.
//!
//! The paper registers whatever is due, and what was used is given up when the helper comes to that. Where buffers are
//! used one right after the other, three of them are registered then though one is used: the last, this one and the
//! next. Here a registration ahead waits for the last to be given up, unless such waiting has cost more than a small
//! share of the time since the first use.

use std::collections::VecDeque;

use super::RegionId;
use crate::time::Time;

/// Uses that are remembered, to see which were under way together.
const REMEMBERED: usize = 64;

/// Registrations on the critical path for want of room may take one part in so many of the time.
const PARTS: u64 = 400;

/// A use that is over.
#[derive(Clone, Copy, Debug)]
struct Past {
    region: RegionId,
    begun: Time,
    ended: Time,
    bytes: u64,
    /// The bytes in use when it began, its own included.
    load: u64,
}

/// The bytes that may be registered ahead of need.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// The uses of late, in the order in which they ended.
    past: VecDeque<Past>,
    /// The most bytes that were in use at once, or not given up yet.
    in_use: u64,
    /// How much more than these may be registered.
    headroom: u64,
    /// What uses took longer for want of room, in nanoseconds.
    lost_ns: u64,
    /// When the first use began.
    first: Option<Time>,
}

impl Bound {
    /// What may be registered, in bytes, with what is registered ahead.
    pub(super) fn bytes(&self) -> u64 {
        self.in_use.saturating_add(self.headroom)
    }

    /// A region was used from `begun` on, and could have been given up by `ended`.
    pub(super) fn used(&mut self, region: RegionId, bytes: u64, (begun, ended): (Time, Time)) {
        self.first.get_or_insert(begun);
        let mut load = bytes;
        for past in &mut self.past {
            if past.region == region || past.ended <= begun {
                continue;
            }
            if past.begun <= begun {
                load = load.saturating_add(past.bytes);
            } else if past.begun < ended {
                past.load = past.load.saturating_add(bytes);
                self.in_use = self.in_use.max(past.load);
            }
        }
        self.in_use = self.in_use.max(load);
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back(Past {
            region,
            begun,
            ended,
            bytes,
            load,
        });
    }

    /// A use had to register its region, which took so long, because there were `short` bytes too few to register it
    /// ahead.
    pub(super) fn cost(&mut self, took_ns: u64, short: u64, now: Time) {
        self.lost_ns = self.lost_ns.saturating_add(took_ns);
        let elapsed_ns = self.first.map_or(0, |first| now.since(first));
        if self.lost_ns > elapsed_ns / PARTS {
            self.headroom = self.headroom.saturating_add(self.headroom.max(short));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn used(bound: &mut Bound, region: u64, begun: u64, ended: u64) {
        bound.used(RegionId(region), KIB, (Time(begun), Time(ended)));
    }

    #[test]
    fn what_is_used_one_after_the_other_needs_room_for_one() {
        let mut bound = Bound::default();
        for at in 0..1000 {
            used(&mut bound, at % 7, at * 10, at * 10 + 10);
        }
        assert_eq!(bound.bytes(), KIB);
    }

    #[test]
    fn what_is_used_at_once_needs_room_for_all_in_whatever_order_it_ends() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut bound = Bound::default();
            for region in order {
                used(&mut bound, region, 100 + region, 200 + 10 * region);
            }
            assert_eq!(bound.bytes(), 3 * KIB, "{order:?}");
        }
    }

    #[test]
    fn a_region_that_is_used_twice_at_once_counts_once() {
        let mut bound = Bound::default();
        used(&mut bound, 1, 0, 10);
        used(&mut bound, 1, 5, 15);
        assert_eq!(bound.bytes(), KIB);
    }

    #[test]
    fn there_is_more_room_where_less_costs_time() {
        let mut bound = Bound::default();
        used(&mut bound, 1, 0, 10);
        // One part in 400 is bearable.
        bound.cost(100, KIB, Time(40_000));
        assert_eq!(bound.bytes(), KIB);
        bound.cost(1, KIB, Time(40_000));
        assert_eq!(bound.bytes(), 2 * KIB);
        // What is still too little is doubled.
        bound.cost(1, 1, Time(40_000));
        assert_eq!(bound.bytes(), 3 * KIB);
        bound.cost(1, 1, Time(400_000));
        assert_eq!(bound.bytes(), 3 * KIB);
    }
}
