//! How much may be registered at once when something is registered ahead: what uses needed at once so far, until
//! they were given up, and more only where less costs time.
//!
//! The paper registers whatever is due, and what was used is given up when the helper comes to that. Where buffers are
//! used one right after the other, three of them are registered then though one is used: the last, this one and the
//! next. Here a registration ahead waits for the last to be given up, unless such waiting has cost more than a small
//! share of the time since the first use.

use super::RegionId;
use crate::time::Time;

/// Regions whose last use is remembered, to see which were in use together.
const REMEMBERED: usize = 64;

/// Registrations on the critical path for want of room may take one part in so many of the time.
const PARTS: u64 = 400;

/// The last use of a region, or those that overlapped.
#[derive(Clone, Copy, Debug)]
struct Past {
    region: RegionId,
    bytes: u64,
    begun: Time,
    /// When it could have been given up.
    ended: Time,
}

impl Past {
    fn is_at(&self, moment: Time) -> bool {
        self.begun <= moment && moment < self.ended
    }
}

/// How many bytes may be registered in all when something is registered ahead.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// A use of each of the regions used last, in the order in which these were first used.
    past: Vec<Past>,
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
    /// The bytes that may be registered in all.
    pub(super) fn bytes(&self) -> u64 {
        self.in_use.saturating_add(self.headroom)
    }

    /// So many bytes are in use at once.
    pub(super) fn at_once(&mut self, bytes: u64) {
        self.in_use = self.in_use.max(bytes);
    }

    /// A region was used from `begun` on, and can be given up by `ended`.
    pub(super) fn used(&mut self, region: RegionId, bytes: u64, (begun, ended): (Time, Time)) {
        self.first.get_or_insert(begun);
        let use_of = Past {
            region,
            bytes,
            begun,
            ended,
        };
        match self.past.iter_mut().find(|it| it.region == region) {
            Some(it) if it.ended >= begun && it.begun <= ended => {
                it.begun = it.begun.min(begun);
                it.ended = it.ended.max(ended);
            }
            Some(it) => *it = use_of,
            None => {
                if self.past.len() == REMEMBERED {
                    self.past.remove(0);
                }
                self.past.push(use_of);
            }
        }
        // The load is at its most when some use begins.
        let within = self.past.iter().map(|it| it.begun);
        let begins = within.filter(|at| begun <= *at && *at < ended);
        let most = begins.chain([begun]).map(|at| self.load_at(at)).max();
        self.at_once(most.unwrap_or(bytes));
    }

    /// The bytes that were in use at a moment.
    fn load_at(&self, moment: Time) -> u64 {
        let there = self.past.iter().filter(|it| it.is_at(moment));
        there.fold(0, |sum, it| sum.saturating_add(it.bytes))
    }

    /// A use had to register its region, which took so long, because there were `short` bytes too few to register it
    /// ahead. The more time is lost, the faster the room grows: of those that were put off together each alone was
    /// short of that.
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
        // So it does beside another, however often it was used meanwhile.
        used(&mut bound, 1, 12, 30);
        used(&mut bound, 2, 3, 29);
        used(&mut bound, 2, 29, 40);
        assert_eq!(bound.bytes(), 2 * KIB);
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
