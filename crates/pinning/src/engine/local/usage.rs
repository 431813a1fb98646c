//! The registered buckets by their use.

use rustc_hash::FxHashMap;

use super::{LocalRequest, LocalTable, Requester};
use crate::{Run, engine::usage::BucketUsage};

impl LocalTable {
    /// Counts the buckets by their use; `going` are the runs that are being taken back.
    pub(in crate::engine) fn usage(&self, going: &[Run]) -> BucketUsage {
        let recorded = self.editor.len() as u64;
        let dead = self.dead(going);
        let is_dead = |base: u64| dead.contains_key(&base);
        let mut held = 0;
        self.editor.for_each_held(|extent| {
            if !is_dead(extent.base) {
                held += extent.end - extent.base;
            }
        });
        let permanent = self.permanent_extents();
        let permanent = permanent.iter().filter(|(base, _)| !is_dead(**base));
        // Peers' references and those of memory pinned for good are counted together.
        let (outside, own): (Vec<_>, Vec<_>) =
            permanent.partition(|(base, _)| self.outside.contains_key(base));
        let sum = |extents: &[(&u64, &u64)]| extents.iter().map(|(_, count)| **count).sum::<u64>();
        let (outside, own) = (sum(&outside), sum(&own));
        let attached_dead: u64 = (dead.iter())
            .filter(|(base, _)| self.outside.contains_key(base))
            .map(|(_, count)| count)
            .sum();
        let attached = self.attached.saturating_sub(attached_dead);
        let dead: u64 = dead.values().sum();
        BucketUsage {
            registered: self.actual,
            dead,
            permanent: outside + own,
            peers: attached.saturating_sub(outside),
            in_use: held.saturating_sub(attached + own),
            victims: recorded.saturating_sub(held + dead),
            changing: self.actual.saturating_sub(recorded),
            firehoses: Vec::new(),
        }
    }

    /// The extents pinned or kept for good, by first bucket, with their buckets.
    fn permanent_extents(&self) -> FxHashMap<u64, u64> {
        let pinned = self.kept.values().copied();
        let keeps = |it: &&LocalRequest| matches!(it.requester, Requester::Keep(_));
        let kept = self.requests.values().filter(keeps);
        let kept = kept.flat_map(|it| it.holds.iter().map(|hold| hold.slot));
        (pinned.chain(kept).map(|slot| self.extent(slot)))
            .map(|extent| (extent.first, extent.count))
            .collect()
    }

    /// The extents that nobody new may use, by first bucket, with their buckets.
    fn dead(&self, going: &[Run]) -> FxHashMap<u64, u64> {
        let going = going.iter().flat_map(|run| self.editor.extents_in(*run));
        let ended = (self.ending_transient.iter())
            .filter_map(|base| self.editor.get(*base))
            .map(|slot| self.extent(slot));
        going
            .chain(ended)
            .map(|extent| (extent.first, extent.count))
            .collect()
    }
}
