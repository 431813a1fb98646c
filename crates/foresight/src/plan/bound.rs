//! Bounds the bytes that may be registered at once: the most that uses needed at once so far, and more only if fewer
//! cost time.
//!
//! The paper registers each region that is due, and deregisters a used region once the helper gets to it. Buffers
//! that are used back to back are then registered in threes: the last, the current and the next. Here a registration
//! ahead waits until the last region is deregistered, and a registration on demand first evicts unused regions. The
//! bound grows if that has cost more than a small share of the time.

use crate::time::Time;

/// One part in so many of the time may be lost for want of room.
const PARTS: u64 = 300;

/// Adjacent regions share pages, which count twice: one part in so many of the bytes.
const SHARED: u64 = 64;

/// The bound on registered bytes.
#[derive(Debug, Default)]
pub(super) struct RoomBound {
    /// The most bytes that were in use at once.
    in_use: u64,
    /// Bytes that may be registered beyond `in_use`.
    headroom: u64,
    /// Nanoseconds that uses lost for want of room since the bound last grew.
    lost_ns: u64,
    /// The time at which the bound last grew, or the first use began.
    since: Option<Time>,
}

impl RoomBound {
    /// The bytes that may be registered in all.
    pub(super) fn bytes(&self) -> u64 {
        let all = self.in_use.saturating_add(self.headroom);
        all.saturating_add(self.in_use / SHARED)
    }

    /// Notes that this many bytes are in use at once.
    pub(super) fn raise_in_use(&mut self, bytes: u64) {
        self.in_use = self.in_use.max(bytes);
    }

    /// Notes the begin of a use.
    pub(super) fn note_use(&mut self, begun: Time) {
        self.since.get_or_insert(begun);
    }

    /// Notes that a use took `took_ns` longer because `short` bytes were missing: it registered its region itself, or
    /// evicted others first. Returns true if the bound has grown.
    #[must_use = "postponed regions may fit now"]
    pub(super) fn count_loss(&mut self, took_ns: u64, short: u64, now: Time) -> bool {
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
        let mut bound = RoomBound::default();
        for bytes in [KIB, 3 * KIB, 2 * KIB] {
            bound.raise_in_use(bytes);
        }
        assert_eq!(bound.bytes(), 3 * KIB + 3 * KIB / SHARED);
    }

    #[test]
    fn there_is_more_room_where_less_costs_time() {
        let mut bound = RoomBound::default();
        bound.note_use(Time(0));
        // One part in 300 is bearable.
        assert!(!bound.count_loss(100, KIB, Time(30_000)));
        assert_eq!(bound.bytes(), 0);
        assert!(bound.count_loss(1, KIB, Time(30_000)));
        assert_eq!(bound.bytes(), KIB);
        // The loss is counted anew from then on.
        assert!(!bound.count_loss(100, KIB, Time(60_000)));
        assert!(bound.count_loss(1, 2 * KIB, Time(60_000)));
        assert_eq!(bound.bytes(), 3 * KIB);
    }

    #[test]
    fn a_clock_that_is_set_back_or_nothing_short_gives_no_room_for_nothing() {
        let mut bound = RoomBound::default();
        bound.note_use(Time(60_000));
        assert!(!bound.count_loss(1000, 0, Time(0)));
        assert_eq!(bound.bytes(), 0);
        assert!(bound.count_loss(0, KIB, Time(0)));
        assert!(!bound.count_loss(0, u64::MAX, Time(0)));
        assert_eq!(bound.bytes(), KIB);
        assert!(bound.count_loss(1, u64::MAX, Time(0)));
        assert_eq!(bound.bytes(), u64::MAX);
    }
}
