//! How much may be registered at once: what uses needed at once so far, and more only where less costs time.
//!
//! The paper registers whatever is due, and what was used is given up when the helper comes to that. Where buffers are
//! used one right after the other, three of them are registered then though one is used: the last, this one and the
//! next. Here a registration ahead waits for the last to be given up, and one on demand gives up what nobody uses first,
//! unless that has cost more than a small share of the time.

use crate::time::Time;

/// What is lost for want of room may be one part in so many of the time.
const PARTS: u64 = 300;

/// Bytes of regions side by side that are counted twice, because they share pages: one part in so many.
const SHARED: u64 = 64;

/// How many bytes may be registered in all.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// The most bytes that were in use at once.
    in_use: u64,
    /// How much more than these may be registered.
    headroom: u64,
    /// What uses took longer for want of room since it last grew, in nanoseconds.
    lost_ns: u64,
    /// When it last grew, or the first use began.
    since: Option<Time>,
}

impl Bound {
    /// The bytes that may be registered in all.
    pub(super) fn bytes(&self) -> u64 {
        let all = self.in_use.saturating_add(self.headroom);
        all.saturating_add(self.in_use / SHARED)
    }

    /// So many bytes are in use at once.
    pub(super) fn at_once(&mut self, bytes: u64) {
        self.in_use = self.in_use.max(bytes);
    }

    /// A use began.
    pub(super) fn used(&mut self, begun: Time) {
        self.since.get_or_insert(begun);
    }

    /// A use took so much longer because there were `short` bytes too few: it registered its region itself, or gave
    /// others up first. Whether there is more room from now on.
    #[must_use = "what was put off may be registered by now"]
    pub(super) fn cost(&mut self, took_ns: u64, short: u64, now: Time) -> bool {
        self.lost_ns = self.lost_ns.saturating_add(took_ns);
        let counted_ns = self.since.map_or(0, |since| now.since(since));
        if short == 0 || self.lost_ns <= counted_ns / PARTS {
            return false;
        }
        self.headroom = self.headroom.saturating_add(short);
        self.lost_ns = 0;
        self.since = Some(now);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn there_is_room_for_the_most_that_was_in_use_at_once() {
        let mut bound = Bound::default();
        for bytes in [KIB, 3 * KIB, 2 * KIB] {
            bound.at_once(bytes);
        }
        assert_eq!(bound.bytes(), 3 * KIB + 3 * KIB / SHARED);
    }

    #[test]
    fn there_is_more_room_where_less_costs_time() {
        let mut bound = Bound::default();
        bound.used(Time(0));
        // One part in 300 is bearable.
        assert!(!bound.cost(100, KIB, Time(30_000)));
        assert_eq!(bound.bytes(), 0);
        assert!(bound.cost(1, KIB, Time(30_000)));
        assert_eq!(bound.bytes(), KIB);
        // It is counted anew from then on.
        assert!(!bound.cost(100, KIB, Time(60_000)));
        assert!(bound.cost(1, 2 * KIB, Time(60_000)));
        assert_eq!(bound.bytes(), 3 * KIB);
    }

    #[test]
    fn a_clock_that_is_set_back_or_nothing_short_gives_no_room_for_nothing() {
        let mut bound = Bound::default();
        bound.used(Time(60_000));
        assert!(!bound.cost(1000, 0, Time(0)));
        assert_eq!(bound.bytes(), 0);
        assert!(bound.cost(0, KIB, Time(0)));
        assert!(!bound.cost(0, u64::MAX, Time(0)));
        assert_eq!(bound.bytes(), KIB);
        assert!(bound.cost(1, u64::MAX, Time(0)));
        assert_eq!(bound.bytes(), u64::MAX);
    }
}
