//! The interface for a conduit on top of this one.
//!
//! Such a conduit has parts of the shared file for itself, and a wake word for a thread of each
//! rank. It may also use this crate's own tools.

use std::sync::atomic::AtomicU32;

use hydrant_conduit::{Error, Rank, Word32};

use crate::Smp;

pub use crate::{
    areas::Areas,
    attach::join,
    calls::{Callee, Invitation, MOST_DESCRIPTORS, RankCall},
    extents::ExtentHandle,
    foreign::{BadAddress, CopyDirection, CopyRefusal, SelfCopy, copy},
    latch::{Latch, LatchGuard},
    layout::Extra,
    mapping::{MappedValue, Shareable, available_memory},
    wake_word::{sleep, wake},
};

impl Smp {
    /// Returns the parts of the shared file that belong to the conduit on top.
    pub fn areas(&self) -> Areas<'_> {
        self.shared.areas()
    }

    /// Returns the rank's wake word, in its area. It is woken when the standing of some rank
    /// changes.
    ///
    /// # Panics
    /// If the job has no areas.
    pub fn area_wake_word(&self, rank: Rank) -> &AtomicU32 {
        let word: &Word32 = &self.shared.wake_words[rank.index()];
        word
    }

    /// Wakes the threads that sleep in a rank's [`wait`](hydrant_conduit::Sleep::wait) for
    /// messages, as a message does.
    #[inline]
    pub fn notify_message(&self, rank: Rank) {
        self.shared.notify(rank);
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer is present.
    pub fn alive(&self, peer: Rank) -> Result<(), Error> {
        self.shared.alive(peer)
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer and this rank are present.
    pub fn both_alive(&self, peer: Rank) -> Result<(), Error> {
        self.shared.both_alive(peer)
    }
}
