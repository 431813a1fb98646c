//! The hot table: the registered buckets, and the references of their users.
//!
//! One structure serves as the local bucket table and as the firehose table of a peer (Firehose
//! §3.2, BucketTable 1). A *hit* announces the record that it uses, in memory of its own thread. It
//! reads one cache line of the index and half a line of the record, and writes neither. The one
//! [`Editor`] does all else: it adds, evicts and queues. The layer above keeps it behind a lock of
//! its own. Operations that wait for the engine count a reference in the record instead
//! ([`BucketTable::acquire`]).
//!
//! ```
//! use hydrant_pinning::table::{Editor, Extent};
//!
//! let mut editor = Editor::new();
//! let table = editor.table().clone(); // for the threads that hit
//! let extent = Extent { key: 7, base: 16, end: 18, writable: true };
//! for bucket in 16..18 {
//!     editor.insert(bucket, &extent, 0)?;
//! }
//! editor.queue(editor.get(16).unwrap());
//!
//! let found = table.acquire(17).unwrap();
//! assert_eq!((found.key, found.base, found.end), (7, 16, 18));
//! assert_eq!(editor.take_victim(), None); // in use
//! if table.release(found.slot) {
//!     editor.requeue(found.slot); // somebody had looked for a victim meanwhile
//! }
//! assert_eq!(editor.take_victim(), Some(extent));
//! assert!(table.acquire(17).is_none());
//! # Ok::<(), hydrant_pinning::table::Error>(())
//! ```
//!
//! # The order of eviction
//!
//! An extent is queued, and evicted, as a whole. The queue is first in, first out. A hit takes
//! nothing off the queue, because that would need a lock. It leaves a mark in the record, and
//! [`Editor::next_victim`] makes up for it. An extent that was hit since the
//! last walk goes to the end once more. An extent in use leaves the queue until its last
//! [`BucketTable::release`], which then returns true. Every step of that walk is paid for by an
//! earlier hit or release, so a victim costs O(1), however many extents are in use.
//!
//! The pin-down cache (Tezuka §4) asks for the least recently used. Second chance is nearly that:
//! an extent used since the last walk outlives an unused one, but used extents keep the order of
//! the queue. Exactness would have every hit write a clock that all hits share, and this table
//! avoids that.
//!
//! # Neighbours
//!
//! Two records share a cache line, so that a bucket takes less than 64 bytes in all. They are the
//! records of buckets that were added one after the other. Hits write only to memory of their
//! thread, but for a mark that is missing. The table as a whole counts nothing.

mod editor;
mod error;
mod index;
mod queue;
mod slab;
mod word;

pub use editor::Editor;
pub use error::Error;
pub use word::MAX_REFERENCES;

use std::sync::Arc;

use crate::Use;
use crate::announcements::{Announcements, RecordName};
use crate::sync::Ordering;
use index::{HomeEntry, Index};
use slab::{BucketRecord, MAX_RECORDS, RecordSlab};

/// The number of buckets that there can be: every bucket's number is below it.
pub const BUCKETS: u64 = 1 << word::BUCKET_BITS;

/// One registration as a table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The key that names the extent.
    pub key: u64,
    /// Its first bucket.
    pub base: u64,
    /// The bucket behind its last bucket.
    pub end: u64,
    /// True if the NIC may write through the key.
    pub writable: bool,
}

/// A bucket that was hit: one reference on it, and its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the reference is given back by its slot"]
pub struct FoundBucket {
    /// The slot, for [`BucketTable::release`].
    pub slot: u32,
    /// The key of the extent.
    pub key: u64,
    /// The first bucket of the extent.
    pub base: u64,
    /// The bucket behind its last bucket.
    pub end: u64,
    /// True if the NIC may write through the key.
    pub writable: bool,
}

/// The part of a table that all threads share. An [`Editor`] makes and changes it.
// The alignment keeps it apart from the count of its `Arc`.
#[derive(Debug)]
#[repr(align(64))]
pub struct BucketTable {
    index: Index,
    slab: RecordSlab,
    /// The name of record 0: the table's number among those of its rank.
    first_name: RecordName,
    /// The announcements of the rank, where hits name records of this table.
    announcements: Arc<Announcements>,
}

impl BucketTable {
    fn new(announcements: Arc<Announcements>) -> Self {
        BucketTable {
            index: Index::new(),
            slab: RecordSlab::new(),
            first_name: RecordName::new(announcements.next_table(), 0),
            announcements,
        }
    }

    /// The announcements of the rank, where hits name records of this table.
    pub(crate) fn announcements(&self) -> &Arc<Announcements> {
        &self.announcements
    }

    /// Finds a bucket and takes a reference on it in one atomic step.
    ///
    /// Returns `None` where the bucket is absent or being evicted, or where all its references are
    /// in use. It also returns `None` now and then while the editor adds or evicts another bucket.
    /// A miss is final only when [`Editor::get`] misses too.
    #[inline]
    pub fn acquire(&self, bucket: u64) -> Option<FoundBucket> {
        self.index.find(bucket, |slot| {
            let record = self.slab.record(slot)?;
            record.take(bucket).then(|| record.found(slot))
        })
    }

