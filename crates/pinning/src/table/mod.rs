//! The hot table: which buckets are registered, and who uses them.
//!
//! One structure serves as the local bucket table and as the firehose table of a peer
//! (Firehose §3.2, Table 1). A *hit* takes a reference with one compare-and-swap and no
//! lock: [`Table::acquire`] reads one line of the index and one half line of the record,
//! and writes only the latter. All else (adding, giving up, queueing) is done through
//! the one [`Editor`], which the layer above keeps behind a lock of its own.
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
//! # What is given up, and in which order
//!
//! An extent is queued, and given up, as a whole. The queue is first in, first out. A hit takes nothing off it, for that would need a
//! lock; it leaves a mark in the word it writes anyway, and [`Editor::next_victim`]
//! makes up for it: what was hit since it was last looked at goes to the end once more,
//! and what is in use leaves the queue until its last [`Table::release`], which then
//! says so. Every step of that walk is paid for by a hit or a release before it, so a
//! victim costs O(1), however many are in use.
//!
//! The pin-down cache (Tezuka §4) asks for the least recently used. Second chance is
//! nearly that: what was used since the last walk outlives what was not, but among the
//! used ones the order is that of the queue. Exactness would have every hit write a
//! clock that all hits share, which is what this table is built to avoid.
//!
//! # Neighbours
//!
//! Two records share a cache line, which keeps a bucket below 64 bytes in all. They are
//! the records of buckets that were added one after the other; hits of any others, and
//! of other tables, write no line in common. Nothing is counted for the table as a whole.

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
use index::{First, Index, Places};
use slab::{MAX_RECORDS, Record, Slab};
use sync::Ordering;

/// How many buckets there can be: their numbers are below this.
pub const BUCKETS: u64 = 1 << word::BUCKET_BITS;

/// One registration as a table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The key that names it.
    pub key: u64,
    /// Its first bucket.
    pub base: u64,
    /// One past its last bucket.
    pub end: u64,
    /// Whether it may be written through the key.
    pub writable: bool,
}

/// A bucket that was hit: one reference on it, and the extent it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the reference is given back by its slot"]
pub struct Found {
    /// The record, which [`Table::release`] asks for.
    pub slot: u32,
    /// The key of the extent.
    pub key: u64,
    /// First bucket of the extent.
    pub base: u64,
    /// One past its last bucket.
    pub end: u64,
    /// Whether the extent may be written through the key.
    pub writable: bool,
}

/// What all threads share of a table. Made, and changed, by an [`Editor`].
// On lines of its own, apart from the count of the `Arc` it is in.
#[derive(Debug)]
#[repr(align(64))]
pub struct Table {
    index: Index,
    slab: Slab,
}

impl Table {
    fn new() -> Self {
        Table {
            index: Index::new(),
            slab: Slab::new(),
        }
    }

    /// The hit: finds a bucket and takes a reference on it in one atomic step.
    ///
    /// `None` where it is absent or being given up, where its references are all in
    /// use, and now and then while the editor adds or gives up another bucket: a miss
    /// is final only when [`Editor::get`] misses too.
    #[inline]
    pub fn acquire(&self, bucket: u64) -> Option<Found> {
        self.index.find(bucket, |slot| {
            let record = self.slab.record(slot)?;
            record.take(bucket).then(|| record.found(slot))
        })
    }

    /// Where a bucket's record is, which is not held yet: so that both sides of a hit are looked
    /// for before one of them is held, for nothing overtakes that.
    #[inline(always)] // on the path of every hit
    pub(crate) fn seek(&self, bucket: u64) -> Option<Seen<'_>> {
        let places = self.index.places(bucket)?;
        match places.first() {
            First::Empty => None,
            First::Record(slot) => match self.seen(bucket, slot) {
                Some(seen) => Some(seen),
                None => self.seek_on(bucket, places),
            },
            First::Other => self.seek_on(bucket, places),
        }
    }

    /// The rest of [`seek`](Self::seek): what a search keeps in mind is not to be in the way of most hits.
    #[inline(never)]
    fn seek_on(&self, bucket: u64, places: Places<'_>) -> Option<Seen<'_>> {
        places.search_on(|slot| self.seen(bucket, slot))
    }

    /// A record, if it is of that bucket and live.
    #[inline(always)]
    fn seen(&self, bucket: u64, slot: u32) -> Option<Seen<'_>> {
        let record = self.slab.record(slot)?;
        let word = record.word.load(Ordering::Relaxed);
        word::is_live(word, bucket).then_some(Seen { record, slot, word })
    }

    /// One past the last bucket of the extent that has a bucket, if one has. Nothing is held.
    pub(crate) fn end_of(&self, bucket: u64) -> Option<u64> {
        self.index.find(bucket, |slot| {
            let record = self.slab.record(slot)?;
            let is_live = word::is_live(record.word.load(Ordering::Relaxed), bucket);
            // Another extent's by now, if anything: never one that ends before the bucket.
            is_live.then(|| record.found(slot).end.max(bucket + 1))
        })
    }

    /// Gives a reference back, and says whether it was the last and the editor waits
    /// for that: then [`Editor::requeue`] is due.
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
    fn give_back(record: &Record, slot: u32) -> bool {
        // Release: what was done under the reference is done before it is given back.
        let old = record.word.fetch_sub(1, Ordering::Release);
        if word::references(old) == 0 {
            not_held(record, slot);
        }
        word::references(old) == 1 && old & word::AWAITED != 0
    }
}

/// A record that was of the wanted bucket when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    record: &'a Record,
    slot: u32,
    word: u64,
}

impl<'a> Seen<'a> {
    /// Takes a reference, if the record is still of `bucket`, its extent reaches as far as the
    /// bucket `last`, and it permits that use.
    #[inline(always)] // on the path of every hit
    pub(crate) fn hold(self, bucket: u64, last: u64, used: Use) -> Option<Held<'a>> {
        let Self { record, slot, word } = self;
        if !record.take_seen(bucket, word) {
            return None;
        }
        let held = Held { record, slot };
        if record.serves(last, used) {
            return Some(held);
        }
        // Whoever waits for that is looked after when the miss reaches the engine.
        let _ = held.give_back();
        None
    }
}

/// A record that is held, by who gives it back soon: no need to look for it again.
#[derive(Clone, Copy, Debug)]
#[must_use = "the reference is to be given back"]
pub(crate) struct Held<'a> {
    record: &'a Record,
    slot: u32,
}

impl Held<'_> {
    /// The key of the extent.
    #[inline(always)]
    pub(crate) fn key(self) -> u64 {
        self.record.key()
    }

    /// What [`Table::release`] asks for.
    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    /// As [`Table::release`].
    #[inline(always)]
    #[must_use = "the editor may wait for the last reference"]
    pub(crate) fn give_back(self) -> bool {
        Table::give_back(self.record, self.slot)
    }
}

#[cold]
fn not_held(record: &Record, slot: u32) -> ! {
    record.word.fetch_add(1, Ordering::Relaxed);
    panic!("record {slot} was given back more often than taken");
}
