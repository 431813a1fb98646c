//! The audit of all counts: it counts everything anew and compares. It serves tests, simulations
//! and the search for leaks.

use rustc_hash::FxHashMap;

use super::Engine;
use crate::KeptHit;

impl Engine {
    /// Checks every count; `hits` are the hits that are held at this moment.
    ///
    /// # Errors
    /// A description of the first count that differs.
    pub fn audit(&self, hits: &[KeptHit]) -> Result<(), String> {
        let outside = self.target.audit()?;
        let mut own: FxHashMap<u32, u32> = FxHashMap::default();
        for slot in hits.iter().filter_map(KeptHit::local_slot) {
            *own.entry(slot).or_default() += 1;
        }
        self.local.audit(outside, own)?;
        self.initiator.audit(&self.common, hits)
    }

    /// The number of buckets that a peer has attached here, as far as this rank knows.
    pub fn attached_by(&self, peer: u32) -> u64 {
        self.target.attached_by(peer)
    }

    /// The number of buckets attached at a peer. It includes buckets given back of which the peer
    /// was not told yet.
    pub fn attached_at(&self, peer: u32) -> u64 {
        self.initiator.attached_at(&self.common, peer)
    }

    /// The number of firehoses that a peer was lent and not asked back for.
    pub fn lent_to(&self, peer: u32) -> u64 {
        self.target.lent_to(peer)
    }

    /// The number of firehoses borrowed of a peer.
    pub fn borrowed_of(&self, peer: u32) -> u64 {
        self.initiator.borrowed_of(peer)
    }

    /// Returns true if memory of a peer is known that is registered for good.
    pub fn statics(&self, peer: u32) -> bool {
        self.initiator.statics(peer)
    }

    /// The size of the engine's state in entries, without its tables.
    pub fn entries(&self) -> usize {
        self.initiator.entries() + self.target.entries() + self.local.entries()
    }
}
