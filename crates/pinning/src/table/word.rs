//! The word of a record: its bucket, its flags and its count of references.
//!
//! The layout is `bucket (40) | LIVE | WRITABLE | AWAITED | references (21)`. Bucket and count share one word,
//! so that one compare-and-swap both checks the bucket and counts the reference. So nobody takes a
//! record by mistake that was evicted and given to another bucket in between.

use crate::Use;

/// The number of bits of the reference count.
const REFERENCE_BITS: u32 = 21;

/// The most references that one record counts. One more is refused.
pub const MAX_REFERENCES: u32 = (1 << REFERENCE_BITS) - 1;

/// Flag: the editor waits for the last reference to be given back.
pub(super) const AWAITED: u64 = 1 << REFERENCE_BITS;
/// Flag: the NIC may write to the extent.
pub(super) const WRITABLE: u64 = AWAITED << 1;
/// Flag: the record can be taken.
pub(super) const LIVE: u64 = WRITABLE << 1;

const BUCKET_SHIFT: u32 = REFERENCE_BITS + 3;

/// The number of bits of a bucket's number.
pub(super) const BUCKET_BITS: u32 = 64 - BUCKET_SHIFT;

/// The word of a live record.
pub(super) fn live(bucket: u64, writable: bool, references: u32) -> u64 {
    let writable = if writable { WRITABLE } else { 0 };
    (bucket << BUCKET_SHIFT) | LIVE | writable | u64::from(references)
}

/// The bucket of a record.
#[inline]
pub(super) fn bucket(word: u64) -> u64 {
    word >> BUCKET_SHIFT
}

/// The number of references.
#[inline]
pub(super) fn references(word: u64) -> u32 {
    (word & u64::from(MAX_REFERENCES)) as u32
}

/// Returns true if the record is of the bucket `of`, and can be taken.
#[inline]
pub(super) fn is_live(word: u64, of: u64) -> bool {
    // One comparison: LIVE is the highest bit below the bucket.
    word >> (BUCKET_SHIFT - 1) == (of << 1) | 1
}

/// Returns true if the record is of the bucket `of`, can be taken, and permits that use.
#[inline]
pub(super) fn permits(word: u64, of: u64, used: Use) -> bool {
    match used {
        Use::Read => is_live(word, of),
        // One comparison: WRITABLE is the next bit below LIVE.
        Use::Write => word >> (BUCKET_SHIFT - 2) == (of << 2) | 3,
    }
}

/// The word with one more reference; `None` where the count is full.
#[inline]
pub(super) fn taken(word: u64) -> Option<u64> {
    (references(word) < MAX_REFERENCES).then(|| word + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_do_not_touch() {
        let last = (1 << BUCKET_BITS) - 1;
        let word = live(last, false, MAX_REFERENCES - 1);
        assert!(is_live(word, last) && !is_live(word, last - 1));
        assert!(permits(word, last, Use::Read) && !permits(word, last, Use::Write));
        let full = taken(word).unwrap();
        assert_eq!(bucket(full), last);
        assert_eq!(references(full), MAX_REFERENCES);
        assert_eq!(full & (LIVE | WRITABLE | AWAITED), LIVE);
        assert_eq!(taken(full), None);
        assert!(!is_live(word & !LIVE, last));
        let writable = live(last, true, 0);
        assert!(permits(writable, last, Use::Write) && permits(writable, last, Use::Read));
        assert!(!permits(writable, last - 1, Use::Write));
        assert!(!permits(writable & !LIVE, last, Use::Write));
    }

    #[test]
    fn a_record_of_nothing_is_of_no_bucket() {
        assert!(!is_live(0, 0) && !permits(0, 0, Use::Write));
    }
}
