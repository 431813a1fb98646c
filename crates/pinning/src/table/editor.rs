//! The owner's side of a table: adding, evicting, and the queue of victims.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::queue::VictimQueue;
use super::slab::{BucketRecord, SLOTS};
use super::word::{self, AWAITED, LIVE, MAX_REFERENCES};
use super::{BUCKETS, BucketTable, Error, Extent};
use crate::Run;
use crate::announcements::Announcements;
use crate::sync::Ordering;

/// The only means to change a [`BucketTable`].
///
/// A *slot* is the number of a record, as [`Editor::insert`] and [`BucketTable::acquire`] returned
/// it. Methods that take a slot panic where there is no such record.
#[derive(Debug)]
pub struct Editor {
    /// The part that the hitting threads share.
    table: Arc<BucketTable>,
    /// The extents that may be evicted, by the slot of their first bucket, and the free records.
    queue: VictimQueue,
    /// The number of buckets with a record.
    len: u32,
}

/// The recent use of an extent in the queue.
enum RecentUse {
    /// References on a record of the extent are counted; the last release will say so.
    Used,
    /// The extent was hit since the last look.
    Hit,
    /// The extent was not hit, and no reference is counted. An operation may have announced it.
    Unused,
}

impl Default for Editor {
    fn default() -> Self {
        Self::new()
    }
}

impl Editor {
    /// Makes an empty table.
    pub fn new() -> Self {
        Self::among(&Arc::new(Announcements::new()))
    }

    /// Makes an empty table, whose records hits announce there.
    pub(crate) fn among(announcements: &Arc<Announcements>) -> Self {
        Editor {
            table: Arc::new(BucketTable::new(Arc::clone(announcements))),
            queue: VictimQueue::new(),
            len: 0,
        }
    }

    /// The shared part, for the threads that hit.
    pub fn table(&self) -> &Arc<BucketTable> {
        &self.table
    }

    /// The number of buckets with a record.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if no bucket has a record.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory of the table in bytes, the shared part included.
    pub fn memory(&self) -> usize {
        let records = self.table.slab.memory(self.queue.slots().end);
        let table = size_of::<BucketTable>() + self.table.index.memory() + records;
        size_of::<Self>() + self.queue.memory() + table
    }

    /// Adds a bucket of `extent`, with `references` references from the start. The bucket is not
    /// queued. The first bucket of an extent must be added first.
    ///
    /// # Errors
    ///
    /// If the numbers do not fit, the bucket is there, or the table is full.
    pub fn insert(&mut self, bucket: u64, extent: &Extent, references: u32) -> Result<u32, Error> {
        self.admit(bucket, extent, references)?;
        let slot = self.free_slot()?;
        self.len += 1;
        self.table.index.fit(self.len, &self.table.slab);
        self.record(slot).publish(bucket, extent, references);
        self.table.index.insert(bucket, slot);
        Ok(slot)
    }

    /// The slot of a bucket, even of a closed one.
    pub fn get(&self, bucket: u64) -> Option<u32> {
        self.table.index.find(bucket, |slot| {
            let record = self.table.slab.record(slot)?;
            let word = record.word.load(Ordering::Relaxed);
            (word::bucket(word) == bucket).then_some(slot)
        })
    }

    /// The bucket of a slot.
    pub fn bucket(&self, slot: u32) -> u64 {
        word::bucket(self.word(slot))
    }

    /// The extent of a slot.
    pub fn extent(&self, slot: u32) -> Extent {
        self.record(slot).extent()
    }