    /// Finds the record that is most likely a bucket's. Only [`SeenRecord::confirm`] tells whether
    /// it is; if it fails, [`search`](Self::search) finds the right one.
    #[inline(always)] // on the path of every hit
    pub(crate) fn seek(&self, bucket: u64) -> Likely<'_> {
        let Some(probes) = self.index.probes(bucket) else {
            return Likely::Missing;
        };
        match probes.home() {
            HomeEntry::Record(slot) => match self.slab.record(slot) {
                Some(record) => Likely::Record(SeenRecord {
                    record,
                    name: self.first_name.of_slot(slot),
                }),
                None => Likely::Missing,
            },
            HomeEntry::Empty => Likely::Missing,
            HomeEntry::Other => Likely::Elsewhere,
        }
    }

    /// Finds a bucket's live record without holding it.
    #[inline(never)]
    pub(crate) fn search(&self, bucket: u64) -> Option<SeenRecord<'_>> {
        self.index.find(bucket, |slot| {
            self.seen(slot)
                .filter(|seen| seen.record.permits(bucket, Use::Read))
        })
    }

    #[inline(always)]
    fn seen(&self, slot: u32) -> Option<SeenRecord<'_>> {
        let name = self.first_name.of_slot(slot);
        self.slab
            .record(slot)
            .map(|record| SeenRecord { record, name })
    }

    /// The number of operations that announce the record.
    fn announced(&self, slot: u32) -> u32 {
        let announced = self.announcements.of_table(self.first_name);
        announced.filter(|it| *it == slot).count() as u32
    }

    /// Returns true if the editor waits for the end of an operation that announced the record, and
    /// has [cleared](crate::announcements::OwnPlace::clear) the announcement.
    #[inline]
    pub(crate) fn is_awaited(&self, slot: u32) -> bool {
        (self.slab.record(slot)).is_some_and(|record| record.is_awaited())
    }

    /// Returns the bucket behind the extent of a bucket, if it has one. It holds nothing.
    pub(crate) fn end_of(&self, bucket: u64) -> Option<u64> {
        self.index.find(bucket, |slot| {
            let record = self.slab.record(slot)?;
            let is_live = word::is_live(record.word.load(Ordering::Relaxed), bucket);
            // The record may be another extent's by now, but never of one that ends before the
            // bucket.
            is_live.then(|| record.found(slot).end.max(bucket + 1))
        })
    }

    /// Gives a reference back. Returns true if it was the last and the editor waits for it: then
    /// call [`Editor::requeue`].
    ///
    /// # Panics
    ///
    /// If nobody holds the record.
    #[inline]
    #[must_use = "the editor may wait for the last reference"]
    pub fn release(&self, slot: u32) -> bool {
        let record = self.slab.record(slot).expect("a slot is of a record");
        // Release ordering: every access under the reference comes before its return.
        let old = record.word.fetch_sub(1, Ordering::Release);
        if word::references(old) == 0 {
            not_held(record, slot);
        }
        word::references(old) == 1 && old & word::AWAITED != 0
    }
}

/// The first look for a bucket, at its home position.
pub(crate) enum Likely<'a> {
    /// A record that is most likely the bucket's.
    Record(SeenRecord<'a>),
    /// The bucket is not registered.
    Missing,
    /// Another bucket has the position, and only a [search](BucketTable::search) tells.
    Elsewhere,
}

/// A record that may be of the wanted bucket. Once it is announced and
/// [confirmed](Self::confirm), the operation holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenRecord<'a> {
    record: &'a BucketRecord,
    name: RecordName,
}

impl SeenRecord<'_> {
    /// The name for the announcement.
    #[inline(always)]
    pub(crate) fn name(self) -> RecordName {
        self.name
    }

    /// The slot, for [`BucketTable::release`].
    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.name.slot()
    }

    /// Looks at the announced record again. Returns true if the caller holds it: it is still of
    /// `bucket`, its extent reaches as far as the bucket `last`, and it permits that use.
    #[inline(always)] // on the path of every hit
    pub(crate) fn confirm(self, bucket: u64, last: u64, used: Use) -> bool {
        let holds =
            self.record.permits(bucket, used) && (bucket == last || self.record.reaches(last));
        if holds {
            self.record.mark();
        }
        holds
    }

    /// As [`confirm`](Self::confirm), but counts a reference instead. It is given back by
    /// [`BucketTable::release`].
    #[cold]
    pub(crate) fn count(
        self,
        table: &BucketTable,
        bucket: u64,
        last: u64,
        used: Use,
    ) -> Option<()> {
        if !self.record.take(bucket) {
            return None;
        }
        if self.record.permits(bucket, used) && self.record.reaches(last) {
            return Some(());
        }
        // The engine serves the waiter of this record when the miss reaches it.
        let _ = table.release(self.slot());
        None
    }

    /// The key of a record that is held.
    #[inline(always)]
    pub(crate) fn key(self) -> u64 {
        self.record.key()
    }

    /// Returns true if the editor waits for the end of this operation, whose announcement was
    /// cleared.
    #[inline(always)]
    pub(crate) fn is_awaited(self) -> bool {
        self.record.is_awaited()
    }
}

#[cold]
fn not_held(record: &BucketRecord, slot: u32) -> ! {
    record.word.fetch_add(1, Ordering::Relaxed);
    panic!("record {slot} was given back more often than taken");
}
