//! ARMCI's operations (Nieplocha and others 2002, Table 1), by the crate `armci`.
//!
//! Rank 0 works on memory of rank 1 that ARMCI allocated, while rank 1 waits in a barrier. Where
//! the memory is mapped, hand-written loops on the same memory are the reference; elsewhere a bare
//! queue pair, if there is one. In virtual time there is no reference: work without the network
//! takes no time there.

mod columns;
mod contention;
mod contiguous;
mod fresh;
mod peer;
mod sections;
mod synchronization;
mod vector;

use std::time::Duration;

use ::armci::Armci;

use crate::ensemble::Ensemble;
use crate::measure::Side;
use crate::row::{Goal, Row};
use peer::ArmciPeer;

/// The largest size of the sweep.
const LARGEST: u64 = 4 << 20;
/// The largest size where each run is an operation of the network.
const LARGEST_APART: u64 = 64 << 10;

/// From this size on, operations are judged by bandwidth, below it by time.
const MANY: u64 = 4 << 10;

/// The bytes of rank 1 in reach: those of a section in three dimensions lie apart.
const FIELD: u64 = 4 * LARGEST + 4096;

/// The factor of accumulate operations.
const FACTOR: f64 = 0.5;

/// Measures operations of a rank on the memory of its partner.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let armci = raised(Armci::new(e.job, None))?;
    let peer = ArmciPeer::new(e, &armci, FIELD as usize)?;
    let cases = Cases { e, peer: &peer };
    contiguous::run(&cases)?;
    fresh::run(&cases)?;
    sections::run(&cases)?;
    columns::run(&cases)?;
    vector::run(&cases)?;
    synchronization::run(&cases)?;
    peer.free(e)
}

/// Measures operations of many ranks at once.
pub(crate) fn crowd(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let armci = raised(Armci::new(e.job, None))?;
    contention::run(e, &armci)
}

/// The state that the measurements share.
struct Cases<'a> {
    e: &'a Ensemble<'a>,
    peer: &'a ArmciPeer<'a>,
}

impl Cases<'_> {
    /// One comparison on rank 0: the medians of Hydrant and of the reference, if there is one.
    fn compare(
        &self,
        case: &str,
        bytes: u64,
        bare: Option<Side<'_>>,
        ours: Side<'_>,
        goal: Option<Goal>,
    ) -> hydrant::Result<Option<(f64, Option<f64>)>> {
        let what = format!("{case}, {bytes} bytes");
        let medians = match bare {
            Some(bare) => {
                let medians = self.e.solo(&what, [bare, ours])?;
                medians.map(|[bare, ours]| (ours, Some(bare)))
            }
            None => self.e.solo(&what, [ours])?.map(|[ours]| (ours, None)),
        };
        if let Some((ours, bare)) = medians {
            let row = Row::new("armci", case, "ns", ours).bytes(bytes);
            self.e.row(against(row, bare).goal_if(goal))?;
        }
        Ok(medians)
    }

    /// Runs `op` `count` times and returns the time.
    #[inline(always)]
    fn timed(
        &self,
        count: u64,
        op: impl FnMut(u64) -> hydrant::Result<()>,
    ) -> hydrant::Result<Duration> {
        self.e.timed(count, op)
    }

    /// Every second size.
    fn coarse_sizes(&self, least: u64) -> impl Iterator<Item = u64> {
        let mapped = self.peer.place.is_some();
        let most = if mapped { LARGEST } else { LARGEST_APART };
        let step = if self.e.quick || !mapped { 1 } else { 2 };
        self.e.sizes(least, most).into_iter().step_by(step)
    }

    /// The goal for operations on `bytes` bytes, if every rank has a core.
    fn of_many(&self, bytes: u64, goal: Goal) -> Option<Goal> {
        let judged = bytes >= MANY && self.peer.place.is_some();
        self.e.uncrowded(goal).filter(|_| judged)
    }
}

fn against(row: Row, bare: Option<f64>) -> Row {
    match bare {
        Some(bare) => row.against(bare),
        None => row,
    }
}

/// Converts an error of ARMCI to an error of the job.
#[inline(always)]
fn raised<T>(result: ::armci::Result<T>) -> hydrant::Result<T> {
    result.map_err(|cause| match cause {
        ::armci::Error::Hydrant(cause) => cause,
        cause => hydrant::Error::other(cause),
    })
}

/// Words with the bits of the double 1.
fn ones(bytes: u64) -> Vec<u64> {
    vec![1.0_f64.to_bits(); bytes as usize / size_of::<u64>()]
}