    /// The extents that share a bucket with a run, in order. The search walks the run or the table,
    /// whichever is shorter.
    pub fn extents_in(&self, run: Run) -> Vec<Run> {
        let whole = |slot| {
            let extent = self.extent(slot);
            Run {
                first: extent.base,
                count: extent.end - extent.base,
            }
        };
        let mut found: Vec<Run> = if run.count > u64::from(self.len) {
            (self.iter())
                .filter(|(bucket, _)| run.first <= *bucket && *bucket < run.end())
                .map(|(_, slot)| whole(slot))
                .collect()
        } else {
            (run.buckets())
                .filter_map(|bucket| self.get(bucket).map(whole))
                .collect()
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The number of references on a record at this moment, those of hits included.
    pub fn references(&self, slot: u32) -> u32 {
        word::references(self.word(slot)) + self.table.announced(slot)
    }

    /// Visits each extent of which somebody holds a record, once.
    pub(crate) fn for_each_held(&self, mut visit: impl FnMut(Extent)) {
        let announcements = &self.table.announcements;
        let announced: FxHashSet<u32> = announcements.of_table(self.table.first_name).collect();
        let mut visited = FxHashSet::default();
        for slot in self.queue.slots() {
            let word = self.word(slot);
            let is_counted = word::references(word) > 0;
            if word == 0 || !(is_counted || announced.contains(&slot)) {
                continue;
            }
            let extent = self.extent(slot);
            let is_wide = extent.end - extent.base > 1;
            if !is_wide || visited.insert(extent.base) {
                visit(extent);
            }
        }
    }

    /// All buckets with a record, and their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let slots = self.queue.slots();
        // Only the word of a free record is zero: a record that is not live is awaited.
        let in_use = slots.filter(|slot| self.word(*slot) != 0);
        in_use.map(|slot| (self.bucket(slot), slot))
    }

    /// Gives a reference back as [`BucketTable::release`] does, and queues an extent that waited
    /// for that. Returns true if nobody holds the record now.
    pub fn drop_reference(&mut self, slot: u32) -> bool {
        if self.table.release(slot) {
            self.requeue(slot);
        }
        self.references(slot) == 0
    }

    /// Evicts the extent of `slot`, unless one of its records is held. Then nobody finds the extent
    /// any more, and its records are free. Returns the extent.
    ///
    /// It shuts one record after the other against hits, and then looks through the announcements.
    /// Where a record turns out to be held, the others open again, and hits that came in between
    /// have missed. A queued extent that a hit holds leaves the queue until the end of the hit.
    pub fn remove(&mut self, slot: u32) -> Option<Extent> {
        let was_live = self.word(slot) & LIVE != 0;
        let extent = self.extent(slot);
        let lead = self.lead(slot);
        let is_queued = self.queue.holds(lead);
        let buckets = extent.base..extent.end;
        let is_counted = |bucket: &u64| {
            let is_held = |slot| !self.record(slot).shut(is_queued);
            self.part(*bucket, &extent).is_some_and(is_held)
        };
        let counted = buckets.clone().find(is_counted);
        let is_held = counted.is_some() || self.is_announced(&extent);
        if is_held {
            let shut = buckets.start..counted.unwrap_or(buckets.end);
            for slot in shut.filter_map(|bucket| self.part(bucket, &extent)) {
                if was_live {
                    self.record(slot).reopen();
                }
            }
            if counted.is_none() && is_queued {
                self.queue.take_out(lead);
            }
            return None;
        }

        self.queue.take_out(lead);
        for bucket in buckets {
            if let Some(slot) = self.part(bucket, &extent) {
                self.table.index.remove(bucket, slot, &self.table.slab);
                self.record(slot).word.store(0, Ordering::Relaxed);
                self.queue.push_free(slot);
                self.len -= 1;
            }
        }
        Some(extent)
    }

    /// Lets nobody hold the extent of `slot` any more. If [`Editor::remove`] fails after that, the
    /// end of each hit and the last release of each record return true. It succeeds as soon as no
    /// record is held.
    pub fn close(&mut self, slot: u32) {
        self.queue.take_out(self.lead(slot));
        for record in self.parts(slot) {
            record.word.fetch_or(AWAITED, Ordering::Relaxed);
            record.word.fetch_and(!LIVE, Ordering::Relaxed);
        }
    }

    /// Returns true if a hit holds a record of an extent, all of whose records are shut.
    fn is_announced(&self, extent: &Extent) -> bool {
        let announcements = &self.table.announcements;
        announcements.settle();
        let mut announced = announcements.of_table(self.table.first_name);
        announced.any(|slot| self.word(slot) != 0 && self.extent(slot) == *extent)
    }

    /// The number of extents in the queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if the extent of `slot` is queued.
    pub fn is_queued(&self, slot: u32) -> bool {
        self.queue.holds(self.lead(slot))
    }

    /// Puts the extent of `slot` at the end of the queue, unless it is queued.
    pub fn queue(&mut self, slot: u32) {
        let lead = self.lead(slot);
        if !self.queue.holds(lead) {
            self.queue.push(lead);
        }
    }

    /// Clears the marks of hits. Returns true if the extent of `slot` was hit since the last call,
    /// or since the last look for a victim.
    pub fn take_hit(&mut self, slot: u32) -> bool {
        // The count visits all records, because each mark is to be cleared.
        (self.parts(slot).filter(|record| record.take_mark())).count() > 0
    }

    /// Returns the extent to the queue that [`Editor::next_victim`] took it from, after
    /// [`BucketTable::release`] returned true. It does nothing where nobody awaits the extent any
    /// more.
    pub fn requeue(&mut self, slot: u32) {
        let word = self.record(slot).word.load(Ordering::Relaxed);
        if word & AWAITED != 0 && word & LIVE != 0 {
            (self.record(slot).word).fetch_and(!AWAITED, Ordering::Relaxed);
            self.queue(slot);
        }
    }

    /// Returns the extent that was queued longest, is not in use and was not hit since the last
    /// look. It stays queued. An extent in use leaves the queue until its release, and an extent
    /// that was hit goes to the end.
    pub fn next_victim(&mut self) -> Option<u32> {
        // After one second chance for each, hits that still come do not count.
        let mut chances = self.queue.len();
        while let Some(slot) = self.queue.first() {
            match self.take_recent_use(slot) {
                RecentUse::Used => self.queue.take_out(slot),
                RecentUse::Hit if chances > 0 => {
                    chances -= 1;
                    self.queue.take_out(slot);
                    self.queue.push(slot);
                }
                RecentUse::Hit | RecentUse::Unused => return Some(slot),
            }
        }
        None
    }

    /// Looks at the extent that was queued longest. Returns true if it is not in use and was not
    /// hit since the last look. An extent that was hit goes to the end of the queue, as in
    /// [`next_victim`](Self::next_victim).
    pub fn probe_first(&mut self) -> bool {
        let Some(slot) = self.queue.first() else {
            return false;
        };
        match self.take_recent_use(slot) {
            RecentUse::Used => self.queue.take_out(slot),
            RecentUse::Hit => {
                self.queue.take_out(slot);
                self.queue.push(slot);
            }
            RecentUse::Unused => return true,
        }
        false
    }

    /// Moves the extent of `slot` to the end of the queue, if it is queued: its eviction is put
    /// off.
    pub fn postpone(&mut self, slot: u32) {
        let lead = self.lead(slot);
        if self.queue.holds(lead) {
            self.queue.take_out(lead);
            self.queue.push(lead);
        }
    }

    /// Evicts the next victim.
    pub fn take_victim(&mut self) -> Option<Extent> {
        loop {
            let slot = self.next_victim()?;
            // A hit between the two steps makes the loop look again.
            if let Some(extent) = self.remove(slot) {
                return Some(extent);
            }
        }
    }

    fn admit(&self, bucket: u64, extent: &Extent, references: u32) -> Result<(), Error> {
        let Extent { base, end, .. } = *extent;
        let highest = bucket.max(end.saturating_sub(1));
        if highest >= BUCKETS {
            return Err(Error::Beyond { bucket: highest });
        }
        if !(base..end).contains(&bucket) {
            return Err(Error::Outside { bucket, base, end });
        }
        if let Some(slot) = self.get(bucket) {
            return Err(Error::Present { bucket, slot });
        }
        if bucket != base && self.part(base, extent).is_none() {
            return Err(Error::NoFirst { bucket, base });
        }
        if references > MAX_REFERENCES {
            return Err(Error::TooManyReferences { bucket });
        }
        Ok(())
    }

    fn free_slot(&mut self) -> Result<u32, Error> {
        if let Some(slot) = self.queue.pop_free() {
            return Ok(slot);
        }
        let next = self.queue.slots().end;
        if next == SLOTS {
            return Err(Error::Full);
        }
        // An eighth more at a time, because every record has links in the queue.
        let more = next.saturating_add((next / 8).max(8));
        self.queue.grow(self.table.slab.reach(next).min(more));
        self.queue.pop_free().ok_or(Error::Full)
    }

    /// The slot under which the extent of `slot` is queued: the slot of its first bucket.
    fn lead(&self, slot: u32) -> u32 {
        let base = self.extent(slot).base;
        if self.bucket(slot) == base {
            return slot;
        }
        self.get(base).expect("the first bucket was added first")
    }

    /// Returns the most recent use of an extent. Clears its marks of hits, or marks a bucket in use as
    /// awaited.
    fn take_recent_use(&self, slot: u32) -> RecentUse {
        let mut was_hit = false;
        for record in self.parts(slot) {
            let mut old = record.word.load(Ordering::Relaxed);
            while word::references(old) > 0 {
                let (new, relaxed) = (old | AWAITED, Ordering::Relaxed);
                match (record.word).compare_exchange_weak(old, new, relaxed, relaxed) {
                    Ok(_) => return RecentUse::Used,
                    Err(now) => old = now,
                }
            }
            was_hit |= record.take_mark();
        }
        if was_hit {
            RecentUse::Hit
        } else {
            RecentUse::Unused
        }
    }

    /// The records of the extent of `slot`.
    fn parts(&self, slot: u32) -> impl Iterator<Item = &BucketRecord> {
        let extent = self.extent(slot);
        let slots = (extent.base..extent.end).filter_map(move |bucket| self.part(bucket, &extent));
        slots.map(|slot| self.record(slot))
    }

    /// The slot of a bucket, if it belongs to this extent: an extent may have gaps.
    fn part(&self, bucket: u64, extent: &Extent) -> Option<u32> {
        self.get(bucket)
            .filter(|slot| self.extent(*slot) == *extent)
    }

    fn word(&self, slot: u32) -> u64 {
        self.record(slot).word.load(Ordering::Relaxed)
    }

    fn record(&self, slot: u32) -> &BucketRecord {
        (self.table.slab.record(slot)).expect("a slot is of a record")
    }
}
