//! The records, which never move: the slab adds chunks and never frees one.
//!
//! There are eight chunks of one size, then eight of twice that size. So at most an eighth of the
//! records is unused after the table has grown, and a record's number gives its chunk without a
//! search.

use crate::Use;
use std::sync::OnceLock;

use super::word::{AWAITED, LIVE, WRITABLE, taken};
use super::{Extent, FoundBucket, word};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The part of a bucket that a hit reads and writes: half a cache line.
#[derive(Debug)]
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[repr(C, align(32))]
pub(super) struct BucketRecord {
    /// Bucket, flags and references (see [`word`]). The other fields are written before this word
    /// shows the record as live, and not again while it is live. So a thread with a reference reads
    /// them consistently.
    pub(super) word: AtomicU64,
    key: AtomicU64,
    base: AtomicU64,
    /// The lower bits of the extent's last bucket.
    last_low: AtomicU32,
    /// The upper bits of the extent's last bucket.
    last_high: AtomicU8,
    /// 1 if the record was hit since the last look for a victim. Hits set it by plain stores.
    mark: AtomicU8,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<BucketRecord>() == 32);

impl BucketRecord {
    #[cfg(loom)]
    fn empty() -> Self {
        BucketRecord {
            word: AtomicU64::new(0),
            key: AtomicU64::new(0),
            base: AtomicU64::new(0),
            last_low: AtomicU32::new(0),
            last_high: AtomicU8::new(0),
            mark: AtomicU8::new(0),
        }
    }

