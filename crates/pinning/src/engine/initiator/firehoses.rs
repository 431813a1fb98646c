//! The firehose table of a peer: which of its buckets are registered for me (Table 1), how many
//! more may be, and what was asked for.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::{
    agree::agree,
    choice::{Calm, Class, Pulled, Reuse},
    pattern::Pattern,
};
use crate::{
    Refusal, Run, Use,
    table::{Editor, Extent},
    wire::{Grant, Need},
};

/// Revocations of one peer that operations of mine may stand in the way of at once. Its honest
/// ones are as many as the buffers it takes back at once.
const MAX_REVOKING: usize = 1 << 12;

/// Misses for which it is believed that a peer has no more room.
const FULL_FOR: u64 = 1 << 10;

/// Extents that came by and are remembered.
const MAX_PASSING: usize = 64;

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

/// How `auto` chose a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    /// Of which operations.
    pub(super) class: Class,
    /// Whether something was given up for it.
    pub(super) evicts: bool,
    /// Whether what it brings is given up first.
    pub(super) passes: bool,
    /// When it began, if it is timed.
    pub(super) begun: Option<u64>,
}

/// A move under way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) needs: Vec<Need>,
    /// Pieces, and the buckets each of them waits for.
    pub(super) waiters: Vec<(u64, Run)>,
    /// Firehoses set aside for the answer.
    reserved: u64,
    /// The piece whose data is piggybacked.
    pub(super) piggybacked: Option<u64>,
    /// Firehoses asked for beyond those owned.
    pub(super) borrow: u64,
    /// Kept in the table, or for one operation.
    pub(super) cached: bool,
    /// How it was chosen, by `auto`.
    pub(super) chosen: Option<Chosen>,
    pub(super) grants: Vec<Grant>,
    pub(super) refused: Vec<(Run, Refusal)>,
}

