//! The firehose table of a peer: the peer's buckets that are registered for this rank (Table 1),
//! the room for more, and the moves in flight.

mod ahead;
mod pending_move;
mod revoked;
mod room;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::{
    agree::agree,
    choice::{PeerLoad, PulledMemory, Reuse},
    pattern::MissPattern,
};
use crate::{
    Refusal, Run, Use,
    announcements::Announcements,
    table::{BUCKETS, Editor, Extent},
    wire::Grant,
};
pub use ahead::Attached;
use ahead::ExpectedRun;
pub(super) use pending_move::{MoveChoice, PendingMove};
use revoked::ClosedExtent;

/// A reference on a firehose, or a grant of a move for one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RemoteHold {
    /// The slot; `None` for a grant that is not in the table.
    pub(super) slot: Option<u32>,
    pub(super) run: Run,
    pub(super) key: u64,
}

/// The state of a piece's remote side.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct RemoteSide {
    pub(super) holds: Vec<RemoteHold>,
    pub(super) refused: Option<Refusal>,
    /// The number of moves that it waits for.
    pub(super) pending: u32,
}

/// The firehoses of one peer, as their owner sees them.
#[derive(Debug)]
pub(super) struct FirehoseTable {
    /// The attached firehoses, with a record for each bucket, and the queue of unused ones.
    editor: Editor,
    /// The firehoses owned (F) and borrowed.
    pub(super) credit: u64,
    /// The firehoses owned; never changed.
    share: u64,
    /// The firehoses attached or set aside.
    pub(super) used: u64,
    pub(super) asked: FxHashMap<u64, PendingMove>,
    /// The runs in flight, by first bucket: the end and the move.
    moving: BTreeMap<u64, (u64, u64)>,
    /// The pieces that wait for firehoses, in order.
    pub(super) queue: VecDeque<u64>,
    /// The runs to give back with the next message.
    pub(super) owed: Vec<Run>,
    /// The pattern of misses, which sets the width of moves.
    pattern: MissPattern,
    /// The extents that nobody finds any more, though operations may use them; by first bucket.
    closed: BTreeMap<u64, ClosedExtent>,
    /// The first buckets of extents that were registered from the start.
    statics: FxHashSet<u64>,
    /// The revocations that wait for this rank's operations.
    revoking: Vec<(u64, Run)>,
    /// The first buckets of extents of a passing sequence, which are evicted first; the oldest
    /// first.
    passing: VecDeque<u64>,
    /// The first buckets of extents that leave after their last use.
    leaving: FxHashSet<u64>,
    /// The runs that are expected to be needed, and are not complete yet.
    expected: Vec<ExpectedRun>,
    /// The memory pulled from the peer, for `auto`.
    pub(super) pulled: PulledMemory,
    /// The share of attached buckets that are used again, for `auto`.
    pub(super) reuse: Reuse,
    /// The load of the peer, for `auto`.
    pub(super) load: PeerLoad,
    /// The number of attached firehoses at which the peer had no room for more.
    full_at: u64,
    /// The number of misses since then.
    misses_since: u64,
}

/// The firehoses of a run that are present, in flight or missing.
#[derive(Debug, Default)]
pub(super) struct RunLookup {
    pub(super) holds: Vec<RemoteHold>,
    /// The moves that bring a part of the run.
    pub(super) joins: Vec<(u64, Run)>,
    pub(super) gaps: Vec<Run>,
    pub(super) read_only: bool,
}

impl FirehoseTable {
    pub(super) fn new(share: u64, announcements: &Arc<Announcements>) -> Self {
        Self {
            editor: Editor::among(announcements),
            credit: share,
            share,
            used: 0,
            asked: FxHashMap::default(),
            moving: BTreeMap::new(),
            queue: VecDeque::new(),
            owed: Vec::new(),
            pattern: MissPattern::default(),
            closed: BTreeMap::new(),
            statics: FxHashSet::default(),
            revoking: Vec::new(),
            passing: VecDeque::new(),
            leaving: FxHashSet::default(),
            expected: Vec::new(),
            pulled: PulledMemory::default(),
            reuse: Reuse::default(),
            load: PeerLoad::default(),
            full_at: u64::MAX,
            misses_since: 0,
        }
    }

    pub(super) fn shared(&self) -> &std::sync::Arc<crate::table::BucketTable> {
        self.editor.table()
    }

    /// The number of attached buckets.
    pub(super) fn attached(&self) -> usize {
        self.editor.len()
    }

    /// The firehoses owned and borrowed.
    pub(super) fn credit(&self) -> u64 {
        self.credit
    }

    /// The number of pieces that wait for firehoses.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes the last of the runs to give back, `most` at most.
    pub(super) fn take_owed(&mut self, most: usize) -> Vec<Run> {
        self.owed.split_off(self.owed.len().saturating_sub(most))
    }

