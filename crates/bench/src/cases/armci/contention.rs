//! A mutex that all ranks want, and how it is shared; fences to several processes, by one and by all.

#![allow(unsafe_code)] // ARMCI names memory by its address

use std::time::Duration;

use armci::Armci;

use super::{against, raised};
use crate::cases::round_trip;
use crate::ensemble::Ensemble;
use crate::network::PARTNER;
use crate::row::{Goal, Row};

/// How long the ranks contend.
const CONTEND: Duration = Duration::from_millis(500);
const QUICK: Duration = Duration::from_millis(50);

/// Between two looks at the clock.
const LOCKS: u64 = 8;

/// With so many ranks the share of each is judged.
const JUDGED: u32 = 4;

/// Processes spoken to before a fence of all (Nieplocha and others 2002, Figure 12).
const SPOKEN_TO: [u32; 4] = [1, 3, 5, 7];

pub(super) fn run(e: &Ensemble<'_>, armci: &Armci) -> hydrant::Result<()> {
    mutex(e, armci)?;
    fences(e, armci)
}

fn mutex(e: &Ensemble<'_>, armci: &Armci) -> hydrant::Result<()> {
    let (ranks, proc) = (e.job.size(), PARTNER.0 as i32);
    let case = format!("lock and unlock, {ranks} ranks contend");
    raised(armci.create_mutexes(1))?;
    // One handover of a cache line, or of a core where ranks share one: half of a round trip.
    let (mut turn, mut handover) = (0, None);
    if !e.is_virtual {
        let trip = e.together(&case, [&mut |count| round_trip(e, &mut turn, 8, count)])?;
        handover = trip.map(|[trip]| trip / 2.0);
    }
    e.next(&case)?;
    let span = if e.quick { QUICK } else { CONTEND };
    raised(armci.barrier())?;
    let contend = |span| {
        let (start, mut own) = (e.job.now(), 0);
        loop {
            for _ in 0..LOCKS {
                raised(armci.lock(0, proc))?;
                raised(armci.unlock(0, proc))?;
            }
            own += LOCKS;
            let took = e.job.now().saturating_sub(start);
            if took >= span {
                return Ok::<_, hydrant::Error>((own, took));
            }
        }
    };
    // Who leaves the barrier first has the mutex to itself until the others have left it, which
    // takes as long as they wait for a core: only then does the time count.
    contend(span / 2)?;
    let (own, took) = contend(span)?;
    contend(span / 2)?;
    let all = e.gather(own)?;
    let longest = e.gather(took.as_nanos() as u64)?.into_iter().max();
    raised(armci.destroy_mutexes())?;
    if e.rank() != 0 {
        return Ok(());
    }
    let sum: u64 = all.iter().sum();
    let mean = longest.unwrap_or(0) as f64 / sum as f64;
    e.row(against(Row::new("armci", &case, "ns", mean), handover))?;
    let goal = (ranks == JUDGED).then_some(Goal::Between(0.2, 0.3));
    for (rank, own) in all.into_iter().enumerate() {
        let share = own as f64 / sum as f64;
        let case = format!("{case}: rank {rank}");
        e.row(Row::new("armci", case, "of 1", share).goal_if(goal))?;
    }
    Ok(())
}

/// Puts of a word to so many processes, then a fence of all; beside a put and a fence to each, one
/// after the other.
fn fences(e: &Ensemble<'_>, armci: &Armci) -> hydrant::Result<()> {
    let ranks = e.job.size();
    let parts = raised(armci.malloc(i64::from(ranks) * 8))?;
    let word = 1_u64;
    let put = |other: u32| {
        let proc = (e.rank() + 1 + other) % ranks;
        // Everybody has a word of its own there.
        let there = parts[proc as usize].wrapping_add(8 * e.rank() as usize);
        let from = std::ptr::from_ref(&word).cast();
        // SAFETY: a word of this rank's own; it is another process's memory, and ARMCI sees to its
        // end.
        raised(unsafe { armci.put(from, there, 8, proc as i32) }).map(|()| proc as i32)
    };
    let all_at_once = |spoken_to: u32, _| {
        (0..spoken_to).try_for_each(|other| put(other).map(drop))?;
        raised(armci.all_fence())
    };
    let one_by_one =
        |spoken_to: u32, _| (0..spoken_to).try_for_each(|other| raised(armci.fence(put(other)?)));
    for spoken_to in SPOKEN_TO.into_iter().filter(|spoken_to| *spoken_to < ranks) {
        let case = format!("all_fence, {spoken_to} of {ranks} ranks spoken to");
        let one = e.solo(
            &case,
            [
                &mut |count| e.timed(count, |i| one_by_one(spoken_to, i)),
                &mut |count| e.timed(count, |i| all_at_once(spoken_to, i)),
            ],
        )?;
        let all = e.together(
            &case,
            [
                &mut |count| e.timed(count, |i| one_by_one(spoken_to, i)),
                &mut |count| e.timed(count, |i| all_at_once(spoken_to, i)),
            ],
        )?;
        for (who, medians) in [("one calls", one), ("all call", all)] {
            if let Some([apart, at_once]) = medians {
                let case = format!("{case}, {who}");
                e.row(Row::new("armci", case, "ns", at_once).against(apart))?;
            }
        }
    }
    raised(armci.barrier())?;
    raised(armci.free(parts[e.job.rank().index()]))
}
