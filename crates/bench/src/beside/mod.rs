//! What users would pick instead, measured by the same command: MPI.
//!
//! A program of ours in C does the same operations with each MPI that is installed. It
//! takes turns with Hydrant's own jobs, so that what slows the machine down for a while slows all of
//! them down, and every figure is the median over the turns.

mod mpi;
mod rows;

use crate::args::Bench;
use crate::suite::Suite;

pub(super) use mpi::{MpiError, Programs, Request};
pub(super) use rows::set;

/// Bytes of an operation; for collectives, those from or to each rank.
pub(super) const SIZES: [u64; 8] = [8, 64, 512, 4 << 10, 32 << 10, 128 << 10, 1 << 20, 4 << 20];
/// Those of them that are enough to see that it works.
const FEW: [u64; 3] = [8, 4 << 10, 1 << 20];

/// The sizes that both sides measure.
pub(super) fn sizes(few: bool) -> Vec<u64> {
    let sizes = SIZES.into_iter();
    sizes.filter(|size| !few || FEW.contains(size)).collect()
}

/// Whether the program in C measures the same.
pub(super) fn has(bench: Bench) -> bool {
    matches!(bench, Bench::Barrier | Bench::Collectives | Bench::Messages)
}

/// What the program in C calls it.
pub(super) fn name_of(suite: Suite) -> Option<&'static str> {
    match suite {
        Suite::Barrier => Some("barrier"),
        Suite::Collectives => Some("collectives"),
        Suite::Messages => Some("messages"),
        _ => None,
    }
}
