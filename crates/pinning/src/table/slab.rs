//! The records, which never move: the slab adds chunks and never frees one.
//!
//! There are eight chunks of one size, then eight of twice that size. So at most an eighth of the
//! records is unused after the table has grown, and a record's number gives its chunk without a
//! search.

use crate::Use;
use std::sync::OnceLock;

use super::word::{AWAITED, LIVE, taken};
use super::{Extent, FoundBucket, word};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The part of a bucket that a hit reads and writes: half a cache line.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct BucketRecord {
    /// Bucket, flags and references (see [`word`]). The other fields are written before this word
    /// shows the record as live, and not again while it is live. So a thread with a reference reads
    /// them consistently.
    pub(super) word: AtomicU64,
    key: AtomicU64,
    /// `base << 1 | writable`.
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

    /// Returns true if the record is live and of `bucket`. If the caller has announced it, the
    /// caller holds it.
    #[inline(always)]
    pub(super) fn is_live(&self, bucket: u64) -> bool {
        // Acquire ordering: the key is read as it was before the record became live.
        word::is_live(self.word.load(Ordering::Acquire), bucket)
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
        let base = (extent.base << 1) | u64::from(extent.writable);
        self.base.store(base, Ordering::Relaxed);
        let last = extent.end - 1;
        self.last_low.store(last as u32, Ordering::Relaxed);
        self.last_high.store((last >> 32) as u8, Ordering::Relaxed);
        self.mark.store(0, Ordering::Relaxed);
        let word = word::live(bucket, references);
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
        let base = self.base.load(Ordering::Relaxed);
        Extent {
            key: self.key.load(Ordering::Relaxed),
            base: base >> 1,
            end: self.last() + 1,
            writable: base & 1 == 1,
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

    /// Returns true if the extent permits that use.
    #[inline(always)]
    pub(super) fn permits(&self, used: Use) -> bool {
        used == Use::Read || self.base.load(Ordering::Relaxed) & 1 == 1
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

/// The first chunks hold `2^(FIRST - 3)` records.
const FIRST: u32 = 6;
/// The number of sizes of chunks.
const SIZES: usize = 26 - FIRST as usize;

/// The number of records that a slab can hold.
pub(super) const MAX_RECORDS: u32 = (1 << 26) - (1 << FIRST);

/// The chunks of one size.
type Eight = [OnceLock<Box<[BucketRecord]>>; 8];

/// The records by number.
#[derive(Debug)]
pub(super) struct RecordSlab {
    // The groups of eight are boxed, because the empty places would outweigh the records of a small
    // table.
    chunks: [OnceLock<Box<Eight>>; SIZES],
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
        let place = locate(slot)?;
        let eight = self.chunks.get(place.size)?.get()?;
        eight[place.chunk].get()?.get(place.offset)
    }

    /// Adds the chunk of `slot`, if it is not there. Returns the number of records up to the end of
    /// that chunk.
    pub(super) fn reach(&self, slot: u32) -> u32 {
        let place = locate(slot).expect("a slot is below MAX_RECORDS");
        let eight = self.chunks[place.size].get_or_init(Box::default);
        let records = eight[place.chunk]
            .get_or_init(|| (0..place.records).map(|_| BucketRecord::empty()).collect());
        slot - place.offset as u32 + records.len() as u32
    }

    /// The memory of the records beyond the slab itself, in bytes.
    pub(super) fn memory(&self) -> usize {
        let eights = self.chunks.iter().filter_map(OnceLock::get);
        let of_eight = |eight: &Eight| {
            let chunks = eight.iter().filter_map(OnceLock::get);
            size_of::<Eight>() + chunks.map(|it| size_of_val(&**it)).sum::<usize>()
        };
        eights.map(|eight| of_eight(eight)).sum()
    }
}

/// The position of a record in the chunks.
struct ChunkPosition {
    size: usize,
    chunk: usize,
    offset: usize,
    /// The number of records in that chunk.
    records: u32,
}

/// The position of a slot, found as in a floating-point number: the exponent is the size, and the
/// three bits below the leading one are the chunk.
#[inline]
fn locate(slot: u32) -> Option<ChunkPosition> {
    let number = slot.checked_add(1 << FIRST)?;
    let exponent = number.ilog2();
    let records = 1 << (exponent - 3);
    Some(ChunkPosition {
        size: (exponent - FIRST) as usize,
        chunk: (number >> (exponent - 3) & 7) as usize,
        offset: (number & (records - 1)) as usize,
        records,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_one_chunk_after_the_other() {
        let (mut chunk, mut offset) = (0, 0);
        for slot in 0..100_000 {
            let place = locate(slot).unwrap();
            assert_eq!(
                (place.size * 8 + place.chunk, place.offset),
                (chunk, offset),
                "{slot}"
            );
            offset += 1;
            if offset == place.records as usize {
                (chunk, offset) = (chunk + 1, 0);
            }
        }
        let last = locate(MAX_RECORDS - 1).unwrap();
        assert_eq!((last.size, last.chunk), (SIZES - 1, 7));
        assert_eq!(last.offset, last.records as usize - 1);
        assert!(locate(MAX_RECORDS).is_none_or(|it| it.size >= SIZES));
    }

    #[test]
    fn a_record_that_is_not_there_is_not_found() {
        let slab = RecordSlab::new();
        assert!(slab.record(0).is_none());
        assert_eq!(slab.reach(0), 8);
        assert!(slab.record(7).is_some());
        assert!(slab.record(8).is_none());
        assert!(slab.record(u32::MAX).is_none());
    }
}