/// What nobody finds any more, though operations of mine may still use it.
#[derive(Clone, Copy, Debug)]
struct Closed {
    run: Run,
    /// Whether it is made of firehoses, or was there from the start.
    owned: bool,
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
    /// What was pulled, by `auto`.
    pub(super) pulled: Pulled,
    /// How much of what was attached is used again, for `auto`.
    pub(super) reuse: Reuse,
    /// Whether the peer has time for what it is asked, for `auto`.
    pub(super) calm: Calm,
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
            pulled: Pulled::default(),
            reuse: Reuse::default(),
            calm: Calm::default(),
            full_at: u64::MAX,
            misses_since: 0,
        }
    }

    pub(super) fn shared(&self) -> &std::sync::Arc<crate::table::Table> {
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

    /// Firehoses borrowed.
    pub(super) fn borrowed(&self) -> u64 {
        self.credit - self.share
    }

    pub(super) fn lend(&mut self, count: u64) {
        self.credit = self.credit.saturating_add(count);
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

    /// Sets firehoses aside for the gaps, widened as the pattern of misses suggests; unused ones
    /// are taken off their buckets as far as needed and left in `owed`. `None` if too many are
    /// in use.
    pub(super) fn set_aside(
        &mut self,
        gaps: &[Run],
        amortised: u64,
        max_extent: u64,
    ) -> Option<Vec<Need>> {
        if gaps.is_empty() {
            return Some(Vec::new());
        }
        let least: u64 = gaps.iter().map(|gap| gap.count).sum();
        if !self.free_up(least) {
            return None;
        }
        let mut needs: Vec<Need> = (gaps.iter())
            .map(|run| Need {
                run: *run,
                preferred: *run,
            })
            .collect();
        let mut total = least;
        if let Some(need) = needs.last_mut() {
            let most = (self.credit / 4).min(max_extent);
            let width = self.pattern.width(need.run, amortised.min(most));
            if width > need.run.count {
                let preferred = self.gap(need.run.first, need.run.first + width);
                let more = preferred.count.max(need.run.count) - need.run.count;
                if self.free_up(least + more) {
                    need.preferred.count += more;
                    total += more;
                }
            }
        }
        self.used += total;
        Some(needs)
    }

    /// Whether some must be taken off their buckets for so many more.
    pub(super) fn is_short(&self, count: u64) -> bool {
        self.used + count > self.most()
    }

    /// So many more as need none taken off their buckets.
    pub(super) fn unattached(&self) -> u64 {
        self.most().saturating_sub(self.used)
    }

    /// Most firehoses that may be attached: those owned and borrowed, but no more than the peer had
    /// room for.
    fn most(&self) -> u64 {
        self.credit.min(self.full_at)
    }

    /// The peer had no room for so many more than are attached now.
    pub(super) fn note_full(&mut self, count: u64) {
        self.full_at = (self.used + count).saturating_sub(1).max(1);
        self.misses_since = 0;
    }

    /// A miss was seen: after some, the peer may have room again.
    pub(super) fn note_miss(&mut self) {
        self.misses_since += 1;
        if self.misses_since > FULL_FOR {
            self.full_at = u64::MAX;
        }
    }

    /// Looks at what is given up next: whether nobody has used it for as long as it took to look at
    /// all others.
    pub(super) fn is_next_unused(&mut self) -> bool {
        self.editor.look_at_first()
    }

    /// How many buckets from one that is missing on are missing, at most so many.
    pub(super) fn missing(&self, first: u64, most: u64) -> u64 {
        self.gap(first, first.saturating_add(most)).count
    }

    /// Buckets missed in sequence up to a miss, with it.
    pub(super) fn streak(&self, need: Run) -> u64 {
        self.pattern.streak(need)
    }

    /// A miss was seen, for which so many buckets from its first on are attached or copied.
    pub(super) fn follow(&mut self, need: Run, width: u64) {
        self.pattern.follow(need, width);
    }

    /// Most buckets of one extent beside what else is attached.
    pub(super) fn widest(&self, max_extent: u64) -> u64 {
        (self.credit / 4).min(max_extent).max(1)
    }

    /// Sets firehoses aside for the gaps, `width` buckets from the first of the last gap on;
    /// `None` if too many are in use.
    pub(super) fn set_aside_wide(&mut self, gaps: &[Run], width: u64) -> Option<Vec<Need>> {
        let least: u64 = gaps.iter().map(|gap| gap.count).sum();
        if !self.free_up(least) {
            return None;
        }
        let mut needs: Vec<Need> = (gaps.iter())
            .map(|run| Need {
                run: *run,
                preferred: *run,
            })
            .collect();
        let mut total = least;
        if let Some(need) = needs.last_mut()
            && width > need.run.count
        {
            let preferred = self.gap(need.run.first, need.run.first.saturating_add(width));
            let more = preferred.count.max(need.run.count) - need.run.count;
            if self.free_up(least + more) {
                need.preferred.count += more;
                total += more;
            }
        }
        self.used += total;
        Some(needs)
    }

    /// Of the buckets that the peer may have registered: those that firehoses leave, in equal parts.
    pub(super) fn kept(&self, total: u64, ranks: u32) -> u64 {
        total.saturating_sub(self.used) / u64::from(ranks - 1).max(1)
    }

    /// What landed is the next to be given up.
    pub(super) fn let_pass(&mut self, grant: &Grant) {
        if self.passing.len() == MAX_PASSING {
            self.passing.pop_front();
        }
        self.passing.push_back(grant.run.first);
    }

    /// An extent counts as not hit yet.
    pub(super) fn forget_hit(&mut self, bucket: u64) {
        if let Some(slot) = self.editor.get(bucket) {
            self.editor.take_hit(slot);
        }
    }

    /// Takes the oldest of those off that came by, if there is one that nobody uses.
    fn take_passing(&mut self) -> Option<Extent> {
        for _ in 0..self.passing.len() {
            let first = self.passing.pop_front()?;
            let Some(slot) = self.editor.get(first) else {
                continue;
            };
            // Another may be there by now, or this one be taken back by its owner.
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

    /// Makes room for so many firehoses by taking unused ones off.
    pub(super) fn free_up(&mut self, count: u64) -> bool {
        while self.used + count > self.most() {
            if let Some(extent) = self.take_passing() {
                self.taken_off(extent);
                continue;
            }
            let Some(extent) = self.editor.take_victim() else {
                return false;
            };
            self.taken_off(extent);
        }
        true
    }

    fn taken_off(&mut self, extent: Extent) {
        let run = Run {
            first: extent.base,
            count: extent.end - extent.base,
        };
        self.used -= run.count;
        self.owed.push(run);
    }

    /// Notes a move.
    pub(super) fn ask(&mut self, id: u64, asked: Asked) {
        if asked.cached {
            for need in &asked.needs {
                let Run { first, .. } = need.preferred;
                self.moving.insert(first, (need.preferred.end(), id));
            }
        }
        self.asked.insert(id, asked);
    }

    /// A grant of a move that is kept: it is put into the table.
    pub(super) fn land(&mut self, grant: &Grant) -> bool {
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
    pub(super) fn settle(&mut self, grant: &Grant) {
        if let Some(slot) = self.editor.get(grant.run.first) {
            self.editor.queue(slot);
        }
    }

    /// A move was answered to the end, with so many firehoses attached.
    pub(super) fn answered(&mut self, id: u64, attached: u64) -> Option<Asked> {
        let asked = self.asked.remove(&id)?;
        if asked.cached {
            for need in &asked.needs {
                self.moving.remove(&need.preferred.first);
            }
            self.used -= asked.reserved.saturating_sub(attached);
        }
        Some(asked)
    }

    /// Firehoses that a hit gave back without the lock.
    pub(super) fn released(&mut self, slot: u32) {
        self.editor.requeue(slot);
    }

    /// As far as borrowed firehoses are asked back, unused ones are taken off.
    pub(super) fn recall(&mut self, count: u64) {
        self.credit -= count.min(self.borrowed());
        self.shrink();
    }

    /// Takes unused firehoses off while there are more than owned.
    pub(super) fn shrink(&mut self) {
        while self.used > self.credit {
            match self.editor.take_victim() {
                Some(extent) => self.taken_off(extent),
                None => return,
            }
        }
    }

    /// A hit found one side only, and nobody was told when it gave that back: whoever waits for
    /// the bucket is made up for it.
    pub(super) fn missed(&mut self, bucket: u64) {
        if let Some(slot) = self.editor.get(bucket)
            && self.editor.references(slot) == 0
        {
            self.editor.requeue(slot);
        }
    }

    /// The peer takes memory back: nobody finds its firehoses any more. `false` if there are
    /// too many such wishes.
    pub(super) fn begin_revocation(&mut self, id: u64, run: Run) -> bool {
        if self.revoking.len() == MAX_REVOKING {
            return false;
        }
        for extent in self.editor.extents_in(run) {
            self.closed(extent);
        }
        self.revoking.push((id, run));
        self.full_at = u64::MAX;
        self.pulled = Pulled::default();
        true
    }

    /// Whether the peer takes memory back that is not given back yet.
    pub(super) fn is_revoked(&self) -> bool {
        !self.revoking.is_empty()
    }

    fn closed(&mut self, run: Run) {
        if self.closed.contains_key(&run.first) {
            return;
        }
        if let Some(slot) = self.editor.get(run.first) {
            self.editor.close(slot);
            let owned = !self.statics.contains(&run.first);
            self.closed.insert(run.first, Closed { run, owned });
        }
    }

    /// Takes out what was closed and is used no more; firehoses among it are owed.
    fn sweep(&mut self) {
        let Self {
            editor,
            closed,
            statics,
            owed,
            used,
            reuse,
            full_at,
            ..
        } = self;
        closed.retain(|_, it| {
            let Some(slot) = editor.get(it.run.first) else {
                return false;
            };
            let was_hit = editor.take_hit(slot);
            if editor.remove(slot).is_none() {
                return true;
            }
            if it.owned {
                *used -= it.run.count;
                owed.push(it.run);
                reuse.gone(was_hit);
                if *used == 0 {
                    reuse.note_room();
                    *full_at = u64::MAX;
                }
            } else {
                statics.remove(&it.run.first);
            }
            false
        });
    }

    /// Revocations that nothing of mine stands in the way of any more; what is given back for
    /// them is owed.
    /// `loose`: what operations of mine use that is in no table.
    pub(super) fn take_revoked(&mut self, loose: &[Run]) -> Vec<u64> {
        if self.closed.is_empty() && self.revoking.is_empty() {
            return Vec::new();
        }
        self.sweep();
        let Self {
            closed,
            revoking,
            moving,
            ..
        } = self;
        let mut over = Vec::new();
        revoking.retain(|(id, run)| {
            let comes = (moving.range(..run.end()).next_back())
                .is_some_and(|(_, (end, _))| *end > run.first);
            let used = (closed.range(..run.end()).next_back())
                .is_some_and(|(_, it)| it.run.end() > run.first);
            let stays = comes || used || loose.iter().any(|it| it.overlaps(*run));
            if !stays {
                over.push(*id);
            }
            stays
        });
        over
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
        asked.sum::<usize>() + waiting + self.moving.len()
    }

    fn moving_at(&self, bucket: u64) -> Option<(u64, u64)> {
        let (_, found) = self.moving.range(..=bucket).next_back()?;
        (bucket < found.0).then_some(*found)
    }

    /// From a bucket that is not there to the next that is, or that a move brings.
    fn gap(&self, first: u64, end: u64) -> Run {
        let end = (self.moving.range(first..).next()).map_or(end, |(next, _)| end.min(*next));
        let mut count = 1;
        while first + count < end && self.editor.get(first + count).is_none() {
            count += 1;
        }
        Run { first, count }
    }
}

impl Asked {
    /// Firehoses set aside, if those it brings are kept.
    fn reserved(&self) -> u64 {
        if self.cached { self.reserved } else { 0 }
    }

    pub(super) fn new(needs: Vec<Need>, cached: bool, waiters: Vec<(u64, Run)>) -> Self {
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
