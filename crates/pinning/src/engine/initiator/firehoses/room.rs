//! The room for more firehoses: their number, and those that are taken off for others.

use super::{super::foreseen::Detached, FirehoseTable, RemoteHold};
use crate::{
    BucketLimits, Run,
    engine::pattern::Sequence,
    table::Extent,
    wire::{Grant, Need},
};

/// The number of misses after which a full peer may have room again.
const FULL_FOR: u64 = 1 << 10;

/// The most extents of passing sequences that are remembered.
const MAX_PASSING: usize = 64;

impl FirehoseTable {
    pub(in crate::engine) fn lend(&mut self, count: u64) {
        self.credit = self.credit.saturating_add(count);
    }

    /// The number of firehoses borrowed.
    pub(in crate::engine) fn borrowed(&self) -> u64 {
        self.credit - self.share
    }

    /// Sets firehoses aside for the gaps of an operation's bytes, widened as the pattern of misses
    /// suggests. Unused ones are taken off their buckets as needed, and left in `owed`. Returns
    /// `None` if too many are in use.
    pub(in crate::engine) fn set_aside(
        &mut self,
        gaps: &[Run],
        bytes: Sequence,
        limits: &BucketLimits,
    ) -> Option<Vec<Need>> {
        if gaps.is_empty() {
            return Some(Vec::new());
        }
        self.set_aside_by(gaps, |table, last| {
            let most = limits
                .amortised
                .min(table.credit / 4)
                .min(limits.max_extent);
            let ends = |end| bytes.end_by(end, limits.geometry);
            table.pattern.width(last, most, ends)
        })
    }

    /// Sets firehoses aside for the gaps, `width` buckets from the first of the last gap on.
    /// Returns `None` if too many are in use.
    pub(in crate::engine) fn set_aside_wide(
        &mut self,
        gaps: &[Run],
        width: u64,
    ) -> Option<Vec<Need>> {
        self.set_aside_by(gaps, |_, _| width)
    }

    /// As above, with the width that `width` returns, which is called once there are enough for the
    /// gaps.
    fn set_aside_by(
        &mut self,
        gaps: &[Run],
        width: impl FnOnce(&mut Self, Run) -> u64,
    ) -> Option<Vec<Need>> {
        let least: u64 = gaps.iter().map(|gap| gap.count).sum();
        if !self.make_room(least) {
            return None;
        }
        let mut needs: Vec<Need> = (gaps.iter())
            .map(|run| Need {
                run: *run,
                preferred: *run,
            })
            .collect();
        let mut total = least;
        let last = gaps.last().map(|last| (*last, width(self, *last)));
        if let (Some(need), Some((last, width))) = (needs.last_mut(), last)
            && width > last.count
        {
            let preferred = self.gap(need.run.first, need.run.first.saturating_add(width));
            let more = preferred.count.max(need.run.count) - need.run.count;
            if self.make_room(least + more) {
                need.preferred.count += more;
                total += more;
            }
        }
        self.used += total;
        Some(needs)
    }

    /// Returns true if firehoses must be taken off for so many more.
    pub(in crate::engine) fn is_short(&self, count: u64) -> bool {
        self.used + count > self.most()
    }

    /// The number of further firehoses for which none must be taken off.
    pub(in crate::engine) fn unattached(&self) -> u64 {
        self.most().saturating_sub(self.used)
    }

    /// Notes that the peer had no room for so many more than are attached now.
    pub(in crate::engine) fn note_full(&mut self, count: u64) {
        self.full_at = (self.used + count).saturating_sub(1).max(1);
        self.misses_since = 0;
    }

    /// Counts a miss. After many, the peer may have room again.
    pub(in crate::engine) fn note_miss(&mut self) {
        self.misses_since += 1;
        if self.misses_since > FULL_FOR {
            self.full_at = u64::MAX;
        }
    }

    /// Looks at the next victim. Returns true if nobody has used it since its last look, a round of
    /// the queue ago.
    pub(in crate::engine) fn probe_next_victim(&mut self) -> bool {
        self.editor.probe_first()
    }

    /// The number of missing buckets from a missing one on, at most `most`.
    pub(in crate::engine) fn missing(&self, first: u64, most: u64) -> u64 {
        self.gap(first, first.saturating_add(most)).count
    }

    /// The number of buckets missed in sequence up to a miss, with it.
    pub(in crate::engine) fn streak(&self, need: Run) -> u64 {
        self.pattern.streak(need)
    }

    /// Notes a miss, for which so many buckets from its first on are attached or copied.
    pub(in crate::engine) fn follow(&mut self, need: Run, width: u64) {
        self.pattern.follow(need, width);
    }

