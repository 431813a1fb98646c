//! The word of a record: whose it is, whether it can be taken, who holds it.
//!
//! `bucket (40) | LIVE | HIT | AWAITED | references (21)`. Bucket and count share one
//! word so that one compare-and-swap finds out that the record is still of the wanted
//! bucket and counts the reference: a record that was given up and used for another
//! bucket in between cannot be taken by mistake.

/// How many bits hold the references.
const REFERENCE_BITS: u32 = 21;

/// The most references one record counts. One more is refused.
pub const MAX_REFERENCES: u32 = (1 << REFERENCE_BITS) - 1;

/// Somebody waits for the last reference to be given back.
pub(super) const AWAITED: u64 = 1 << REFERENCE_BITS;
/// It was taken since somebody last looked for a victim here.
pub(super) const HIT: u64 = AWAITED << 1;
/// It can be taken.
pub(super) const LIVE: u64 = HIT << 1;

const BUCKET_SHIFT: u32 = REFERENCE_BITS + 3;

/// How many bits number a bucket.
pub(super) const BUCKET_BITS: u32 = 64 - BUCKET_SHIFT;

/// The word of a live record.
pub(super) fn live(bucket: u64, references: u32) -> u64 {
    (bucket << BUCKET_SHIFT) | LIVE | u64::from(references)
}

/// The bucket of a record.
#[inline]
pub(super) fn bucket(word: u64) -> u64 {
    word >> BUCKET_SHIFT
}

/// How many hold it.
#[inline]
pub(super) fn references(word: u64) -> u32 {
    (word & u64::from(MAX_REFERENCES)) as u32
}

/// Whether it is of `of`, and can be taken.
#[inline]
pub(super) fn is_live(word: u64, of: u64) -> bool {
    // One comparison: LIVE is the highest bit below the bucket.
    word >> (BUCKET_SHIFT - 1) == (of << 1) | 1
}

/// The word with one reference more and the mark of a hit; `None` where it cannot be counted.
#[inline]
pub(super) fn taken(word: u64) -> Option<u64> {
    (references(word) < MAX_REFERENCES).then(|| (word | HIT) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_do_not_touch() {
        let last = (1 << BUCKET_BITS) - 1;
        let word = live(last, MAX_REFERENCES - 1);
        assert!(is_live(word, last) && !is_live(word, last - 1));
        let full = taken(word).unwrap();
        assert_eq!(bucket(full), last);
        assert_eq!(references(full), MAX_REFERENCES);
        assert_eq!(full & (LIVE | HIT | AWAITED), LIVE | HIT);
        assert_eq!(taken(full), None);
        assert!(!is_live(word & !LIVE, last));
    }

    #[test]
    fn a_record_of_nothing_is_of_no_bucket() {
        assert!(!is_live(0, 0));
    }
}
