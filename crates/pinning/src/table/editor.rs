//! The owner's side of a table: adding, giving up, and the queue of what may go.

use std::sync::Arc;

use super::queue::Queue;
use super::slab::{MAX_RECORDS, Record};
use super::sync::Ordering;
use super::word::{self, AWAITED, HIT, LIVE, MAX_REFERENCES};
use super::{BUCKETS, Error, Extent, Table};
use crate::Run;

/// The one through which a [`Table`] is changed.
///
/// A *slot* is the number of a record, as [`Editor::insert`] and [`Table::acquire`] gave
/// it. Methods that ask for one panic where there is no such record.
#[derive(Debug)]
pub struct Editor {
    /// The part that threads which hit share.
    table: Arc<Table>,
    /// Extents that may be given up, by the record of their first bucket, and free records.
    queue: Queue,
    /// How many buckets have a record.
    len: u32,
}

/// How things stand with what may be given up.
enum Standing {
    /// A record of it is held; its last release will say so.
    Used,
    /// It was hit since it was looked at last.
    Hit,
    /// Neither.
    Unused,
}

impl Default for Editor {
    fn default() -> Self {
        Self::new()
    }
}

impl Editor {
    /// An empty table.
    pub fn new() -> Self {
        Editor {
            table: Arc::new(Table::new()),
            queue: Queue::new(),
            len: 0,
        }
    }

    /// The shared part, to be cloned for those who hit.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// How many buckets have a record.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no bucket has one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the table takes, in bytes, the shared part included.
    pub fn memory(&self) -> usize {
        let table = size_of::<Table>() + self.table.index.memory() + self.table.slab.memory();
        size_of::<Self>() + self.queue.memory() + table
    }

    /// Adds a bucket of `extent`, held `references` times from the start. It is not
    /// queued. The first bucket of an extent is added first.
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

    /// The record of a bucket, of one that is closed too.
    pub fn get(&self, bucket: u64) -> Option<u32> {
        self.table.index.find(bucket, |slot| {
            let record = self.table.slab.record(slot)?;
            let word = record.word.load(Ordering::Relaxed);
            (word::bucket(word) == bucket).then_some(slot)
        })
    }

    /// The bucket of a record.
    pub fn bucket(&self, slot: u32) -> u64 {
        word::bucket(self.word(slot))
    }

    /// The extent of a record.
    pub fn extent(&self, slot: u32) -> Extent {
        self.record(slot).extent()
    }

    /// The extents that share a bucket with a run, in order; found in whichever of two ways is
    /// shorter.
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

    /// How many hold a record at this moment.
    pub fn references(&self, slot: u32) -> u32 {
        word::references(self.word(slot))
    }