    /// The most buckets of one extent beside the others that are attached.
    pub(in crate::engine) fn widest(&self, max_extent: u64) -> u64 {
        (self.credit / 4).min(max_extent).max(1)
    }

    /// The share of buckets that the peer may keep registered beside firehoses, in equal parts for
    /// each rank.
    pub(in crate::engine) fn peer_share(&self, total: u64, ranks: u32) -> u64 {
        total.saturating_sub(self.used) / u64::from(ranks - 1).max(1)
    }

    /// Makes a landed grant the next victim.
    pub(in crate::engine) fn mark_passing(&mut self, grant: &Grant) {
        if self.passing.len() == MAX_PASSING {
            self.passing.pop_front();
        }
        self.passing.push_back(grant.run.first);
    }

    /// Makes room for so many firehoses by taking unused ones off.
    pub(in crate::engine) fn make_room(&mut self, count: u64) -> bool {
        while self.used + count > self.most() {
            if let Some(extent) = self.take_passing() {
                self.record_detached(extent);
                continue;
            }
            let Some(extent) = self.editor.take_victim() else {
                return false;
            };
            self.record_detached(extent);
        }
        true
    }

    /// Returns borrowed firehoses on request, and takes unused ones off as far as needed.
    pub(in crate::engine) fn recall(&mut self, count: u64) {
        self.credit -= count.min(self.borrowed());
        self.shrink();
    }

    /// Takes unused firehoses off while more are attached than owned.
    pub(in crate::engine) fn shrink(&mut self) {
        while self.used > self.credit {
            match self.editor.take_victim() {
                Some(extent) => self.record_detached(extent),
                None => return,
            }
        }
    }

    /// The most firehoses that may be attached: those owned and borrowed, but no more than the peer
    /// had room for.
    fn most(&self) -> u64 {
        self.credit.min(self.full_at)
    }

    /// Takes off the oldest extent of a passing sequence that nobody uses.
    fn take_passing(&mut self) -> Option<Extent> {
        for _ in 0..self.passing.len() {
            let first = self.passing.pop_front()?;
            let Some(slot) = self.editor.get(first) else {
                continue;
            };
            // Another extent may be there by now, or its owner may have taken this one back.
            if self.editor.extent(slot).base != first || !self.editor.is_queued(slot) {
                continue;
            }
            match self.editor.remove(slot) {
                Some(extent) => return Some(extent),
                None => self.passing.push_back(first),
            }
        }
        None
    }

    /// Takes off the extents that lie within a run, those in use after their [last
    /// use](Self::take_leaving).
    pub(in crate::engine) fn give_up(&mut self, run: Run) -> Detached {
        let mut outcome = Detached::Nothing;
        for extent in self.editor.extents_in(run) {
            // An extent registered from the start is no firehose, and a revoked one goes by itself.
            let is_meant = run.contains(extent)
                && !self.statics.contains(&extent.first)
                && !self.closed.contains_key(&extent.first);
            let Some(slot) = self.editor.get(extent.first).filter(|_| is_meant) else {
                continue;
            };
            outcome = match (self.editor.remove(slot), outcome) {
                (Some(extent), before) => {
                    self.record_detached(extent);
                    match before {
                        Detached::WhenUnused => Detached::WhenUnused,
                        _ => Detached::Now,
                    }
                }
                (None, _) => {
                    self.leaving.insert(extent.first);
                    Detached::WhenUnused
                }
            };
        }
        if self.is_coming(run) {
            Detached::Coming
        } else {
            outcome
        }
    }

    /// Takes off the extents that were to leave after their last use, among firehoses that were
    /// given back.
    pub(in crate::engine) fn take_leaving(&mut self, holds: &[RemoteHold]) {
        if self.leaving.is_empty() {
            return;
        }
        for hold in holds.iter().filter(|hold| hold.slot.is_some()) {
            // Another extent may be there by now.
            let Some(slot) = self.editor.get(hold.run.first) else {
                continue;
            };
            let first = self.editor.extent(slot).base;
            if !self.leaving.contains(&first) || self.closed.contains_key(&first) {
                continue;
            }
            if let Some(extent) = self.editor.remove(slot) {
                self.leaving.remove(&first);
                self.record_detached(extent);
            }
        }
    }

    fn record_detached(&mut self, extent: Extent) {
        self.leaving.remove(&extent.base);
        let run = Run {
            first: extent.base,
            count: extent.end - extent.base,
        };
        self.used -= run.count;
        self.owed.push(run);
    }
}
