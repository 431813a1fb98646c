//! Figures 8 to 11: the bandwidth of ARMCI's get and put, of contiguous and of strided data, on VIA
//! and on GM.

#![allow(unsafe_code)] // ARMCI names memory by its address

use std::time::Duration;

use armci::{Armci, Strides};
use hydrant::{Job, Strategy};

use super::super::job::{FIRST, MB, PAGE, SECOND, SPARE, Setup, aligned, bandwidth, timed};
use super::super::part::{Part, Sheet};
use super::super::pindown::crossover;
use super::super::published::value;
use super::super::{ExperimentInputs, PaperResult};
use super::{ArmciWorld, GM, VIA, picture, raised};
use hydrant_report::plot::{self, Series, SeriesKind};
use hydrant_report::units;

/// Bytes of an element.
const DOUBLE: usize = 8;

/// The note below every figure.
const MPI: &str = "The paper's curves of MPI are MPICH-GM's and MVICH's: they are the paper's alone, \
                   and not simulated here. The paper has the plots but not their numbers; what its \
                   text says of them is what is compared.";

/// The settings of a figure.
struct Plot {
    id: &'static str,
    number: u32,
    network: &'static str,
    machine: &'static str,
    is_strided: bool,
}

/// Figure 8: contiguous, VIA.
pub(in super::super) fn figure_8(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let (mut part, series) = figure(
        inputs,
        &Plot {
            id: "armci-figure-8",
            number: 8,
            network: "cLAN VIA",
            machine: VIA,
            is_strided: false,
        },
    )?;
    expect_put(&mut part, &series);
    expect_rate(&mut part, &series[1], value("armci", "via_rate")?);
    Ok(part)
}

/// Figure 9: strided, VIA.
pub(in super::super) fn figure_9(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let (mut part, series) = figure(
        inputs,
        &Plot {
            id: "armci-figure-9",
            number: 9,
            network: "cLAN VIA",
            machine: VIA,
            is_strided: true,
        },
    )?;
    expect_gap(&mut part, &series);
    Ok(part)
}

/// Figure 10: contiguous, GM.
pub(in super::super) fn figure_10(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let (mut part, series) = figure(
        inputs,
        &Plot {
            id: "armci-figure-10",
            number: 10,
            network: "Myrinet GM",
            machine: GM,
            is_strided: false,
        },
    )?;
    expect_put(&mut part, &series);
    expect_rate(&mut part, &series[1], value("armci", "gm_rate")?);
    Ok(part)
}

/// Figure 11: strided, GM.
pub(in super::super) fn figure_11(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let (mut part, series) = figure(
        inputs,
        &Plot {
            id: "armci-figure-11",
            number: 11,
            network: "Myrinet GM",
            machine: GM,
            is_strided: true,
        },
    )?;
    expect_gap(&mut part, &series);
    Ok(part)
}

fn expect_put(part: &mut Part, series: &[Series]) {
    let (put, get) = (&series[1], &series[0]);
    let from = crossover(put, get);
    part.expect(
        "put is ahead of get for medium and large requests",
        "superior for medium and large requests",
        from.map_or("never".to_owned(), |size| {
            format!("from {} on", units::bytes(size.round()))
        }),
        from.is_some_and(|size| size <= 65536.0),
        "a put ends for its caller when its last chunk was sent, and the next one follows it at once",
    );
}

fn expect_rate(part: &mut Part, put: &Series, rate: f64) {
    let best = put.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    part.expect(
        "contiguous put reaches the rate of the network",
        "within 5 % of GM alone on registered memory; on VIA less, for its MTU",
        format!("{:.0} MB/s, {:.0} % of the rate", best, best / rate * 100.0),
        best >= 0.75 * rate,
        "ours is compared with the rate that the link is said to have, the paper's with what GM alone \
         reached. What is lacking is probably the first chunk's copy at one end and the last one's at the \
         other, which nothing covers; that was not tried by itself",
    );
}

fn expect_gap(part: &mut Part, series: &[Series]) {
    let gap = |strided: &Series, contiguous: &Series| {
        let last = |series: &Series| series.points.last().map_or(f64::NAN, |(_, y)| *y);
        last(strided) / last(contiguous)
    };
    let gaps = [gap(&series[0], &series[2]), gap(&series[1], &series[3])];
    part.expect(
        "strided is not far behind contiguous, at the largest size",
        "the gap is smaller than under MPI, and not eliminated",
        format!(
            "get {:.0} %, put {:.0} % of contiguous",
            gaps[0] * 100.0,
            gaps[1] * 100.0
        ),
        gaps.iter().all(|gap| *gap >= 0.6),
        "the paper's gap is that of its copy, fastest for pieces above 2048 bytes, while the profile's is \
         as fast for rows as for bytes that follow each other, so that little is left of the gap here. \
         Where ours is ahead, it is probably for messages that hold more of a section than a chunk holds \
         of bytes in a row; that was not tried by itself",
    );
}

