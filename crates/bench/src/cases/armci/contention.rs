//! A mutex that all ranks want, and the fairness of its handover. Fences to several processes, one
//! by one and all at once.

#![allow(unsafe_code)] // ARMCI names memory by its address

use std::time::Duration;

use armci::Armci;

use super::{against, raised};
use crate::cases::round_trip;
use crate::ensemble::Ensemble;
use crate::network::PARTNER;
use crate::row::{Goal, Row};

/// The time that the ranks contend.
const CONTEND: Duration = Duration::from_millis(500);
const QUICK: Duration = Duration::from_millis(50);

/// Locks between two looks at the clock.
const LOCKS: u64 = 8;

/// The number of ranks at which the fairness is judged.
const JUDGED: u32 = 4;

/// The numbers of processes that get a put before a fence of all (Nieplocha and others 2002, Figure
/// 12).
const SPOKEN_TO: [u32; 4] = [1, 3, 5, 7];

pub(super) fn run(e: &Ensemble<'_>, armci: &Armci) -> hydrant::Result<()> {
    mutex(e, armci)?;
    fences(e, armci)
}

fn mutex(e: &Ensemble<'_>, armci: &Armci) -> hydrant::Result<()> {
    let (ranks, proc) = (e.job.size(), PARTNER.0 as i32);
    let case = format!("lock and unlock, {ranks} ranks contend");
    raised(armci.create_mutexes(1))?;
    // The handover of a cache line, or of a core where ranks share one: half of a round trip.
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
    // The first rank out of the barrier has the mutex to itself until the others get a core. So the
    // first half is not counted.
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

/// Puts of a word to several processes, then a fence of all. The reference is a put and a fence to
/// each in sequence.
fn fences(e: &Ensemble<'_>, armci: &Armci) -> hydrant::Result<()> {
    let ranks = e.job.size();
    let parts = raised(armci.malloc(i64::from(ranks) * 8))?;
    let word = 1_u64;
    let put = |other: u32| {
        let proc = (e.rank() + 1 + other) % ranks;
        // Every rank has a word of its own there.
        let there = parts[proc as usize].wrapping_add(8 * e.rank() as usize);
        let from = std::ptr::from_ref(&word).cast();
        // SAFETY: the word belongs to this rank alone. It is another process's memory, and ARMCI
        // checks its bounds.
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
