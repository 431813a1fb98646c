//! What a conduit on top of this one may use: parts of the shared file for itself, a wake word for
//! a thread of each rank, and the tools that this crate has for its own use.

use std::sync::atomic::AtomicU32;

use hydrant_conduit::{Error, Rank, Word32};

use crate::Smp;

pub use crate::{
    areas::Areas,
    attach::join,
    calls::{Call, Callee, Invitation, MOST_DESCRIPTORS},
    extents::Handle,
    foreign::{BadAddress, Refusal, SelfCopy, Way, copy},
    latch::{Guard, Latch},
    layout::Extra,
    mapping::{Mapped, Shareable, available_memory},
    wake_word::{sleep, wake},
};

impl Smp {
    /// The parts of the shared file that belong to the conduit on top.
    pub fn areas(&self) -> Areas<'_> {
        self.shared.areas()
    }

    /// The rank's wake word, in its area: it is woken when some rank's standing changes.
    ///
    /// # Panics
    /// If there are no areas.
    pub fn area_wake_word(&self, rank: Rank) -> &AtomicU32 {
        let word: &Word32 = &self.shared.wake_words[rank.index()];
        word
    }

    /// Wakes those who sleep in a rank's [`wait`](hydrant_conduit::Sleep::wait) for messages, as
    /// a message does.
    #[inline]
    pub fn notify_message(&self, rank: Rank) {
        self.shared.notify(rank);
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer takes part.
    pub fn alive(&self, peer: Rank) -> Result<(), Error> {
        self.shared.alive(peer)
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer and this rank take part.
    pub fn both_alive(&self, peer: Rank) -> Result<(), Error> {
        self.shared.both_alive(peer)
    }
}
