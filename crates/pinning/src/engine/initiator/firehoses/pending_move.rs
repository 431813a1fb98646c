//! Moves in flight, and their grants.

use super::FirehoseTable;
use crate::{
    Refusal, Run,
    engine::choice::OperationClass,
    table::Extent,
    wire::{Grant, Need},
};

/// The decision of `auto` about a move.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct MoveChoice {
    /// The class of its operations.
    pub(in crate::engine) class: OperationClass,
    /// True if something is evicted for it.
    pub(in crate::engine) evicts: bool,
    /// True if its buckets are the next victims.
    pub(in crate::engine) passes: bool,
    /// The start, if the move is timed.
    pub(in crate::engine) begun: Option<u64>,
}

/// A move in flight.
#[derive(Debug)]
pub(in crate::engine) struct PendingMove {
    pub(in crate::engine) needs: Vec<Need>,
    /// The pieces that wait, with the buckets that each waits for.
    pub(in crate::engine) waiters: Vec<(u64, Run)>,
    /// The firehoses set aside for the answer.
    reserved: u64,
    /// The piece whose data is piggybacked.
    pub(in crate::engine) piggybacked: Option<u64>,
    /// The firehoses asked for beyond those owned.
    pub(in crate::engine) borrow: u64,
    /// True if the grants stay in the table, and false if they serve one operation.
    pub(in crate::engine) cached: bool,
    /// The decision about it, under `auto`.
    pub(in crate::engine) chosen: Option<MoveChoice>,
    pub(in crate::engine) grants: Vec<Grant>,
    pub(in crate::engine) refused: Vec<(Run, Refusal)>,
}

impl PendingMove {
    /// The firehoses set aside, if the grants stay.
    pub(super) fn reserved(&self) -> u64 {
        if self.cached { self.reserved } else { 0 }
    }

    pub(in crate::engine) fn new(needs: Vec<Need>, cached: bool, waiters: Vec<(u64, Run)>) -> Self {
        Self {
            reserved: needs.iter().map(|need| need.preferred.count).sum(),
            needs,
            waiters,
            piggybacked: None,
            borrow: 0,
            cached,
            chosen: None,
            grants: Vec::new(),
            refused: Vec::new(),
        }
    }
}

impl FirehoseTable {
    /// Records a move.
    pub(in crate::engine) fn record_move(&mut self, id: u64, asked: PendingMove) {
        if asked.cached {
            for need in &asked.needs {
                let Run { first, .. } = need.preferred;
                self.moving.insert(first, (need.preferred.end(), id));
            }
        }
        self.asked.insert(id, asked);
    }

    /// Records a grant that stays in the table. Returns false, and gives the grant back, if it does
    /// not fit.
    pub(in crate::engine) fn land(&mut self, grant: &Grant) -> bool {
        let extent = Extent {
            key: grant.key,
            base: grant.run.first,
            end: grant.run.end(),
            writable: grant.writable,
        };
        for bucket in grant.run.buckets() {
            if self.editor.insert(bucket, &extent, 0).is_err() {
                // The recorded buckets are removed. If the first bucket was refused, there are
                // none.
                if bucket > extent.base
                    && let Some(slot) = self.editor.get(extent.base)
                {
                    self.editor.remove(slot);
                }
                self.owed.push(grant.run);
                return false;
            }
        }
        true
    }

    /// Makes a landed grant a possible victim.
    pub(in crate::engine) fn settle(&mut self, grant: &Grant) {
        if let Some(slot) = self.editor.get(grant.run.first) {
            self.editor.queue(slot);
        }
    }

    /// Ends a move that was answered completely, with so many firehoses attached.
    pub(in crate::engine) fn end_move(&mut self, id: u64, attached: u64) -> Option<PendingMove> {
        let asked = self.asked.remove(&id)?;
        if asked.cached {
            for need in &asked.needs {
                self.moving.remove(&need.preferred.first);
            }
            self.used -= asked.reserved.saturating_sub(attached);
        }
        Some(asked)
    }
}