    /// All buckets with a record, and it.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let slots = 0..self.queue.records();
        // Only the word of a free record is zero: what is not live is awaited.
        let in_use = slots.filter(|slot| self.word(*slot) != 0);
        in_use.map(|slot| (self.bucket(slot), slot))
    }

    /// Gives a reference back as [`Table::release`] does, and queues what waited for
    /// that. Says whether nobody holds the record now.
    pub fn drop_reference(&mut self, slot: u32) -> bool {
        if self.table.release(slot) {
            self.requeue(slot);
        }
        self.references(slot) == 0
    }

    /// Gives up the extent that `slot` is of, unless one of its records is held: nobody finds
    /// it any more, its records are free, and its extent is handed back.
    ///
    /// One record after the other is shut against hits; where one turns out to be held
    /// the others open again, and hits that came in between have missed.
    pub fn remove(&mut self, slot: u32) -> Option<Extent> {
        let was_live = self.word(slot) & LIVE != 0;
        let extent = self.extent(slot);
        let buckets = extent.base..extent.end;
        for bucket in buckets.clone() {
            let is_held = |slot| !self.record(slot).shut();
            if !self.part(bucket, &extent).is_some_and(is_held) {
                continue;
            }
            let before = (buckets.start..bucket).filter(|_| was_live);
            for slot in before.filter_map(|bucket| self.part(bucket, &extent)) {
                self.record(slot).reopen();
            }
            return None;
        }

        self.queue.take_out(self.lead(slot));
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

    /// Lets nobody take the extent of `slot` any more, though some may hold it still, and
    /// says whether nobody does. Where somebody does, the last release of each record
    /// says so; [`Editor::remove`] then succeeds as soon as no record is held.
    pub fn close(&mut self, slot: u32) -> bool {
        self.queue.take_out(self.lead(slot));
        let mut held = 0;
        for record in self.parts(slot) {
            record.word.fetch_or(AWAITED, Ordering::Relaxed);
            let old = record.word.fetch_and(!LIVE, Ordering::Acquire);
            held += u32::from(word::references(old) > 0);
        }
        held == 0
    }

    /// How many extents are queued.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether the extent of `slot` is queued.
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

    /// Whether the extent of `slot` was hit since this was asked last, or it was looked at as a victim.
    pub fn take_hit(&mut self, slot: u32) -> bool {
        let taken = |record: &Record| record.word.fetch_and(!HIT, Ordering::Relaxed) & HIT != 0;
        // All of them: each is to be taken.
        self.parts(slot).filter(|record| taken(record)).count() > 0
    }

    /// What is due when [`Table::release`] has said so: the extent goes back to the queue
    /// that [`Editor::next_victim`] took it from. Does nothing where that is no longer so.
    pub fn requeue(&mut self, slot: u32) {
        let word = self.record(slot).word.load(Ordering::Relaxed);
        if word & AWAITED != 0 && word & LIVE != 0 {
            (self.record(slot).word).fetch_and(!AWAITED, Ordering::Relaxed);
            self.queue(slot);
        }
    }

    /// The extent that was queued longest and neither is in use nor was hit since it was
    /// last looked at; it stays queued. What is in use leaves the queue until it is
    /// released, what was hit goes to its end.
    pub fn next_victim(&mut self) -> Option<u32> {
        // When all had their second chance, hits that still come do not count.
        let mut chances = self.queue.len();
        while let Some(slot) = self.queue.first() {
            match self.look_at(slot) {
                Standing::Used => self.queue.take_out(slot),
                Standing::Hit if chances > 0 => {
                    chances -= 1;
                    self.queue.take_out(slot);
                    self.queue.push(slot);
                }
                Standing::Hit | Standing::Unused => return Some(slot),
            }
        }
        None
    }

    /// Looks at the extent that was queued longest: whether it neither is in use nor was hit since it
    /// was last looked at. What was hit goes to the end of the queue, as for
    /// [`next_victim`](Self::next_victim).
    pub fn look_at_first(&mut self) -> bool {
        let Some(slot) = self.queue.first() else {
            return false;
        };
        match self.look_at(slot) {
            Standing::Used => self.queue.take_out(slot),
            Standing::Hit => {
                self.queue.take_out(slot);
                self.queue.push(slot);
            }
            Standing::Unused => return true,
        }
        false
    }

    /// Puts the extent of `slot` at the end of the queue, if it is queued: it is not to be given up yet.
    pub fn postpone(&mut self, slot: u32) {
        let lead = self.lead(slot);
        if self.queue.holds(lead) {
            self.queue.take_out(lead);
            self.queue.push(lead);
        }
    }

    /// Gives up the next victim.
    pub fn take_victim(&mut self) -> Option<Extent> {
        loop {
            let slot = self.next_victim()?;
            // Hit between the two: then it is looked at again.
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
        let next = self.queue.records();
        if next == MAX_RECORDS {
            return Err(Error::Full);
        }
        self.queue.grow(self.table.slab.reach(next));
        self.queue.pop_free().ok_or(Error::Full)
    }

    /// The record under which the extent of `slot` is queued: that of its first bucket.
    fn lead(&self, slot: u32) -> u32 {
        let base = self.extent(slot).base;
        if self.bucket(slot) == base {
            return slot;
        }
        self.get(base).expect("the first bucket was added first")
    }

    fn look_at(&self, slot: u32) -> Standing {
        let mut was_hit = false;
        for record in self.parts(slot) {
            let mut old = record.word.load(Ordering::Relaxed);
            loop {
                let is_used = word::references(old) > 0;
                let new = if is_used { old | AWAITED } else { old & !HIT };
                if new != old {
                    let relaxed = Ordering::Relaxed;
                    let swapped = (record.word).compare_exchange_weak(old, new, relaxed, relaxed);
                    if let Err(now) = swapped {
                        old = now;
                        continue;
                    }
                }
                if is_used {
                    return Standing::Used;
                }
                was_hit |= old & HIT != 0;
                break;
            }
        }
        if was_hit {
            Standing::Hit
        } else {
            Standing::Unused
        }
    }

    /// The records of the extent that `slot` is of.
    fn parts(&self, slot: u32) -> impl Iterator<Item = &Record> {
        let extent = self.extent(slot);
        let slots = (extent.base..extent.end).filter_map(move |bucket| self.part(bucket, &extent));
        slots.map(|slot| self.record(slot))
    }

    /// The record of a bucket, if it is of this extent: not all of an extent need be there.
    fn part(&self, bucket: u64, extent: &Extent) -> Option<u32> {
        self.get(bucket)
            .filter(|slot| self.extent(*slot) == *extent)
    }

    fn word(&self, slot: u32) -> u64 {
        self.record(slot).word.load(Ordering::Relaxed)
    }

    fn record(&self, slot: u32) -> &Record {
        (self.table.slab.record(slot)).expect("a slot is of a record")
    }
}
