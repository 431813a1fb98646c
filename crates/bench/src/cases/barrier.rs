//! Barriers: whole, and split into notify and wait.

use super::round_trip;
use crate::ensemble::Ensemble;
use crate::measure::Side;
use crate::row::Goal;

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
    let mut bare = |count| round_trip(e, &mut turn, 8, count);
    let mut whole = |count| e.timed(count, |_| job.barrier());
    let mut split = |count| {
        e.timed(count, |_| {
            world.notify(None)?;
            world.wait(None)
        })
    };
    let timings = if e.has_bare() {
        let sides: [Side<'_>; 3] = [&mut bare, &mut whole, &mut split];
        (e.together_timings(&case, sides)?)
            .map(|[bare, whole, split]| (Some(bare.median()), [whole, split]))
    } else {
        let sides: [Side<'_>; 2] = [&mut whole, &mut split];
        e.together_timings(&case, sides)?.map(|ours| (None, ours))
    };
    let goal = match ranks {
        2 if e.network.is_some() => e.uncrowded(Goal::AtMostTimes(1.05)),
        _ if e.registered => None,
        2 if e.crowding <= 1.0 => Some(Goal::AtMostTimes(1.3)),
        _ if e.crowding > 1.0 => Some(Goal::AtMostTimes(HANDOVERS * e.crowding)),
        _ => None,
    };
    if let Some((bare, [whole, split])) = timings {
        let goal = goal.filter(|_| bare.is_some());
        let row = e.timed_row("barrier", case, &whole);
        e.row(row.against_if(bare).goal_if(goal))?;
        let case = format!("notify and wait, {ranks} ranks");
        e.row(e.timed_row("barrier", case, &split).against_if(bare))?;
    }
    Ok(())
}
