//! Firehoses within what an operation misses are taken off for one extent that has the rest, too.

use super::{FirehoseTable, Look};
use crate::{Limits, Run, Use};

impl FirehoseTable {
    /// Takes those off that lie in a run of which more is missing, so that it can be one extent, and looks anew.
    ///
    /// An operation that lies in two extents is two for the network, and goes through the engine each time. Not where it
    /// would lie in several all the same, nor where more would be registered anew than is missing.
    pub(in crate::engine) fn merge(
        &mut self,
        run: Run,
        used: Use,
        look: &mut Look,
        limits: &Limits,
    ) {
        let there: u64 = look.holds.iter().map(|hold| hold.run.count).sum();
        let missing: u64 = look.gaps.iter().map(|gap| gap.count).sum();
        let merges = limits.may_merge(there, missing) && run.count <= limits.max_extent;
        if !merges || !look.joins.is_empty() {
            return;
        }
        let extents = self.editor.extents_in(run);
        let stays = |extent: &Run| {
            // What was there from the start is no firehose, and what the peer takes back goes by itself.
            !run.contains(*extent)
                || self.statics.contains(&extent.first)
                || self.closed.contains_key(&extent.first)
        };
        if extents.iter().any(stays) {
            return;
        }
        self.drop_holds(&look.holds);
        for extent in extents {
            let slot = self.editor.get(extent.first);
            if let Some(extent) = slot.and_then(|slot| self.editor.remove(slot)) {
                self.taken_off(extent);
            }
        }
        *look = self.look(run, used);
    }
}
