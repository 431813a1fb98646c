//! Figure 12: the gain of a fence of all processes that has several requests in flight.

#![allow(unsafe_code)] // ARMCI names memory by its address

use std::time::Duration;

use hydrant::{Function, Job, Op, Rank, Strategy};

use super::super::job::{MB, Setup, micros, timed};
use super::super::part::{Part, Picture, Sheet};
use super::super::{ExperimentInputs, PaperResult};
use super::{ArmciWorld, GM, raised};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

/// One process talks to all seven others.
const RANKS: u32 = 8;

/// Requests in flight at once.
const OUTSTANDING: [u32; 4] = [1, 3, 5, 7];

/// The note about the limits of requests.
const REQUESTS: &str = "the processes that all call attend to each other's requests as they wait, without an \
                        interrupt, so that even one request at a time takes less than where the others \
                        compute";

/// The note about the limit of a fence by copies.
const COPIES: &str =
    "the processes that all call attend to each other's puts as they wait, as they do to requests";

/// Figure 12.
pub(in super::super) fn figure_12(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let id = "armci-figure-12";
    let mut part = Part::new(
        id,
        "ARMCI, figure 12: a fence of all processes, by requests outstanding",
    );
    part.note(
        "Eight ranks on Myrinet, each on a host of its own. One of them, or all at once, fence the seven \
         others, so many at a time. With requests, as the paper has it, each server is asked by a message \
         (a remote call) and answers. By the crate `armci` a word is put to each (NbPut) and then fenced: \
         nobody is asked, for each put has a ticket that says when it is done, and with seven at a time it \
         is ARMCI's AllFence. With copies (strategy bounce) the servers' processors store what is put, as \
         ARMCI's do; without (firehose) NICs do, and callers meet at NICs alone, where seven words of eight \
         bytes are nothing, so that it makes no difference how many call: the paper has no such protocol \
         to compare that with. While one calls the others compute. Each caller begins with its right \
         neighbour, where the paper's order is random. The paper has the plot but not its numbers.",
    );
    inputs.doing("ARMCI: figure 12");
    let rounds = inputs.pick(16, 2);
    // Without copies, memory is registered once, and the NIC puts by itself.
    let (requests, copies, armci) = (
        measure(FenceCall::Requests, Strategy::Firehose, rounds)?,
        measure(FenceCall::Armci, Strategy::Bounce, rounds)?,
        measure(FenceCall::Armci, Strategy::Firehose, rounds)?,
    );
    let mut sheet = Sheet::new(
        "armci-figure-12-times",
        "a fence of seven processes",
        &[
            "outstanding",
            "requests_one_calls_us",
            "requests_all_call_us",
            "armci_copies_one_calls_us",
            "armci_copies_all_call_us",
            "armci_one_calls_us",
            "armci_all_call_us",
        ],
    );
    for (at, outstanding) in OUTSTANDING.into_iter().enumerate() {
        let times = [requests[at], copies[at], armci[at]].concat();
        let times = times.into_iter().map(micros);
        sheet.row(
            std::iter::once(f64::from(outstanding))
                .chain(times)
                .map(Into::into),
        );
    }
    let mut series = Vec::new();
    for (name, times) in [
        ("requests", &requests),
        ("armci, copies", &copies),
        ("armci", &armci),
    ] {
        for (who, caller) in ["one process calls", "all call"].into_iter().enumerate() {
            let faster = |(outstanding, time): (&u32, &[Duration; 2])| {
                let before = times[0][who].as_secs_f64();
                (f64::from(*outstanding), before / time[who].as_secs_f64())
            };
            series.push(Series {
                name: format!("{name}, {caller}"),
                kind: SeriesKind::Ours,
                colour: series.len(),
                points: OUTSTANDING.iter().zip(times).map(faster).collect(),
            });
        }
    }
    let lead =
        |which: usize| -> Vec<f64> { series[which].points.iter().map(|(_, y)| *y).collect() };
    let in_words = |lead: &[f64]| {
        let words: Vec<String> = lead[1..].iter().map(|it| units::digits(*it)).collect();
        format!("{} × as fast", words.join(", "))
    };
    for (name, [one, all], why) in [
        ("requests", [lead(0), lead(1)], REQUESTS),
        ("armci, copies", [lead(2), lead(3)], COPIES),
    ] {
        part.expect(
            format!("{name}: 3, 5 and 7 outstanding are faster for one that calls"),
            "an improvement with 3, 5 and 7",
            in_words(&one),
            one[1..].iter().all(|lead| *lead > 1.05),
            why,
        );
        part.expect(
            format!("{name}: the improvement is lower where all call"),
            "lower for all processes making the call",
            in_words(&all),
            one.iter().zip(&all).skip(1).all(|(one, all)| all < one),
            why,
        );
    }
    let one = lead(4);
    part.expect(
        "armci: 3, 5 and 7 outstanding are faster for one that calls",
        "an improvement with 3, 5 and 7",
        in_words(&one),
        one[1..].iter().all(|lead| *lead > 1.05),
        "",
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

/// The way that a process asks for a fence.
#[derive(Clone, Copy)]
enum FenceCall {
    /// By a request to each server, which answers.
    Requests,
    /// By the crate `armci`.
    Armci,
}

/// The mean times for each number of requests in flight: where one process calls, and the longest
/// where all call.
fn measure(way: FenceCall, strategy: Strategy, rounds: u32) -> PaperResult<Vec<[Duration; 2]>> {
    let mut setup = Setup::new(GM, strategy, 128 * MB, 64 * MB);
    setup.ranks = RANKS;
    setup.run(|job| {
        let fences = Fences {
            job,
            way,
            world: ArmciWorld::new(job)?,
            parts: vec![std::ptr::null_mut(); RANKS as usize],
            request: job.function(|_: Rank, word: u64| word)?,
        };
        let parts = raised(fences.world.armci.malloc(8 * i64::from(RANKS)))?;
        let fences = Fences { parts, ..fences };
        let mut times = Vec::new();
        for outstanding in OUTSTANDING {
            // The registrations of the first call stay.
            fences.call(1)?;
            job.barrier()?;
            let call = || {
                let all = timed(job, || {
                    (0..rounds).try_for_each(|_| fences.call(outstanding as usize))
                })?;
                Ok(all / rounds)
            };
            let world = &fences.world;
            let one = world.while_others_compute(job, call)?.unwrap_or_default();
            let mut all = [call()?.as_nanos() as u64];
            job.world().all_reduce(&mut all, Op::Max)?;
            times.push([one, Duration::from_nanos(all[0])]);
        }
        Ok(times)
    })
}

struct Fences<'a> {
    job: &'a Job,
    way: FenceCall,
    world: ArmciWorld,
    parts: Vec<*mut u8>,
    request: Function<u64, u64>,
}

impl Fences<'_> {
    /// Fences each of the others, with `outstanding` requests in flight.
    fn call(&self, outstanding: usize) -> hydrant::Result<()> {
        let own = self.job.rank().index();
        let others: Vec<usize> = (1..RANKS as usize)
            .map(|other| (own + other) % RANKS as usize)
            .collect();
        (others.chunks(outstanding)).try_for_each(|some| match self.way {
            FenceCall::Requests => {
                let ask = |other: &usize| self.job.call_nb(Rank(*other as u32), &self.request, &1);
                let asked: hydrant::Result<Vec<_>> = some.iter().map(ask).collect();
                asked?.into_iter().try_for_each(|it| it.wait().map(drop))
            }
            FenceCall::Armci => self.put_and_fence(some),
        })
    }

    fn put_and_fence(&self, some: &[usize]) -> hydrant::Result<()> {
        let (armci, own) = (&self.world.armci, self.job.rank().index());
        static WORD: u64 = 1;
        for &other in some {
            let to = self.parts[other].wrapping_add(8 * own);
            let from = std::ptr::from_ref(&WORD).cast();
            // SAFETY: nobody writes to a constant. Each rank has a word of its own in `to`, which
            // is another process's memory.
            raised(unsafe { armci.put_nb(from, to, 8, other as i32, None) })?;
        }
        if some.len() + 1 == RANKS as usize {
            raised(armci.all_fence())
        } else {
            some.iter()
                .try_for_each(|other| raised(armci.fence(*other as i32)))
        }
    }
}
