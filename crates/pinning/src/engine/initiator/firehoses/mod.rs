//! The firehose table of a peer: which of its buckets are registered for me (Table 1), how many
//! more may be, and what was asked for.

mod ahead;
mod asked;
mod revoked;
mod room;

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::{
    agree::agree,
    choice::{PeerLoad, PulledMemory, Reuse},
    pattern::Pattern,
};
use crate::{
    Refusal, Run, Use,
    table::{BUCKETS, Editor, Extent},
    wire::Grant,
};
use ahead::Expected;
pub(super) use asked::{Asked, Chosen};
use revoked::Closed;

/// A reference on a firehose, or what a move got for one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RemoteHold {
    /// The record; none for what is not kept in the table.
    pub(super) slot: Option<u32>,
    pub(super) run: Run,
    pub(super) key: u64,
}

/// What a piece has of the remote side.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct RemoteSide {
    pub(super) holds: Vec<RemoteHold>,
    pub(super) refused: Option<Refusal>,
    /// Moves waited for.
    pub(super) pending: u32,
}

/// A peer as its firehoses' owner sees it.
#[derive(Debug)]
pub(super) struct FirehoseTable {
    /// The firehoses attached: a record for each bucket, and the queue of unused ones.
    editor: Editor,
    /// Firehoses owned: F, and those borrowed.
    pub(super) credit: u64,
    /// Firehoses owned; never changed.
    share: u64,
    /// Firehoses attached or set aside.
    pub(super) used: u64,
    pub(super) asked: FxHashMap<u64, Asked>,
    /// By first bucket: where its run ends, and its move.
    moving: BTreeMap<u64, (u64, u64)>,
    /// Pieces that wait for firehoses, in order.
    pub(super) queue: VecDeque<u64>,
    /// To be told with the next message.
    pub(super) owed: Vec<Run>,
    /// How misses follow each other, which says how wide to ask.
    pattern: Pattern,
    /// Extents that nobody finds any more, though operations may use them; by first bucket.
    closed: BTreeMap<u64, Closed>,
    /// First buckets of what was there from the start.
    statics: FxHashSet<u64>,
    /// Revocations that wait for operations of mine.
    revoking: Vec<(u64, Run)>,
    /// First buckets of extents that came by in sequence and are given up first, the oldest first.
    passing: VecDeque<u64>,
    /// First buckets of extents that leave when nobody uses them any more.
    leaving: FxHashSet<u64>,
    /// Runs that are expected to be needed, and are not all there yet.
    expected: Vec<Expected>,
    /// What was pulled, by `auto`.
    pub(super) pulled: PulledMemory,
    /// How much of what was attached is used again, for `auto`.
    pub(super) reuse: Reuse,
    /// Whether the peer has time for what it is asked, for `auto`.
    pub(super) load: PeerLoad,
    /// Firehoses that were attached when the peer had no room for more.
    full_at: u64,
    /// Misses since then.
    misses_since: u64,
}

/// What there is of a run.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) holds: Vec<RemoteHold>,
    /// Moves that bring some of it.
    pub(super) joins: Vec<(u64, Run)>,
    pub(super) gaps: Vec<Run>,
    pub(super) read_only: bool,
}

impl FirehoseTable {
    pub(super) fn new(share: u64) -> Self {
        Self {
            editor: Editor::new(),
            credit: share,
            share,
            used: 0,
            asked: FxHashMap::default(),
            moving: BTreeMap::new(),
            queue: VecDeque::new(),
            owed: Vec::new(),
            pattern: Pattern::default(),
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

    /// Firehoses attached.
    pub(super) fn attached(&self) -> usize {
        self.editor.len()
    }

    /// Firehoses owned and borrowed.
    pub(super) fn credit(&self) -> u64 {
        self.credit
    }

    /// Pieces that wait for firehoses.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes the last of what is to be given back, `most` runs of it at most.
    pub(super) fn take_owed(&mut self, most: usize) -> Vec<Run> {
        self.owed.split_off(self.owed.len().saturating_sub(most))
    }

    /// Holds what is there of a run and says what is not.
    pub(super) fn look(&mut self, run: Run, used: Use) -> Look {
        let mut look = Look::default();
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

    /// Gives back what a [`look`](Self::look) held, or a piece at its end.
    pub(super) fn drop_holds(&mut self, holds: &[RemoteHold]) {
        for slot in holds.iter().filter_map(|hold| hold.slot) {
            self.editor.drop_reference(slot);
        }
    }

    /// An extent counts as not hit yet.
    pub(super) fn forget_hit(&mut self, bucket: u64) {
        if let Some(slot) = self.editor.get(bucket) {
            self.editor.take_hit(slot);
        }
    }

    /// Firehoses that a hit gave back without the lock.
    pub(super) fn released(&mut self, slot: u32) {
        self.editor.requeue(slot);
    }

    /// A hit found one side only, and nobody was told when it gave that back: whoever waits for
    /// the bucket is made up for it.
    pub(super) fn recover_missed_release(&mut self, bucket: u64) {
        if let Some(slot) = self.editor.get(bucket)
            && self.editor.references(slot) == 0
        {
            self.editor.requeue(slot);
        }
    }

    /// The peer is gone: nothing of it is found any more, or waited for.
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

    /// A registration that was there from the start: it costs no firehose and stays.
    pub(super) fn add_static(&mut self, grant: &Grant) {
        self.sweep();
        let mut bucket = grant.run.first;
        while bucket < grant.run.end() {
            if self.editor.get(bucket).is_some() {
                // What is there already is as good.
                bucket += 1;
                continue;
            }
            // An extent of its own, so that what is found by its first bucket is all of it.
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

    /// `held`: references by record.
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

    /// Firehoses attached.
    fn owned(&self) -> u64 {
        let of = |(_, slot)| self.editor.extent(slot).base;
        let bases = self.editor.iter().map(of);
        bases.filter(|base| !self.statics.contains(base)).count() as u64
    }

    pub(super) fn has_statics(&self) -> bool {
        !self.statics.is_empty()
    }

    /// Buckets that the peer counts as attached, as far as is known here.
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

    /// From a bucket that is not there to the next that is, or that a move brings; or to the end of all addresses, beyond
    /// which nothing may be asked for.
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
