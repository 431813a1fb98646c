//! What a conduit on top of this one may use: parts of the shared file for itself, a wake word for
//! a thread of each rank, and the tools that this crate has for its own use.

use std::sync::{Arc, atomic::AtomicU32};

use hydrant_conduit::{Error, Rank, Window, Word32};

use crate::{Smp, mapping::Mapping, shared::Shared};

pub use crate::{
    attach::join,
    calls::{Call, Callee, Invitation, MOST_DESCRIPTORS},
    extents::Handle,
    foreign::{BadAddress, Refusal, SelfCopy, Way, copy},
    latch::{Guard, Latch},
    layout::Extra,
    mapping::{Mapped, Shareable, available_memory},
    wake_word::{sleep, wake},
};

/// The parts of the shared file that belong to the conduit on top.
pub struct Areas<'a>(&'a Shared);

impl Areas<'_> {
    /// Ranks of the job.
    pub fn ranks(&self) -> usize {
        self.0.shape.ranks()
    }

    /// Extents that a rank may have registered at once.
    pub fn extents(&self) -> usize {
        self.0.shape.extents as usize
    }

    /// The area of a rank: [`Extra::rank_bytes`], of which the first four are its wake word.
    pub fn of_rank(&self, rank: Rank) -> Window {
        area(&self.0.mapping, self.0, rank.index())
    }

    /// The area of a pair: [`Extra::pair_bytes`], in which `from` asks something of `to`.
    ///
    /// # Panics
    /// If a `T` is longer than that.
    pub fn of_pair<T: Shareable>(&self, to: Rank, from: Rank) -> Mapped<T> {
        let shape = &self.0.shape;
        assert!(size_of::<T>() <= shape.extra.pair_bytes as usize);
        (self.0.mapping).mapped(shape.pair(to.index(), from.index()))
    }
}

fn area(mapping: &Arc<Mapping>, shared: &Shared, rank: usize) -> Window {
    let shape = &shared.shape;
    mapping.window(shape.area(rank), shape.extra.rank_bytes as usize)
}

impl Shared {
    pub(crate) fn areas(&self) -> Areas<'_> {
        Areas(self)
    }
}

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
