//! The counts between this rank and one peer that threads read without a lock.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::message::ReportedCounts;

/// Counts of messages and writes between this rank and one peer, in both directions.
#[derive(Default)]
pub(crate) struct Counts {
    /// Requests sent to the peer. Written with the link locked.
    sent: AtomicU64,
    /// How many of them the peer has reported as handled.
    handled: AtomicU64,
    /// The peer's requests handled here. Written by the thread that delivers.
    served: AtomicU32,
    /// The value of `served` that the peer was last sent.
    credited: AtomicU32,
    /// The number of the last message of the peer's stream. Written by the thread that collects.
    received: AtomicU32,
    /// The value of `received` that the peer was last sent.
    acknowledged: AtomicU32,
    /// The number of the last message of this rank's stream that the peer has.
    known: AtomicU32,
    /// How many messages the peer delivered to its layer above.
    taken_there: AtomicU32,
    /// How many messages of the peer were delivered to the layer above. Written by the thread that delivers.
    taken: AtomicU32,
    /// The value of `taken` that the peer was last sent.
    told_taken: AtomicU32,
    /// How many messages of the peer for the layer above arrived. Counted without a job, by the thread that collects.
    arrived: AtomicU32,
    /// The peer's writes that landed here. Written by the thread that collects.
    writes: AtomicU64,
    /// The number of the last fence that the peer answered.
    fenced: AtomicU64,
}

impl Counts {
    /// Begins anew, for another process with the same number.
    pub(crate) fn reset(&self) {
        for long in [&self.sent, &self.handled, &self.writes, &self.fenced] {
            long.store(0, Release);
        }
        for short in [
            &self.served,
            &self.credited,
            &self.received,
            &self.acknowledged,
            &self.known,
            &self.taken_there,
            &self.taken,
            &self.told_taken,
            &self.arrived,
        ] {
            short.store(0, Release);
        }
    }

    /// Returns true if `window` requests are unhandled at the peer.
    #[inline]
    pub(crate) fn is_full(&self, window: u32) -> bool {
        let unhandled = (self.sent.load(Relaxed)).saturating_sub(self.handled.load(Relaxed));
        unhandled >= u64::from(window)
    }

    /// Returns how many requests the peer has handled, and how many were sent to it.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.handled.load(Acquire), self.sent.load(Acquire))
    }

    /// Counts a request sent to the peer.
    #[inline]
    pub(crate) fn note_sent(&self) {
        self.sent.fetch_add(1, AcqRel);
    }

    /// Takes the counts in a message of the peer.
    #[inline]
    pub(crate) fn note_reported(&self, counts: ReportedCounts) {
        let ReportedCounts {
            received,
            handled,
            taken,
        } = counts;
        let old = self.handled.load(Relaxed);
        let more = u64::from(handled.wrapping_sub(old as u32));
        // The count of a late message is lower, so that the difference wraps to a large number.
        if more <= self.sent.load(Relaxed).saturating_sub(old) {
            self.handled.fetch_max(old + more, Release);
        }
        self.note_known(received);
        let old = self.taken_there.load(Relaxed);
        if taken.wrapping_sub(old) < u32::MAX / 2 {
            self.taken_there.store(taken, Release);
        }
    }

    /// Returns how many messages the peer delivered to its layer above.
    #[inline]
    pub(crate) fn taken_there(&self) -> u32 {
        self.taken_there.load(Acquire)
    }

    /// Counts a message of the peer that was delivered here.
    #[inline]
    pub(crate) fn note_taken(&self) {
        self.taken.fetch_add(1, Release);
    }

    /// Counts a message of the peer that arrived for the layer above. Returns how many were not delivered.
    pub(crate) fn note_arrived(&self) -> u32 {
        let arrived = self.arrived.fetch_add(1, Relaxed).wrapping_add(1);
        arrived.wrapping_sub(self.taken.load(Acquire))
    }

    /// Returns how many delivered messages the peer does not know of yet.
    #[inline]
    pub(crate) fn untold(&self) -> u32 {
        let taken = self.taken.load(Relaxed);
        taken.wrapping_sub(self.told_taken.load(Relaxed))
    }

    /// Notes that the peer has this rank's messages up to this number.
    #[inline]
    pub(crate) fn note_known(&self, known: u32) {
        let old = self.known.load(Relaxed);
        if known.wrapping_sub(old) < u32::MAX / 2 {
            self.known.store(known, Release);
        }
    }

    /// Returns the number of the last message of this rank's stream that the peer has.
    #[inline]
    pub(crate) fn known(&self) -> u32 {
        self.known.load(Acquire)
    }

    /// Counts a request of the peer as handled here.
    #[inline]
    pub(crate) fn note_served(&self) {
        self.served.fetch_add(1, AcqRel);
    }

    /// Returns the counts that the next message carries. They count as sent.
    #[inline]
    pub(crate) fn to_report(&self) -> ReportedCounts {
        let (received, handled) = (self.received.load(Acquire), self.served.load(Acquire));
        let taken = self.taken.load(Acquire);
        self.acknowledged.store(received, Relaxed);
        self.credited.store(handled, Relaxed);
        self.told_taken.store(taken, Relaxed);
        ReportedCounts {
            received,
            handled,
            taken,
        }
    }

    /// Returns how many handled requests the peer does not know of yet.
    #[inline]
    pub(crate) fn owed(&self) -> u32 {
        let served = self.served.load(Relaxed);
        served.wrapping_sub(self.credited.load(Relaxed))
    }

    /// Returns true if the peer does not know yet that messages of it arrived.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.received.load(Relaxed) != self.acknowledged.load(Relaxed)
    }

    /// Returns the number of the last message of the peer's stream.
    #[inline]
    pub(crate) fn received(&self) -> u32 {
        self.received.load(Acquire)
    }

    /// Notes the arrival of the next message of the peer's stream.
    #[inline]
    pub(crate) fn note_received(&self, number: u32) {
        self.received.store(number, Release);
    }

    /// Counts a write of the peer that landed.
    #[inline]
    pub(crate) fn note_write(&self) {
        self.writes.fetch_add(1, AcqRel);
    }

    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Acquire)
    }

    /// Notes that the peer answered a fence.
    pub(crate) fn note_fenced(&self, number: u64) {
        self.fenced.fetch_max(number, AcqRel);
    }

    pub(crate) fn fenced(&self) -> u64 {
        self.fenced.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_counts_change_nothing() {
        let counts = Counts::default();
        for _ in 0..3 {
            counts.note_sent();
        }
        let report = |handled, received| ReportedCounts {
            received,
            handled,
            taken: received,
        };
        counts.note_reported(report(2, 5));
        assert_eq!((counts.progress(), counts.known()), ((2, 3), 5));
        counts.note_reported(report(1, 4));
        assert_eq!((counts.progress(), counts.known()), ((2, 3), 5));
        // More than were sent: a lie.
        counts.note_reported(report(4, 6));
        assert_eq!(counts.progress(), (2, 3));
    }

    #[test]
    fn a_report_settles_the_debt() {
        let counts = Counts::default();
        counts.note_served();
        counts.note_received(1);
        assert!(counts.owed() == 1 && counts.is_unacknowledged());
        let report = counts.to_report();
        assert_eq!((report.received, report.handled), (1, 1));
        assert!(counts.owed() == 0 && !counts.is_unacknowledged());
    }
}
