//! Puts to memory that was never used before, as in the paper's zero-copy protocol (Figure 3). The
//! peer and the initiator register at the same time, and the data then goes directly.

use hydrant_ofi::BareAccess;

use super::{Cases, against, peer::ArmciPeer};
use crate::error::BenchError;
use crate::measure::median;
use crate::row::{Goal, Row};

/// Bytes of a put.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Puts of each size, including the unmeasured first ones.
const PUTS: usize = 22;
const WARM_UP: usize = 2;

/// The gap between the targets of two puts, so that no bucket belongs to both.
const GAP: usize = 4 << 10;

/// The bytes of the peer's memory that the puts cover, once each.
fn bytes_reached() -> usize {
    let each = |bytes: &usize| 2 * PUTS * (bytes + GAP);
    SIZES.iter().map(each).sum()
}

/// Runs the measurement. Collective.
pub(super) fn run(cases: &Cases<'_>) -> hydrant::Result<()> {
    if !cases.e.registered {
        return Ok(());
    }
    let peer = ArmciPeer::new(cases.e, cases.peer.armci, bytes_reached())?;
    let mut place = 0;
    for bytes in SIZES {
        let own = vec![1_u64; bytes / size_of::<u64>()];
        sized(
            cases,
            &peer,
            &own,
            "put, neither side registered before",
            &mut place,
        )?;
        let own = peer.local(cases.e, bytes);
        sized(
            cases,
            &peer,
            own,
            "put, target not registered before",
            &mut place,
        )?;
    }
    peer.free(cases.e)
}

fn sized(
    cases: &Cases<'_>,
    peer: &ArmciPeer<'_>,
    own: &[u64],
    case: &str,
    place: &mut usize,
) -> hydrant::Result<()> {
    let bytes = size_of_val(own);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    if cases.e.rank() == 0 {
        cases.e.next(&format!("{case}, {bytes} bytes"))?;
        for _ in 0..PUTS {
            if let Some(network) = &cases.e.network {
                let mut network = network.borrow_mut();
                let took = cases.timed(1, |_| {
                    let done = network.once(BareAccess::Write, bytes);
                    Ok(done.map_err(BenchError::Network)?)
                })?;
                bare.push(took.as_nanos() as f64);
            }
            let took = cases.timed(1, |_| {
                peer.put_to(*place, own)?;
                peer.fence()
            })?;
            ours.push(took.as_nanos() as f64);
            *place += bytes + GAP;
        }
    }
    cases.e.job.barrier()?;
    if ours.is_empty() {
        return Ok(());
    }
    let rate = |samples: &mut Vec<f64>| bytes as f64 / median(&mut samples[WARM_UP..]) * 1e3;
    let bare = (!bare.is_empty()).then(|| rate(&mut bare));
    let row = Row::new("armci", case, "MB/s", rate(&mut ours)).bytes(bytes as u64);
    let goal = bare.and(cases.e.uncrowded(Goal::AtLeastTimes(0.95)));
    cases.e.row(against(row, bare).goal_if(goal))
}
