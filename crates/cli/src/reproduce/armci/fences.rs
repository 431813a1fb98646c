//! Figure 12: how much sooner a fence of all processes ends that has several requests outstanding.

#![allow(unsafe_code)] // ARMCI names memory by its address

use std::time::Duration;

use hydrant::{Job, Op, Strategy};

use super::super::Scope;
use super::super::job::{FIRST, MB, Setup, micros, timed};
use super::super::part::{Part, Picture, Sheet};
use super::{GM, Outcome, World, raised};
use crate::plot::{self, Figure, Kind, Panel, Series};
use crate::units;

/// One process speaks to all the others: seven.
const RANKS: u32 = 8;

/// Requests that are outstanding at once.
const OUTSTANDING: [u32; 4] = [1, 3, 5, 7];

/// Figure 12.
pub(in super::super) fn figure_12(scope: &Scope<'_>) -> Outcome<Part> {
    let id = "armci-figure-12";
    let mut part = Part::new(
        id,
        "ARMCI, figure 12: a fence of all processes, by requests outstanding",
    );
    part.note(
        "Eight ranks on Myrinet, each on a host of its own. One of them, or all at once, put a word to \
         each of the seven others and fence them, by the crate `armci`: to so many at a time, which are \
         then waited for. The paper's fence asks the server; ours waits for what says that the \
         puts are done, so that requests outstanding are puts that are not known to be done, and with \
         seven of them it is ARMCI's AllFence. Each caller begins with its right neighbour, where the \
         paper's order is random. The paper has the plot but not its numbers.",
    );
    scope.doing("ARMCI: figure 12");
    let rounds = scope.pick(16, 2);
    let times = measure(rounds)?;
    let names = ["one process calls", "all processes call"];
    let mut sheet = Sheet::new(
        "armci-figure-12-times",
        "AllFence after puts of a word to seven processes",
        &["outstanding", "one_calls_us", "all_call_us"],
    );
    for (outstanding, [one, all]) in OUTSTANDING.iter().zip(&times) {
        let numbers = [f64::from(*outstanding), micros(*one), micros(*all)];
        sheet.row(numbers.map(Into::into));
    }
    let series: Vec<Series> = (names.iter().enumerate())
        .map(|(who, name)| Series {
            name: (*name).to_owned(),
            kind: Kind::Ours,
            colour: who,
            points: (OUTSTANDING.iter().zip(&times))
                .map(|(outstanding, time)| {
                    let before = times[0][who].as_secs_f64();
                    (f64::from(*outstanding), before / time[who].as_secs_f64())
                })
                .collect(),
        })
        .collect();
    let lead = |who: usize| -> Vec<f64> { series[who].points.iter().map(|(_, y)| *y).collect() };
    let in_words = |lead: &[f64]| {
        let words: Vec<String> = lead[1..].iter().map(|it| units::digits(*it)).collect();
        format!("{} × as fast", words.join(", "))
    };
    let (one, all) = (lead(0), lead(1));
    part.expect(
        "3, 5 and 7 outstanding are faster, the more the better, for one that calls",
        "an improvement with 3, 5 and 7",
        in_words(&one),
        one.windows(2).all(|two| two[0] < two[1]),
        "",
    );
    part.expect(
        "the improvement is lower where all call",
        "lower for all processes making the call",
        in_words(&all),
        one.iter().zip(&all).skip(1).all(|(one, all)| all < one),
        "the paper's servers have as much more to do as there are callers, and wake for each. Ours have \
         nothing to do for a fence, and a put costs the processor of a target that itself waits for its \
         fences a poll and no interrupt, so that what all do at once is limited by the NICs alone",
    );
    part.sheets.push(sheet);
    part.sheets.push(Sheet::of_series(
        id,
        "figure 12",
        "outstanding",
        "times",
        &series,
    ));
    part.pictures.push(Picture {
        name: id.to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: format!("sim:{GM}"),
            panels: vec![Panel::Curves {
                title: "times as fast as one at a time".to_owned(),
                x: plot::Axis {
                    label: "outstanding",
                    scale: plot::Scale::Plain,
                    words: units::digits,
                },
                y: plot::Axis {
                    label: "times",
                    scale: plot::Scale::Plain,
                    words: units::digits,
                },
                series,
                marks: Vec::new(),
            }],
        },
    });
    Ok(part)
}

/// The mean times, by requests outstanding: where one calls, and the longest where all do.
fn measure(rounds: u32) -> Outcome<Vec<[Duration; 2]>> {
    let mut setup = Setup::new(GM, Strategy::Bounce, 128 * MB, 64 * MB);
    setup.ranks = RANKS;
    setup.run(|job| {
        let world = World::new(job)?;
        let parts = raised(world.armci.malloc(8 * i64::from(RANKS)))?;
        let mut times = Vec::new();
        for outstanding in OUTSTANDING {
            let call = || {
                fence(job, &world, &parts, outstanding)?;
                let all = timed(job, || {
                    (0..rounds).try_for_each(|_| fence(job, &world, &parts, outstanding))
                })?;
                Ok(all / rounds)
            };
            let one = world.while_others_compute(job, call)?.unwrap_or_default();
            let mut all = [call()?.as_nanos() as u64];
            job.world().all_reduce(&mut all, Op::Max)?;
            times.push([one, Duration::from_nanos(all[0])]);
        }
        debug_assert!(job.rank() != FIRST || times.len() == OUTSTANDING.len());
        Ok(times)
    })
}

/// Puts a word to each of the others and fences it, to so many at a time.
fn fence(job: &Job, world: &World, parts: &[*mut u8], outstanding: u32) -> hydrant::Result<()> {
    let (own, word) = (job.rank().index(), 1_u64);
    let others: Vec<usize> = (1..RANKS as usize)
        .map(|other| (own + other) % RANKS as usize)
        .collect();
    for some in others.chunks(outstanding as usize) {
        for &other in some {
            let (from, to) = (std::ptr::from_ref(&word).cast(), parts[other]);
            // SAFETY: a word of this rank's own; each rank has a word of its own in `to`, which is
            // another process's memory.
            raised(unsafe { (world.armci).put(from, to.wrapping_add(8 * own), 8, other as i32) })?;
        }
        match outstanding + 1 == RANKS {
            true => raised(world.armci.all_fence())?,
            false => {
                (some.iter()).try_for_each(|other| raised(world.armci.fence(*other as i32)))?
            }
        }
    }
    Ok(())
}
