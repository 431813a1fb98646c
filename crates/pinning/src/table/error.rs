//! The reasons why a table refuses a change.

use super::word::MAX_REFERENCES;
use super::{BUCKETS, MAX_RECORDS};

/// The reason why a table refuses a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bucket, or the end of its extent, is above the highest number of a table.
    #[error("bucket {bucket} is past the {BUCKETS} buckets a table can number; use larger buckets")]
    Beyond {
        /// The bucket, or the bucket behind the extent.
        bucket: u64,
    },
    /// The bucket lies outside the extent that it was to be recorded with.
    #[error("bucket {bucket} is outside its extent, the buckets {base} to {end} (exclusive)")]
    Outside {
        /// The bucket.
        bucket: u64,
        /// The first bucket of the extent.
        base: u64,
        /// The bucket behind its last bucket.
        end: u64,
    },
    /// The bucket has a record already.
    #[error("bucket {bucket} is in the table already, as record {slot}")]
    Present {
        /// The bucket.
        bucket: u64,
        /// Its record.
        slot: u32,
    },
    /// The first bucket of the extent is not there, or belongs to another registration.
    #[error("bucket {bucket} was added before {base}, the first bucket of its extent")]
    NoFirst {
        /// The bucket.
        bucket: u64,
        /// The first bucket of the extent.
        base: u64,
    },
    /// No record is left.
    #[error("the table holds all {MAX_RECORDS} buckets it can; use larger buckets")]
    Full,
    /// One more would not fit the counter.
    #[error("bucket {bucket} has all {MAX_REFERENCES} references it can count")]
    TooManyReferences {
        /// The bucket.
        bucket: u64,
    },
}
