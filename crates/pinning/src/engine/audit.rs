//! Whether all counts agree: everything that is counted on the way is counted anew, from what
//! there is. For tests, simulations and whoever looks for a leak.

use rustc_hash::FxHashMap;

use super::{Engine, Remote, far::Far};
use crate::{Hit, Run};

impl Engine {
    /// Checks every count against what it counts, `hits` being those held at this moment.
    ///
    /// # Errors
    /// What does not agree.
    pub fn audit(&self, hits: &[Hit]) -> Result<(), String> {
        let outside = self.guests.audit()?;
        let mut near: FxHashMap<u32, u32> = FxHashMap::default();
        for slot in hits.iter().filter_map(Hit::local_slot) {
            *near.entry(slot).or_default() += 1;
        }
        self.local.audit(outside, near)?;
        let waiting: usize = self.fars.values().map(|far| far.queue.len()).sum();
        agree("pieces that wait for firehoses", self.waiting, waiting)?;
        for (peer, far) in self
            .fars
            .iter()
            .filter(|(peer, _)| !self.lost.contains(peer))
        {
            let mut held: FxHashMap<u32, u32> = FxHashMap::default();
            let pieces = self.pieces.values().filter(|piece| piece.peer == *peer);
            let holds = pieces.flat_map(|piece| &piece.reach.holds);
            let slots = holds.filter_map(|hold| hold.slot);
            let hit = hits.iter().filter(|hit| hit.peer == *peer);
            for slot in slots.chain(hit.map(|hit| hit.remote_slot)) {
                *held.entry(slot).or_default() += 1;
            }
            far.audit(&held)
                .map_err(|what| format!("firehoses to rank {peer}: {what}"))?;
        }
        let live = self.ops.values().map(super::piece::Op::live).sum();
        agree("pieces", self.pieces.len(), live)?;
        let legs: u32 = self.pieces.values().map(|piece| piece.legs).sum();
        let known = self.legs.values().filter(|leg| leg.piece().is_some());
        agree("transfers and chunks", legs as usize, known.count())
    }

    /// Buckets that a peer has attached here, as far as this rank knows.
    pub fn attached_by(&self, peer: u32) -> u64 {
        self.guests.attached_by(peer)
    }

    /// Buckets attached at a peer, those that it was not told yet are given back included.
    pub fn attached_at(&self, peer: u32) -> u64 {
        let count = |runs: &mut dyn Iterator<Item = Run>| runs.map(|run| run.count).sum::<u64>();
        let pieces = self.pieces.values().filter(|piece| piece.peer == peer);
        let holds = pieces.flat_map(|piece| &piece.reach.holds);
        let mut loose = holds
            .filter(|hold| hold.slot.is_none())
            .map(|hold| hold.run);
        let loose = match self.policy.remote {
            Remote::Handshake(crate::strategy::After::Keep) => 0,
            _ => count(&mut loose),
        };
        loose + self.fars.get(&peer).map_or(0, Far::attached_buckets)
    }

    /// Whether memory of a peer is known that is registered for good.
    pub fn statics(&self, peer: u32) -> bool {
        self.fars.get(&peer).is_some_and(Far::has_statics)
    }

    /// Everything noted down: what an engine takes, but for tables, in entries.
    pub fn entries(&self) -> usize {
        let fars = self.fars.values().map(Far::entries).sum::<usize>();
        let own = self.ops.len() + self.pieces.len() + self.legs.len();
        let others = self.served.len() + self.pulls.len() + self.revocations.len();
        own + others + fars + self.local.entries() + self.guests.entries()
    }
}

pub(super) fn agree<T: PartialEq + std::fmt::Display>(
    what: &str,
    counted: T,
    there: T,
) -> Result<(), String> {
    if counted == there {
        return Ok(());
    }
    Err(format!("{what}: counted {counted}, but there are {there}"))
}
