//! Moves under way, and what they bring.

use super::FirehoseTable;
use crate::{
    Refusal, Run,
    engine::choice::OperationClass,
    table::Extent,
    wire::{Grant, Need},
};

/// How `auto` chose a move.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Chosen {
    /// Of which operations.
    pub(in crate::engine) class: OperationClass,
    /// Whether something was given up for it.
    pub(in crate::engine) evicts: bool,
    /// Whether what it brings is given up first.
    pub(in crate::engine) passes: bool,
    /// When it began, if it is timed.
    pub(in crate::engine) begun: Option<u64>,
}

/// A move under way.
#[derive(Debug)]
pub(in crate::engine) struct Asked {
    pub(in crate::engine) needs: Vec<Need>,
    /// Pieces, and the buckets each of them waits for.
    pub(in crate::engine) waiters: Vec<(u64, Run)>,
    /// Firehoses set aside for the answer.
    reserved: u64,
    /// The piece whose data is piggybacked.
    pub(in crate::engine) piggybacked: Option<u64>,
    /// Firehoses asked for beyond those owned.
    pub(in crate::engine) borrow: u64,
    /// Kept in the table, or for one operation.
    pub(in crate::engine) cached: bool,
    /// How it was chosen, by `auto`.
    pub(in crate::engine) chosen: Option<Chosen>,
    pub(in crate::engine) grants: Vec<Grant>,
    pub(in crate::engine) refused: Vec<(Run, Refusal)>,
}

impl Asked {
    /// Firehoses set aside, if those it brings are kept.
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
    /// Notes a move.
    pub(in crate::engine) fn ask(&mut self, id: u64, asked: Asked) {
        if asked.cached {
            for need in &asked.needs {
                let Run { first, .. } = need.preferred;
                self.moving.insert(first, (need.preferred.end(), id));
            }
        }
        self.asked.insert(id, asked);
    }

    /// A grant of a move that is kept: it is put into the table.
    pub(in crate::engine) fn land(&mut self, grant: &Grant) -> bool {
        let extent = Extent {
            key: grant.key,
            base: grant.run.first,
            end: grant.run.end(),
            writable: grant.writable,
        };
        for bucket in grant.run.buckets() {
            if self.editor.insert(bucket, &extent, 0).is_err() {
                // What is in of it is taken out; where its first bucket was refused, nothing is.
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

    /// What landed may be given up from now on.
    pub(in crate::engine) fn settle(&mut self, grant: &Grant) {
        if let Some(slot) = self.editor.get(grant.run.first) {
            self.editor.queue(slot);
        }
    }

    /// A move was answered to the end, with so many firehoses attached.
    pub(in crate::engine) fn answered(&mut self, id: u64, attached: u64) -> Option<Asked> {
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
