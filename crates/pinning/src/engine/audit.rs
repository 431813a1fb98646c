//! Whether all counts agree: everything that is counted on the way is counted anew, from what
//! there is. For tests, simulations and whoever looks for a leak.

use rustc_hash::FxHashMap;

use super::Engine;
use crate::KeptHit;

impl Engine {
    /// Checks every count against what it counts, `hits` being those held at this moment.
    ///
    /// # Errors
    /// What does not agree.
    pub fn audit(&self, hits: &[KeptHit]) -> Result<(), String> {
        let outside = self.target.audit()?;
        let mut own: FxHashMap<u32, u32> = FxHashMap::default();
        for slot in hits.iter().filter_map(KeptHit::local_slot) {
            *own.entry(slot).or_default() += 1;
        }
        self.local.audit(outside, own)?;
        self.initiator.audit(&self.common, hits)
    }

    /// Buckets that a peer has attached here, as far as this rank knows.
    pub fn attached_by(&self, peer: u32) -> u64 {
        self.target.attached_by(peer)
    }

    /// Buckets attached at a peer, those that it was not told yet are given back included.
    pub fn attached_at(&self, peer: u32) -> u64 {
        self.initiator.attached_at(&self.common, peer)
    }

    /// Firehoses that a peer was lent and not asked back for.
    pub fn lent_to(&self, peer: u32) -> u64 {
        self.target.lent_to(peer)
    }

    /// Firehoses borrowed of a peer.
    pub fn borrowed_of(&self, peer: u32) -> u64 {
        self.initiator.borrowed_of(peer)
    }

    /// Whether memory of a peer is known that is registered for good.
    pub fn statics(&self, peer: u32) -> bool {
        self.initiator.statics(peer)
    }

    /// Everything noted down: what an engine takes, but for tables, in entries.
    pub fn entries(&self) -> usize {
        self.initiator.entries() + self.target.entries() + self.local.entries()
    }
}
