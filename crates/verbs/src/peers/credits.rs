//! The counts of unhandled requests between a rank and a peer.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::message::more_handled;

/// Counts of requests between this rank and one peer, in both directions.
#[derive(Default)]
pub(crate) struct Credits {
    /// Requests sent to the peer. The sender writes it with the connection locked.
    sent: AtomicU64,
    /// How many of them the peer has reported as handled.
    handled: AtomicU64,
    /// The peer's requests handled here, modulo 2^32. Written by the thread that polls.
    served: AtomicU32,
    /// The value of `served` that the peer was last sent. The difference is the number of credits
    /// owed to the peer.
    credited: AtomicU32,
    /// The value of `sent` when a thread last waited for the peer to handle all. Written by that
    /// thread.
    awaited: AtomicU64,
}

impl Credits {
    /// Returns whether `window` requests are unhandled at the peer.
    #[inline]
    pub(crate) fn is_full(&self, window: u32) -> bool {
        let unhandled = (self.sent.load(Relaxed)).saturating_sub(self.handled.load(Relaxed));
        unhandled >= u64::from(window)
    }

    /// Returns whether the peer has an unhandled request that may bring a reply. Returns `false` if a
    /// thread here only waits for the requests to be handled, since the peer may wait for the same.
    pub(crate) fn may_bring_reply(&self) -> bool {
        let (handled, sent) = self.progress();
        handled < sent && self.awaited.load(Relaxed) < sent
    }

    /// As [`progress`](Self::progress), and notes that the caller waits until the peer has handled
    /// all.
    pub(crate) fn await_handled(&self) -> (u64, u64) {
        let (handled, sent) = self.progress();
        self.awaited.store(sent, Relaxed);
        (handled, sent)
    }

    /// Returns how many requests the peer has handled, and how many were sent to it.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.handled.load(Relaxed), self.sent.load(Relaxed))
    }

    /// Counts a request sent to the peer.
    #[inline]
    pub(crate) fn note_sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// Takes the peer's count of handled requests, which is modulo a small number.
    #[inline]
    pub(crate) fn note_handled(&self, count: u32) {
        let sent = self.sent.load(Relaxed);
        let old = self.handled.load(Relaxed);
        let more = u64::from(more_handled(count, old as u32));
        // The count of a late message is lower, so that the difference wraps to a large number.
        if more <= sent.wrapping_sub(old) {
            self.handled.fetch_max(old + more, Relaxed);
        }
    }

    /// Counts a request of the peer as handled here.
    #[inline]
    pub(crate) fn note_served(&self) {
        self.served.fetch_add(1, AcqRel);
    }

    /// Returns how many requests of the peer were handled here, to be sent with a message.
    #[inline]
    pub(crate) fn served(&self) -> u32 {
        self.served.load(Acquire)
    }

    /// Notes that a message with this count is on its way to the peer.
    #[inline]
    pub(crate) fn note_credited(&self, served: u32) {
        self.credited.store(served, Relaxed);
    }

    /// Returns how many handled requests the peer does not know of yet.
    #[inline]
    pub(crate) fn owed(&self) -> u32 {
        let served = self.served.load(Relaxed);
        served.wrapping_sub(self.credited.load(Relaxed))
    }
}
