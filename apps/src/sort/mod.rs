//! The serial parts of bitonic sort: which rank exchanges with which, how two runs are
//! merged, and whether the result is right.

mod check;
mod merge;
mod network;

pub use check::{Unsorted, checksum, compare, quick};
pub use merge::{Half, merge};
pub use network::{CompareSplit, network};
