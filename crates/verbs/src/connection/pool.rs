//! The resources that the connections of a rank share.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hydrant_conduit::Rank;

use crate::{inline_copies::InlineCopies, result_words::ResultWords, slots::SendSlots};

/// The resources that the connections of a rank share: slots of messages, result words, inline
/// copies, and the limits on posted requests.
pub(crate) struct SendPool {
    slots: SendSlots,
    words: ResultWords,
    copies: InlineCopies,
    /// The counted work requests that the NIC has of all connections, signaled or not.
    posted: AtomicU32,
    limits: SendLimits,
}

/// Limits on work requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendLimits {
    /// Most work requests with the NIC on all connections. The completion queue has room for these.
    pub(crate) posted: u32,
    /// Most work requests with the NIC on one connection.
    pub(crate) depth: usize,
    /// Most bytes of inline data of a work request.
    pub(crate) inline: u32,
    /// Most bytes of a work request.
    pub(crate) longest: u64,
    /// The own rank, if the NIC pages its memory on demand. Then memory that is registered may not be mapped.
    pub(crate) paged_rank: Option<Rank>,
}

impl SendPool {
    pub(crate) fn new(slots: SendSlots, words: ResultWords, limits: SendLimits) -> Self {
        Self {
            slots,
            words,
            copies: InlineCopies::new(limits.posted),
            posted: AtomicU32::new(0),
            limits,
        }
    }

    #[inline]
    pub(crate) fn slots(&self) -> &SendSlots {
        &self.slots
    }

    #[inline]
    pub(crate) fn limits(&self) -> &SendLimits {
        &self.limits
    }

    #[inline]
    pub(super) fn words(&self) -> &ResultWords {
        &self.words
    }

    #[inline]
    pub(super) fn copies(&self) -> &InlineCopies {
        &self.copies
    }

    /// Returns whether the completion queue has room for one more work request.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.posted.load(Relaxed) < self.limits.posted
    }

    /// Returns whether most slots and most of the completion queue are free. An unsignaled message holds
    /// both for longer.
    #[inline]
    pub(super) fn has_plenty(&self) -> bool {
        self.slots.is_mostly_free() && self.posted.load(Relaxed) < self.limits.posted / 2
    }

    /// Counts a work request that the NIC has.
    #[inline]
    pub(super) fn note_posted(&self) {
        self.posted.fetch_add(1, Relaxed);
    }

    /// Counts `count` work requests as done.
    #[inline]
    pub(super) fn note_done(&self, count: u32) {
        self.posted.fetch_sub(count, Relaxed);
    }
}
