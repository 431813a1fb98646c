//! The audit of the initiator's counts.

use rustc_hash::FxHashMap;

use super::{
    super::{agree::agree, context::EngineCommon},
    FirehoseTable, InFlightOperation, Initiator,
};
use crate::{
    KeptHit, Run,
    strategy::{AfterUse, RemotePolicy},
};

impl Initiator {
    /// Checks the counts; `hits` are the hits held at this moment.
    pub(in crate::engine) fn audit(
        &self,
        common: &EngineCommon,
        hits: &[KeptHit],
    ) -> Result<(), String> {
        let waiting: usize = self.tables.values().map(FirehoseTable::waiting).sum();
        agree("pieces that wait for firehoses", self.waiting, waiting)?;
        for (peer, table) in &self.tables {
            if common.is_lost(*peer) {
                continue;
            }
            let mut held: FxHashMap<u32, u32> = FxHashMap::default();
            let pieces = self.pieces.values().filter(|piece| piece.peer == *peer);
            let holds = pieces.flat_map(|piece| &piece.remote_side.holds);
            let slots = holds.filter_map(|hold| hold.slot);
            let hit = hits.iter().filter(|hit| hit.peer == *peer);
            for slot in slots.chain(hit.map(|hit| hit.remote_slot)) {
                *held.entry(slot).or_default() += 1;
            }
            table
                .audit(&held)
                .map_err(|what| format!("firehoses to rank {peer}: {what}"))?;
        }
        let live = self.ops.values().map(InFlightOperation::live).sum();
        agree("pieces", self.pieces.len(), live)?;
        let transfers: u32 = self.pieces.values().map(|piece| piece.transfers).sum();
        agree(
            "transfers and chunks",
            transfers as usize,
            self.transfers.len(),
        )
    }

    /// The number of firehoses borrowed of a peer.
    pub(in crate::engine) fn borrowed_of(&self, peer: u32) -> u64 {
        (self.tables.get(&peer)).map_or(0, |table| table.borrowed())
    }

    /// The number of buckets attached at a peer. It includes buckets given back of which the peer
    /// was not told yet.
    pub(in crate::engine) fn attached_at(&self, common: &EngineCommon, peer: u32) -> u64 {
        let count = |runs: &mut dyn Iterator<Item = Run>| runs.map(|run| run.count).sum::<u64>();
        let pieces = self.pieces.values().filter(|piece| piece.peer == peer);
        let holds = pieces.flat_map(|piece| &piece.remote_side.holds);
        let mut loose = holds
            .filter(|hold| hold.slot.is_none())
            .map(|hold| hold.run);
        let loose = match common.policy().remote {
            RemotePolicy::Handshake(AfterUse::Keep) => 0,
            _ => count(&mut loose),
        };
        loose
            + self
                .tables
                .get(&peer)
                .map_or(0, FirehoseTable::attached_buckets)
    }

    /// Returns true if memory of a peer is known that is registered for good.
    pub(in crate::engine) fn statics(&self, peer: u32) -> bool {
        self.tables
            .get(&peer)
            .is_some_and(FirehoseTable::has_statics)
    }

    /// Everything noted down, in entries.
    pub(in crate::engine) fn entries(&self) -> usize {
        let tables = self
            .tables
            .values()
            .map(FirehoseTable::entries)
            .sum::<usize>();
        self.ops.len() + self.pieces.len() + self.transfers.len() + tables
    }
}
