//! What the connections of a rank share.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{inline_copies::InlineCopies, result_words::ResultWords, slots::SendSlots};

/// What the connections of a rank share: where messages are sent from, where results of atomic
/// operations are put, where small writes are kept, and how much may be with the NIC.
pub(crate) struct SendPool {
    slots: SendSlots,
    words: ResultWords,
    copies: InlineCopies,
    /// Work requests with the NIC on all connections, signaled or not, that are counted.
    posted: AtomicU32,
    limits: SendLimits,
}

/// How much may be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendLimits {
    /// Most work requests with the NIC on all connections, so that their completions find room.
    pub(crate) posted: u32,
    /// Most work requests with the NIC on one connection.
    pub(crate) depth: usize,
    /// Bytes that a NIC is asked to take along with a work request.
    pub(crate) inline: u32,
    /// Most bytes of a work request.
    pub(crate) longest: u64,
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

    /// Whether the completions of one work request more find room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.posted.load(Relaxed) < self.limits.posted
    }

    /// Whether slots, and room for completions, are left for whoever else needs some while those
    /// of unsignaled messages are kept.
    #[inline]
    pub(super) fn has_plenty(&self) -> bool {
        self.slots.is_mostly_free() && self.posted.load(Relaxed) < self.limits.posted / 2
    }

    /// A work request is with the NIC.
    #[inline]
    pub(super) fn note_posted(&self) {
        self.posted.fetch_add(1, Relaxed);
    }

    /// So many are not any more.
    #[inline]
    pub(super) fn note_done(&self, count: u32) {
        self.posted.fetch_sub(count, Relaxed);
    }
}
