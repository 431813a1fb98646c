//! The hot table: the registered buckets, and the references of their users.
//!
//! One structure serves as the local bucket table and as the firehose table of a peer (Firehose
//! §3.2, BucketTable 1). A *hit* takes a reference with one compare-and-swap and no lock.
//! [`BucketTable::acquire`] reads one cache line of the index and half a line of the record, and
//! writes only the latter. The one [`Editor`] does all else: it adds, evicts and queues. The layer
//! above keeps it behind a lock of its own.
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
//! nothing off the queue, because that would need a lock. It leaves a mark in the word that it
//! writes anyway, and [`Editor::next_victim`] makes up for it. An extent that was hit since the
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
//! records of buckets that were added one after the other. Hits of other buckets, and of other
//! tables, write no line in common. The table as a whole counts nothing.

mod editor;
mod error;
mod index;
mod queue;
mod slab;
pub(crate) mod sync;
mod word;

pub use editor::Editor;
pub use error::Error;
pub use word::MAX_REFERENCES;

use crate::Use;
use index::{HomeEntry, Index, ProbeSequence};
use slab::{BucketRecord, MAX_RECORDS, RecordSlab};
use sync::Ordering;

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
}

impl BucketTable {
    fn new() -> Self {
        BucketTable {
            index: Index::new(),
            slab: RecordSlab::new(),
        }
    }

    /// Finds a bucket and takes a reference on it in one atomic step: the hit.
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

    /// Finds a bucket's record without holding it. So a hit looks up both sides before it holds
    /// one, because no instruction overtakes the compare-and-swap.
    #[inline(always)] // on the path of every hit
    pub(crate) fn seek(&self, bucket: u64) -> Option<SeenRecord<'_>> {
        let probes = self.index.probes(bucket)?;
        match probes.home() {
            HomeEntry::Empty => None,
            HomeEntry::Record(slot) => match self.live_record(bucket, slot) {
                Some(seen) => Some(seen),
                None => self.seek_on(bucket, probes),
            },
            HomeEntry::Other => self.seek_on(bucket, probes),
        }
    }

    /// The rest of [`seek`](Self::seek), kept apart so that the state of a search does not burden
    /// most hits.
    #[inline(never)]
    fn seek_on(&self, bucket: u64, probes: ProbeSequence<'_>) -> Option<SeenRecord<'_>> {
        probes.search_on(|slot| self.live_record(bucket, slot))
    }

    /// Returns a record, if it is live and of that bucket.
    #[inline(always)]
    fn live_record(&self, bucket: u64, slot: u32) -> Option<SeenRecord<'_>> {
        let record = self.slab.record(slot)?;
        let word = record.word.load(Ordering::Relaxed);
        word::is_live(word, bucket).then_some(SeenRecord { record, slot, word })
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
        Self::give_back(record, slot)
    }

    #[inline(always)]
    fn give_back(record: &BucketRecord, slot: u32) -> bool {
        // Release ordering: every access under the reference comes before its return.
        let old = record.word.fetch_sub(1, Ordering::Release);
        if word::references(old) == 0 {
            not_held(record, slot);
        }
        word::references(old) == 1 && old & word::AWAITED != 0
    }
}

/// A record that was live and of the wanted bucket when `seek` looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenRecord<'a> {
    record: &'a BucketRecord,
    slot: u32,
    word: u64,
}

impl<'a> SeenRecord<'a> {
    /// Takes a reference, if the record is still of `bucket`, its extent reaches as far as the
    /// bucket `last`, and it permits that use.
    #[inline(always)] // on the path of every hit
    pub(crate) fn hold(self, bucket: u64, last: u64, used: Use) -> Option<HeldRecord<'a>> {
        let Self { record, slot, word } = self;
        if !record.take_seen(bucket, word) {
            return None;
        }
        let held = HeldRecord { record, slot };
        if record.serves(last, used) {
            return Some(held);
        }
        // The engine serves the waiter of this record when the miss reaches it.
        let _ = held.give_back();
        None
    }
}

/// A record with a reference that its holder gives back soon, without another look-up.
#[derive(Clone, Copy, Debug)]
#[must_use = "the reference is to be given back"]
pub(crate) struct HeldRecord<'a> {
    record: &'a BucketRecord,
    slot: u32,
}

impl HeldRecord<'_> {
    /// The key of the extent.
    #[inline(always)]
    pub(crate) fn key(self) -> u64 {
        self.record.key()
    }

    /// The slot, for [`BucketTable::release`].
    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    /// As [`BucketTable::release`].
    #[inline(always)]
    #[must_use = "the editor may wait for the last reference"]
    pub(crate) fn give_back(self) -> bool {
        BucketTable::give_back(self.record, self.slot)
    }
}

#[cold]
fn not_held(record: &BucketRecord, slot: u32) -> ! {
    record.word.fetch_add(1, Ordering::Relaxed);
    panic!("record {slot} was given back more often than taken");
}
