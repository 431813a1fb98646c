//! The serial parts of bitonic sort: the partners of each step, the merge of two runs, and the
//! checks of the result.

mod check;
mod merge;
mod network;

pub use check::{Unsorted, checksum, compare, quick};
pub use merge::{Half, merge};
pub use network::{CompareSplit, network};

/// The approximate comparisons of a quick sort of this many keys: `n log2 n`.
pub fn comparisons(keys: usize) -> u64 {
    let keys = keys as u64;
    keys.saturating_mul(u64::from(keys.max(1).ilog2()))
}