    /// Takes a reference if the record is live and of `bucket`.
    #[inline]
    pub(super) fn take(&self, bucket: u64) -> bool {
        let mut old = self.word.load(Ordering::Relaxed);
        while word::is_live(old, bucket) {
            let Some(new) = taken(old) else {
                return false;
            };
            // Acquire ordering: the key is read as it was before the record became live.
            match (self.word).compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    self.mark();
                    return true;
                }
                Err(now) => old = now,
            }
        }
        false
    }

    /// Returns true if the record is live, of `bucket`, and permits that use. If the caller has
    /// announced it, the caller holds it.
    #[inline(always)]
    pub(super) fn permits(&self, bucket: u64, used: Use) -> bool {
        // Acquire ordering: the key is read as it was before the record became live.
        word::permits(self.word.load(Ordering::Acquire), bucket, used)
    }

    /// Returns true if the editor waits for the end of an operation.
    #[inline(always)]
    pub(super) fn is_awaited(&self) -> bool {
        self.word.load(Ordering::Relaxed) & AWAITED != 0
    }

    /// Marks the record as hit.
    #[inline(always)]
    pub(super) fn mark(&self) {
        // Most records are marked, and a store would take the cache line from other threads.
        if self.mark.load(Ordering::Relaxed) == 0 {
            self.mark.store(1, Ordering::Relaxed);
        }
    }

    /// Clears the mark. Returns true if there was one. A hit at the same time may keep it.
    pub(super) fn take_mark(&self) -> bool {
        let is_marked = self.mark.load(Ordering::Relaxed) != 0;
        if is_marked {
            self.mark.store(0, Ordering::Relaxed);
        }
        is_marked
    }

    /// Gives a record that nobody can find to `bucket`.
    pub(super) fn publish(&self, bucket: u64, extent: &Extent, references: u32) {
        self.key.store(extent.key, Ordering::Relaxed);
        self.base.store(extent.base, Ordering::Relaxed);
        let last = extent.end - 1;
        self.last_low.store(last as u32, Ordering::Relaxed);
        self.last_high.store((last >> 32) as u8, Ordering::Relaxed);
        self.mark.store(0, Ordering::Relaxed);
        let word = word::live(bucket, extent.writable, references);
        self.word.store(word, Ordering::Release);
    }

    /// Makes the record impossible to take; returns false if references are counted. If `awaits`,
    /// operations that announced it tell when they end.
    pub(super) fn shut(&self, awaits: bool) -> bool {
        let awaited = if awaits { AWAITED } else { 0 };
        let mut old = self.word.load(Ordering::Relaxed);
        while word::references(old) == 0 {
            let new = (old & !LIVE) | awaited;
            // Acquire ordering: the last holder's accesses come before the eviction.
            match (self.word).compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Undoes [`shut`](Self::shut).
    pub(super) fn reopen(&self) {
        self.word.fetch_or(LIVE, Ordering::Release);
    }

    /// The extent. The caller holds a reference, or is the only thread that changes records.
    #[inline]
    pub(super) fn extent(&self) -> Extent {
        Extent {
            key: self.key.load(Ordering::Relaxed),
            base: self.base.load(Ordering::Relaxed),
            end: self.last() + 1,
            writable: self.word.load(Ordering::Relaxed) & WRITABLE != 0,
        }
    }

    /// The last bucket of the extent.
    #[inline(always)]
    fn last(&self) -> u64 {
        let upper = u64::from(self.last_high.load(Ordering::Relaxed));
        upper << 32 | u64::from(self.last_low.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    /// Returns true if the extent reaches as far as the bucket `last`.
    #[inline(always)]
    pub(super) fn reaches(&self, last: u64) -> bool {
        last <= self.last()
    }

    #[inline]
    pub(super) fn found(&self, slot: u32) -> FoundBucket {
        let Extent {
            key,
            base,
            end,
            writable,
        } = self.extent();
        FoundBucket {
            slot,
            key,
            base,
            end,
            writable,
        }
    }
}

/// The first chunk holds `2^FIRST` records, and each one after it twice as many as the one before.
/// The first index has room for few numbers under loom.
const FIRST: u32 = if cfg!(loom) { 0 } else { 3 };
/// The places of chunks, by the exponent of their size. There is one for every exponent of a
/// number, so that a hit needs no check.
const SIZES: usize = u32::BITS as usize;

/// The number of the first record. It is not 0, and the exponent of a number is that of its chunk.
pub(super) const FIRST_SLOT: u32 = 1 << FIRST;
/// Every record's number is below it.
pub(super) const SLOTS: u32 = 1 << 26;
/// The number of records that a slab can hold.
pub(super) const MAX_RECORDS: u32 = SLOTS - FIRST_SLOT;

/// The records by number.
#[derive(Debug)]
pub(super) struct RecordSlab {
    /// The first [`FIRST`] places stay empty.
    chunks: [OnceLock<Box<[BucketRecord]>>; SIZES],
}

impl RecordSlab {
    pub(super) fn new() -> Self {
        RecordSlab {
            chunks: [const { OnceLock::new() }; SIZES],
        }
    }

    /// Returns a record, or `None` if there is none of that number yet.
    #[inline(always)]
    pub(super) fn record(&self, slot: u32) -> Option<&BucketRecord> {
        let (exponent, offset) = locate(slot);
        self.chunks[exponent].get()?.get(offset)
    }

    /// Adds the chunk of `slot`, if it is not there. Returns the number of records up to the end of
    /// that chunk.
    pub(super) fn reach(&self, slot: u32) -> u32 {
        let (exponent, offset) = locate(slot);
        let records = self.chunks[exponent].get_or_init(|| empty(1 << exponent));
        slot - offset as u32 + records.len() as u32
    }

    /// The memory in bytes that the records below `end` take beyond the slab itself. The system
    /// gives memory to the rest of a chunk at its first use.
    pub(super) fn memory(&self, end: u32) -> usize {
        (end - FIRST_SLOT) as usize * size_of::<BucketRecord>()
    }
}

/// Empty records. The memory comes from the system as zeros, so that an unused record takes none.
#[cfg(not(loom))]
fn empty(records: usize) -> Box<[BucketRecord]> {
    bytemuck::zeroed_slice_box(records)
}

#[cfg(loom)]
fn empty(records: usize) -> Box<[BucketRecord]> {
    (0..records).map(|_| BucketRecord::empty()).collect()
}

/// The chunk and the offset of a slot, found as in a floating-point number: the exponent is the
/// chunk, and the bits below the leading one are the offset.
#[inline(always)]
fn locate(slot: u32) -> (usize, usize) {
    // Slot 0 is of no record, and has the place of slot 1.
    let exponent = (slot | 1).ilog2();
    (exponent as usize, (slot ^ (1 << exponent)) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_one_chunk_after_the_other() {
        let (mut exponent, mut offset) = (FIRST as usize, 0);
        for slot in FIRST_SLOT..100_000 {
            assert_eq!(locate(slot), (exponent, offset), "{slot}");
            offset += 1;
            if offset == 1 << exponent {
                (exponent, offset) = (exponent + 1, 0);
            }
        }
        let (exponent, offset) = locate(SLOTS - 1);
        assert_eq!(offset, (1 << exponent) - 1);
    }

    #[test]
    fn a_record_that_is_not_there_is_not_found() {
        let slab = RecordSlab::new();
        assert!(slab.record(FIRST_SLOT).is_none());
        assert_eq!(slab.reach(FIRST_SLOT), 16);
        assert!(slab.record(15).is_some());
        assert!(slab.record(0).is_none() && slab.record(16).is_none());
        assert!(slab.record(u32::MAX).is_none());
    }
}
