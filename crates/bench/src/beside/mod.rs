//! MPI, the usual alternative, measured by the same command.
//!
//! A C program of ours does the same operations with each installed MPI. It takes turns with
//! Hydrant's own jobs, so that a slow phase of the machine slows all of them. Every figure is the
//! median over the turns.

mod mpi;
mod rows;

use crate::args::Bench;
use crate::network::BULK;
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

/// The sizes of one-sided accesses that both sides measure over TCP.
pub(super) fn access_sizes(few: bool) -> Vec<u64> {
    let bulk = BULK.into_iter().take(if few { 2 } else { 3 });
    [8].into_iter()
        .chain(bulk.map(|bytes| bytes as u64))
        .collect()
}

/// True if the C program measures the same bench. Over shared memory, a one-sided access is a copy, and a bare copy is
/// beside it.
pub(super) fn has(bench: Bench, tcp: bool) -> bool {
    match bench {
        Bench::Barrier | Bench::Collectives | Bench::Messages => true,
        Bench::Rma => tcp,
        _ => false,
    }
}

/// The name of the suite in the C program.
pub(super) fn name_of(suite: Suite) -> Option<&'static str> {
    match suite {
        Suite::Barrier => Some("barrier"),
        Suite::Collectives => Some("collectives"),
        Suite::Messages => Some("messages"),
        Suite::Rma => Some("rma"),
        _ => None,
    }
}