fn figure(inputs: &ExperimentInputs<'_>, plot: &Plot) -> PaperResult<(Part, Vec<Series>)> {
    let what = if plot.is_strided {
        "strided"
    } else {
        "contiguous"
    };
    let mut part = Part::new(
        plot.id,
        format!(
            "ARMCI, figure {}: get and put of {what} data on {}",
            plot.number, plot.network
        ),
    );
    part.note(
        "One rank gets from the other and puts to it, one operation after the other, by the crate \
         `armci`; the other computes, so that its host attends by interrupts. A series of puts ends \
         with a fence, the time of which counts. Data is streamed through registered buffers \
         (strategy bounce), as the paper's pipelined protocol does.",
    );
    part.note(MPI);
    if plot.is_strided {
        part.note(
            "A section is a square of n by n doubles on both sides, of arrays that are twice as \
             wide: the paper does not say so, but that pieces of 2048 bytes are exceeded from 0.5 MB \
             on is what squares of doubles do.",
        );
    } else {
        part.note(
            "With firehose, Hydrant's own strategy, memory stays registered: puts go without copies, \
             which ARMCI did not have for memory of the user's. These NICs do not read, so that a get \
             under firehose is a write of the other rank, whose computation is interrupted by the request \
             and by the end of the write.",
        );
    }
    let mut series = Vec::new();
    let runs: &[(Strategy, bool, &str)] = if plot.is_strided {
        &[
            (Strategy::Bounce, true, "strided"),
            (Strategy::Bounce, false, "contiguous"),
        ]
    } else {
        &[
            (Strategy::Bounce, false, "streamed"),
            (Strategy::Firehose, false, "firehose"),
        ]
    };
    for (number, (strategy, is_strided, name)) in runs.iter().enumerate() {
        inputs.doing(format!("ARMCI: figure {}, {name}", plot.number));
        let points = measure(inputs, plot.machine, *strategy, *is_strided)?;
        for (operation, which) in [("get", 0), ("put", 1)] {
            series.push(Series {
                name: format!("{operation}, {name}"),
                kind: if number > 0 && plot.is_strided {
                    SeriesKind::Reference
                } else {
                    SeriesKind::Ours
                },
                colour: 2 * number + which,
                points: (points.iter())
                    .map(|(size, times)| (*size as f64, bandwidth(*size as u64, times[which])))
                    .collect(),
            });
        }
    }
    part.sheets.push(Sheet::of_series(
        plot.id,
        format!("figure {}", plot.number),
        "bytes",
        "mbs",
        &series,
    ));
    part.pictures.push(picture(
        plot.id,
        &part.title,
        &format!("sim:{}", plot.machine),
        plot::Scale::Plain,
        series.clone(),
    ));
    Ok((part, series))
}

/// The mean times of a get and of a put, by size.
fn measure(
    inputs: &ExperimentInputs<'_>,
    machine: &str,
    strategy: Strategy,
    is_strided: bool,
) -> PaperResult<Vec<(usize, [Duration; 2])>> {
    // The sides of the squares; the sizes follow from them.
    let sides: Vec<usize> = (0..=9)
        .step_by(inputs.pick(1, 3))
        .map(|bits| 1 << bits)
        .collect();
    let rounds = inputs.pick(8, 4);
    let mut setup = Setup::new(machine, strategy, 128 * MB, 64 * MB);
    setup.bucket = 16 * PAGE;
    setup.heap = 32 << 20;
    setup.run(|job| {
        let world = ArmciWorld::new(job)?;
        let largest = sides.last().map_or(0, |side| side * side * DOUBLE);
        let there = world.memory(2 * largest)?;
        let times = world.while_others_compute(job, || {
            let mut own = vec![0_u8; 2 * largest + SPARE];
            let start = aligned(&own);
            let own = own[start..].as_mut_ptr();
            let mut times = Vec::new();
            for &side in &sides {
                let bytes = side * side * DOUBLE;
                let square = Square {
                    armci: &world.armci,
                    there,
                    own,
                    side,
                    is_strided,
                };
                times.push((bytes, square.times(job, rounds)?));
            }
            Ok(times)
        })?;
        Ok(times.unwrap_or_default())
    })
}

/// A square of doubles on both sides, or as many contiguous bytes.
struct Square<'a> {
    armci: &'a Armci,
    there: *mut u8,
    own: *mut u8,
    side: usize,
    is_strided: bool,
}

impl Square<'_> {
    /// The times of a get and of a put.
    fn times(&self, job: &Job, rounds: u32) -> hydrant::Result<[Duration; 2]> {
        debug_assert!(job.rank() == FIRST);
        let mut times = [Duration::ZERO; 2];
        for (time, gets) in times.iter_mut().zip([true, false]) {
            self.once(gets)?;
            let all = timed(job, || {
                (0..rounds).try_for_each(|_| self.once(gets))?;
                raised(self.armci.fence(SECOND.0 as i32))
            })?;
            *time = all / rounds;
        }
        Ok(times)
    }

    fn once(&self, gets: bool) -> hydrant::Result<()> {
        let (armci, own, there, proc) = (self.armci, self.own, self.there, SECOND.0 as i32);
        let row = (self.side * DOUBLE) as i32;
        let strides = Strides {
            src: &[2 * row],
            dst: &[2 * row],
            count: &[row, self.side as i32],
        };
        let bytes = row * self.side as i32;
        // `measure` allocated memory on both sides for the largest square, and nobody else uses it.
        raised(match (self.is_strided, gets) {
            // SAFETY: 1. and 2. the memory that `measure` allocated.
            (true, true) => unsafe { armci.get_strided(there, own, strides, proc) },
            // SAFETY: 1. and 2. the memory that `measure` allocated.
            (true, false) => unsafe { armci.put_strided(own, there, strides, proc) },
            // SAFETY: 1. and 2. the memory that `measure` allocated.
            (false, true) => unsafe { armci.get(there, own, bytes, proc) },
            // SAFETY: 1. and 2. the memory that `measure` allocated.
            (false, false) => unsafe { armci.put(own, there, bytes, proc) },
        })
    }
}