    /// Holds the present firehoses of a run, and lists the others.
    pub(super) fn acquire_run(&mut self, run: Run, used: Use) -> RunLookup {
        let mut look = RunLookup::default();
        let mut bucket = run.first;
        while bucket < run.end() {
            if let Some(found) = self.editor.table().acquire(bucket) {
                let part = Run {
                    first: bucket,
                    count: found.end.min(run.end()) - bucket,
                };
                look.read_only |= !used.is_permitted(found.writable);
                look.holds.push(RemoteHold {
                    slot: Some(found.slot),
                    run: part,
                    key: found.key,
                });
                bucket = part.end();
            } else if let Some((end, id)) = self.moving_at(bucket) {
                let part = Run {
                    first: bucket,
                    count: end.min(run.end()) - bucket,
                };
                look.joins.push((id, part));
                bucket = part.end();
            } else {
                let gap = self.gap(bucket, run.end());
                look.gaps.push(gap);
                bucket = gap.end();
            }
        }
        look
    }

    /// Gives back the holds of a [`acquire_run`](Self::acquire_run), or of a piece at its end.
    pub(super) fn drop_holds(&mut self, holds: &[RemoteHold]) {
        for slot in holds.iter().filter_map(|hold| hold.slot) {
            self.editor.drop_reference(slot);
        }
    }

    /// Clears an extent's mark of hits.
    pub(super) fn forget_hit(&mut self, bucket: u64) {
        if let Some(slot) = self.editor.get(bucket) {
            self.editor.take_hit(slot);
        }
    }

    /// Queues a firehose again after a hit gave it back without the lock.
    pub(super) fn released(&mut self, slot: u32) {
        self.editor.requeue(slot);
    }

    /// Queues a firehose again that an attempt to hit held for a moment without telling a waiter.
    pub(super) fn recover_missed_release(&mut self, bucket: u64) {
        if let Some(slot) = self.editor.get(bucket)
            && self.editor.references(slot) == 0
        {
            self.editor.requeue(slot);
        }
    }

    /// Forgets a lost peer: nothing of it is found any more, or waited for.
    pub(super) fn lose(&mut self) {
        let slots: Vec<u32> = self.editor.iter().map(|(_, slot)| slot).collect();
        for slot in slots {
            self.editor.close(slot);
        }
        self.asked.clear();
        self.moving.clear();
        self.queue.clear();
        self.owed.clear();
        self.closed.clear();
        self.revoking.clear();
        self.passing.clear();
        self.leaving.clear();
        self.expected.clear();
    }

    /// Adds memory that was registered from the start: it costs no firehose and stays.
    pub(super) fn add_static(&mut self, grant: &Grant) {
        self.sweep();
        let mut bucket = grant.run.first;
        while bucket < grant.run.end() {
            if self.editor.get(bucket).is_some() {
                // A present extent is as good.
                bucket += 1;
                continue;
            }
            // The extent is its own, so that its first bucket leads to all of it.
            let free = self.gap(bucket, grant.run.end());
            let extent = Extent {
                key: grant.key,
                base: free.first,
                end: free.end(),
                writable: grant.writable,
            };
            for bucket in free.buckets() {
                if self.editor.insert(bucket, &extent, 0).is_ok() {
                    self.statics.insert(extent.base);
                }
            }
            bucket = free.end();
        }
    }

    /// Checks the counts; `held` are the references by slot.
    pub(super) fn audit(&self, held: &FxHashMap<u32, u32>) -> Result<(), String> {
        for (bucket, slot) in self.editor.iter() {
            let there = held.get(&slot).copied().unwrap_or(0);
            let what = format!("references on bucket {bucket}");
            agree(&what, self.editor.references(slot), there)?;
        }
        let idle = self.expected_in_vain();
        agree("runs for which nothing is to come", idle, 0)?;
        let reserved: u64 = self.asked.values().map(|asked| asked.reserved()).sum();
        agree("firehoses", self.used, self.owned() + reserved)
    }

    /// The number of firehoses attached.
    fn owned(&self) -> u64 {
        let of = |(_, slot)| self.editor.extent(slot).base;
        let bases = self.editor.iter().map(of);
        bases.filter(|base| !self.statics.contains(base)).count() as u64
    }

    pub(super) fn has_statics(&self) -> bool {
        !self.statics.is_empty()
    }

    /// The number of buckets that the peer counts as attached, as far as is known here.
    pub(super) fn attached_buckets(&self) -> u64 {
        let owed: u64 = self.owed.iter().map(|run| run.count).sum();
        let grants = self.asked.values().flat_map(|asked| &asked.grants);
        self.owned() + owed + grants.map(|grant| grant.run.count).sum::<u64>()
    }

    pub(super) fn entries(&self) -> usize {
        let asked = self.asked.values().map(|asked| 1 + asked.waiters.len());
        let waiting = self.queue.len() + self.owed.len() + self.revoking.len() + self.closed.len();
        asked.sum::<usize>() + waiting + self.moving.len() + self.expected.len()
    }

    fn moving_at(&self, bucket: u64) -> Option<(u64, u64)> {
        let (_, found) = self.moving.range(..=bucket).next_back()?;
        (bucket < found.0).then_some(*found)
    }

    /// The run from a missing bucket to the next one that is present or in flight. It ends at the
    /// end of the address space at the latest, beyond which nothing may be asked for.
    fn gap(&self, first: u64, end: u64) -> Run {
        let end = end.min(BUCKETS);
        let end = (self.moving.range(first..).next()).map_or(end, |(next, _)| end.min(*next));
        let mut count = 1;
        while first + count < end && self.editor.get(first + count).is_none() {
            count += 1;
        }
        Run { first, count }
    }
}
