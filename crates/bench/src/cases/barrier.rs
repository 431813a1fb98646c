//! Barriers: whole, and split into notify and wait.

use super::round_trip;
use crate::ensemble::Ensemble;
use crate::row::{Goal, Row};

/// With more ranks than cores, every rank must get its core once for each barrier, which takes at
/// least one handover of the core. Ten handovers for each rank of a core are far below the time
/// slice that a rank loses while another spins.
pub(super) const HANDOVERS: f64 = 10.0;

/// Measures all ranks.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let job = e.job;
    let ranks = job.size();
    let world = job.world();
    let case = format!("barrier, {ranks} ranks");
    let mut turn = 0;
    let medians = e.together(
        &case,
        [
            &mut |count| round_trip(e, &mut turn, 8, count),
            &mut |count| e.timed(count, |_| job.barrier()),
            &mut |count| {
                e.timed(count, |_| {
                    world.notify(None)?;
                    world.wait(None)
                })
            },
        ],
    )?;
    let goal = match ranks {
        2 if e.network.is_some() => e.uncrowded(Goal::AtMostTimes(1.05)),
        _ if e.registered => None,
        2 if e.crowding <= 1.0 => Some(Goal::AtMostTimes(1.3)),
        _ if e.crowding > 1.0 => Some(Goal::AtMostTimes(HANDOVERS * e.crowding)),
        _ => None,
    };
    if let Some([bare, whole, split]) = medians {
        e.row(
            Row::new("barrier", case, "ns", whole)
                .against(bare)
                .goal_if(goal),
        )?;
        let case = format!("notify and wait, {ranks} ranks");
        e.row(Row::new("barrier", case, "ns", split).against(bare))?;
    }
    Ok(())
}
