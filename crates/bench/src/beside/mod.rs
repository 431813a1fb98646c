//! MPI, the usual alternative, measured by the same command.
//!
//! A C program of ours does the same operations with each installed MPI. It takes turns with
//! Hydrant's own jobs, so that a slow phase of the machine slows all of them. Every figure is the
//! median over the turns.

mod mpi;
mod rows;

use crate::args::Bench;
use crate::suite::Suite;

pub(super) use mpi::{MpiError, MpiRequest, Programs};
pub(super) use rows::set;

/// Bytes of an operation; for collectives, those from or to each rank.
pub(super) const SIZES: [u64; 8] = [8, 64, 512, 4 << 10, 32 << 10, 128 << 10, 1 << 20, 4 << 20];
/// The sizes that suffice for a quick run.
const FEW: [u64; 3] = [8, 4 << 10, 1 << 20];

/// The sizes that both sides measure.
pub(super) fn sizes(few: bool) -> Vec<u64> {
    let sizes = SIZES.into_iter();
    sizes.filter(|size| !few || FEW.contains(size)).collect()
}

/// True if the C program measures the same bench.
pub(super) fn has(bench: Bench) -> bool {
    matches!(bench, Bench::Barrier | Bench::Collectives | Bench::Messages)
}

/// The name of the suite in the C program.
pub(super) fn name_of(suite: Suite) -> Option<&'static str> {
    match suite {
        Suite::Barrier => Some("barrier"),
        Suite::Collectives => Some("collectives"),
        Suite::Messages => Some("messages"),
        _ => None,
    }
}
