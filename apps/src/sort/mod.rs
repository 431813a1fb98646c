//! The serial parts of bitonic sort: which rank exchanges with which, how two runs are
//! merged, and whether the result is right.

mod check;
mod merge;
mod network;

pub use check::{Unsorted, checksum, compare, quick};
pub use merge::{Half, merge};
pub use network::{CompareSplit, network};

/// Comparisons of a quick sort of so many keys, about: `n log2 n`.
pub fn comparisons(keys: usize) -> u64 {
    let keys = keys as u64;
    keys.saturating_mul(u64::from(keys.max(1).ilog2()))
}
