//! How many requests a rank and a peer have unhandled at each other.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::message::more_handled;

/// Counts of requests between this rank and one peer, either way.
#[derive(Default)]
pub(crate) struct Credits {
    /// Requests sent to the peer. Written by who sends one, with the connection locked (the queue
    /// of the loopback, for the own rank).
    sent: AtomicU64,
    /// How many of them the peer has said that it handled.
    handled: AtomicU64,
    /// The peer's requests handled here, modulo 2^32. Written by who polls.
    served: AtomicU32,
    /// What the peer was last sent of that count: what is between are credits owed to it.
    credited: AtomicU32,
    /// Requests sent when somebody last asked how many were handled. Written by who asks.
    awaited: AtomicU64,
}

impl Credits {
    /// Whether so many requests are unhandled at the peer.
    #[inline]
    pub(crate) fn is_full(&self, window: u32) -> bool {
        let unhandled = (self.sent.load(Relaxed)).saturating_sub(self.handled.load(Relaxed));
        unhandled >= u64::from(window)
    }

    /// Whether the peer has a request to handle that it may answer: nobody here waits for no more than that it has
    /// handled it, which the peer may do, too.
    pub(crate) fn may_bring_reply(&self) -> bool {
        let (handled, sent) = self.progress();
        handled < sent && self.awaited.load(Relaxed) < sent
    }

    /// As [`progress`](Self::progress), for who waits until the peer has handled all.
    pub(crate) fn await_handled(&self) -> (u64, u64) {
        let (handled, sent) = self.progress();
        self.awaited.store(sent, Relaxed);
        (handled, sent)
    }

    /// Requests handled by the peer, and sent to it.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.handled.load(Relaxed), self.sent.load(Relaxed))
    }

    /// A request is sent.
    #[inline]
    pub(crate) fn note_sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// The peer says how many requests it has handled so far, modulo some number.
    #[inline]
    pub(crate) fn note_handled(&self, count: u32) {
        let sent = self.sent.load(Relaxed);
        let old = self.handled.load(Relaxed);
        let more = u64::from(more_handled(count, old as u32));
        // What an older message says is less, and would seem to be very much more.
        if more <= sent.wrapping_sub(old) {
            self.handled.fetch_max(old + more, Relaxed);
        }
    }

    /// This rank handled a request of its own.
    #[inline]
    pub(crate) fn note_own_handled(&self) {
        self.handled.fetch_add(1, Relaxed);
    }

    /// A request of the peer was handled here.
    #[inline]
    pub(crate) fn note_served(&self) {
        self.served.fetch_add(1, AcqRel);
    }

    /// Requests of the peer handled here, for a message that tells it.
    #[inline]
    pub(crate) fn served(&self) -> u32 {
        self.served.load(Acquire)
    }

    /// A message with this count is on its way to the peer.
    #[inline]
    pub(crate) fn note_credited(&self, served: u32) {
        self.credited.store(served, Relaxed);
    }

    /// Requests handled here of which the peer does not know.
    #[inline]
    pub(crate) fn owed(&self) -> u32 {
        let served = self.served.load(Relaxed);
        served.wrapping_sub(self.credited.load(Relaxed))
    }
}
