//! Extents within what a request misses are given up for one that has the rest, too.

use super::{Local, Requester};
use crate::{Decisions, Run};

impl Local {
    /// Gives up what is registered of a run of which more is missing, if nobody uses it, so that the run can be one
    /// extent. Says what is to be waited for first, before the run is looked at again.
    ///
    /// Not where the run would lie in several all the same, nor where more would be registered anew than is missing.
    pub(super) fn merge(
        &mut self,
        run: Run,
        requester: Requester,
        out: &mut Decisions,
    ) -> Option<Run> {
        let most = match requester {
            Requester::Move(_) => self.limits.max_extent,
            Requester::Piece(_) => self.limits.max_extent.min(self.limits.victims),
            _ => return None,
        };
        if run.count > most || self.is_coming(run) {
            return None;
        }
        let extents = self.editor.extents_in(run);
        let there: u64 = extents.iter().map(|it| it.count).sum();
        let missing = run.count.checked_sub(there)?;
        let merges = self.limits.may_merge(there, missing);
        if merges
            && extents
                .iter()
                .all(|it| run.contains(*it) && self.is_victim(*it))
        {
            for it in &extents {
                if let Some(slot) = self.editor.get(it.first) {
                    self.evict(slot, out);
                }
            }
        }
        // What was given up for it is to be gone as a whole.
        let leaves = self.deregistering.range(run.first..run.end()).next();
        let leaves = leaves.map(|(_, it)| it.run).filter(|it| run.contains(*it));
        leaves.filter(|_| missing > 0 && self.limits.merges())
    }

    /// Whether some of a run is being registered.
    fn is_coming(&self, run: Run) -> bool {
        let last = self.registering.range(..run.end()).next_back();
        last.is_some_and(|(_, it)| it.preferred.end() > run.first)
    }

    fn is_victim(&self, extent: Run) -> bool {
        let slot = self.editor.get(extent.first);
        slot.is_some_and(|slot| self.editor.is_queued(slot))
    }
}
