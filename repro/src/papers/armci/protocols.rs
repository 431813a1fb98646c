//! ARMCI's figures 2, 6 and 7 (Nieplocha et al. 2002, §3, §4): registration compared with copying,
//! and gets without copies, streamed, and pipelined.

use std::time::Duration;

use hydrant::{Job, Rank, Result, Strategy};
use hydrant_sim::Profile;

use super::super::job::{FIRST, MB, PAGE, SECOND, SPARE, Setup, aligned, bandwidth, memory, timed};
use super::super::part::{Part, Sheet};
use super::super::pindown::crossover;
use super::super::{ExperimentInputs, PaperResult};
use super::{GM, VIA, picture};
use hydrant_report::plot::{self, Series, SeriesKind};
use hydrant_report::units;

/// Figure 2: the bandwidth of registering and deregistering, and of copying.
pub(in super::super) fn figure_2(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    inputs.doing("ARMCI: figure 2");
    let mut series = Vec::new();
    let sizes: Vec<usize> = (3..=22).map(|bits| 1 << bits).collect();
    for (colour, (name, machine)) in [("VIA", VIA), ("GM", GM)].into_iter().enumerate() {
        let profile = Profile::named(machine)?;
        let costs = profile.registration();
        let (per_op, per_page) = (
            costs.register_op.as_ns() + costs.deregister_op.as_ns(),
            costs.register_page.as_ns() + costs.deregister_page.as_ns(),
        );
        let rate = |bytes: usize| {
            let nanos = per_op + per_page * bytes.div_ceil(PAGE) as f64;
            (bytes as f64, bytes as f64 * 1e3 / nanos)
        };
        series.push(Series {
            name: format!("register + deregister, {name}"),
            kind: SeriesKind::Ours,
            colour,
            points: sizes.iter().map(|bytes| rate(*bytes)).collect(),
        });
    }
    let profile = Profile::named(VIA)?;
    let copying = |bytes: usize| {
        let copies = &profile.host().copy;
        let fits = copies.iter().find(|(up_to, _)| bytes <= *up_to);
        let rate = fits.map_or(f64::NAN, |(_, rate)| rate.bytes_per_second());
        (bytes as f64, rate / 1e6)
    };
    series.push(Series {
        name: "copy, Pentium III".to_owned(),
        kind: SeriesKind::Reference,
        colour: 7,
        points: sizes.iter().map(|bytes| copying(*bytes)).collect(),
    });
    let mut part = Part::new(
        "armci-figure-2",
        "ARMCI, figure 2: registering memory against copying it",
    );
    part.note(
        "This is what the two profiles say, not a measurement: bytes by the time of one \
         registration and deregistration, and by the time of a copy. The paper has the plot but \
         not its numbers; where the profiles' figures come from stands beside them in \
         crates/sim/profiles. Both axes are logarithmic, as the paper's.",
    );
    let crossing = crossover(&series[0], &series[2]);
    part.expect(
        "VIA: copying is faster for small and medium sizes, registering above",
        "memory copy is faster for small and medium requests",
        crossing.map_or("never".to_owned(), |size| {
            format!("above {}", units::bytes(size.round()))
        }),
        crossing.is_some_and(|size| (512.0..=262_144.0).contains(&size)),
        "",
    );
    let never =
        (series[1].points.iter().zip(&series[2].points)).all(|((_, gm), (_, copy))| gm < copy);
    part.expect(
        "GM: copying is faster at every size",
        "deregistration is a function of the number of pages",
        if never { "so, up to 4 MiB" } else { "not so" },
        never,
        "",
    );
    part.sheets.push(Sheet::of_series(
        "armci-figure-2",
        "figure 2",
        "bytes",
        "mbs",
        &series,
    ));
    part.pictures.push(picture(
        "armci-figure-2",
        &part.title,
        "the profiles clan-via and myrinet-gm-armci",
        plot::Scale::Tens,
        series,
    ));
    Ok(part)
}

/// Figure 6: gets on VIA.
pub(in super::super) fn figure_6(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let (mut part, series) = gets(inputs, "armci-figure-6", "6", "cLAN VIA", VIA)?;
    let [zero, baseline, pipelined] = &series[..] else {
        return Ok(part);
    };
    let crossing = crossover(zero, pipelined);
    let smallest = series_lead(zero, pipelined)
        .first()
        .copied()
        .unwrap_or(f64::NAN);
    part.expect(
        "zero copy wins but for small messages",
        "most competitive for all but small messages",
        crossing.map_or("never".to_owned(), |size| {
            format!("from {} on", units::bytes(size.round()))
        }),
        crossing.is_some_and(|size| size <= 65536.0) && smallest < 1.0,
        "both sides register at once, as ARMCI's do. But the profile's packets of 64 KB pass the \
         sender's NIC, the wire and the receiver's NIC one after the other, and chunks of the pipeline \
         are shorter packets, of which the first are the shortest. With packets of 4 KB, and before \
         chunks began short, zero copy won from 64 to 256 KB and was 3 % slower above, where all of a \
         piece is registered before any of it moves",
    );
    let lead = series_lead(pipelined, zero)
        .last()
        .copied()
        .unwrap_or(f64::NAN);
    part.expect(
        "the pipeline is almost as good as zero copy for large ones",
        "almost as good",
        format!("{:.0} % of it", lead * 100.0),
        lead >= 0.75,
        "three chunks of a message's payload are under way at once in ours; the paper's chunks \
         adapt up to a buffer of 400 KB",
    );
    expect_streaming(&mut part, pipelined, baseline);
    part.pictures.push(picture(
        "armci-figure-6",
        &part.title,
        "sim:clan-via",
        plot::Scale::Plain,
        series,
    ));
    Ok(part)
}

/// Figure 7: gets on GM.
pub(in super::super) fn figure_7(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let (mut part, series) = gets(inputs, "armci-figure-7", "7", "Myrinet GM", GM)?;
    let [zero, baseline, pipelined] = &series[..] else {
        return Ok(part);
    };
    let lead = series_lead(pipelined, zero);
    let least = lead.iter().copied().fold(f64::INFINITY, f64::min);
    part.expect(
        "zero copy loses to the pipeline at every size",
        "performs rather poorly",
        format!(
            "the pipeline is at least {} × as fast",
            units::digits(least)
        ),
        least > 1.0,
        "",
    );
    expect_streaming(&mut part, pipelined, baseline);
    part.pictures.push(picture(
        "armci-figure-7",
        &part.title,
        "sim:myrinet-gm-armci",
        plot::Scale::Plain,
        series,
    ));
    Ok(part)
}

fn expect_streaming(part: &mut Part, pipelined: &Series, baseline: &Series) {
    let lead = series_lead(pipelined, baseline);
    let last = lead.last().copied().unwrap_or(f64::NAN);
    part.expect(
        "the pipeline beats streaming one chunk at a time, for large ones",
        "pipelined above baseline",
        format!("{} ×", units::digits(last)),
        last > 1.1,
        "",
    );
}

/// The speed of one series relative to the other, size by size.
fn series_lead(one: &Series, other: &Series) -> Vec<f64> {
    (one.points.iter().zip(&other.points))
        .map(|((_, a), (_, b))| a / b)
        .collect()
}

fn gets(
    inputs: &ExperimentInputs<'_>,
    id: &'static str,
    figure: &str,
    network: &str,
    machine: &str,
) -> PaperResult<(Part, Vec<Series>)> {
    let sizes: Vec<usize> = (3..=21)
        .step_by(inputs.pick(1, 3))
        .map(|bits| 1 << bits)
        .collect();
    let rounds = inputs.pick(8, 2);
    let mut part = Part::new(
        id,
        format!("ARMCI, figure {figure}: gets by three protocols on {network}"),
    );
    part.note(
        "One rank gets from the other, one get after the other. Zero copy registers both sides for \
         each get, one under the message about the other, and deregisters them (strategy \
         on-demand; buckets of 64 KB, so a small get registers that much). The baseline asks for one message's payload after the other, each copied at \
         both ends (remote calls). The pipeline has several chunks under way at once, sized by the \
         request (strategy bounce).",
    );
    let on_demand = Strategy::OnDemand {
        leave_pinned: false,
    };
    let mut series = Vec::new();
    for (colour, (name, strategy, calls)) in [
        ("zero copy", on_demand, false),
        ("streaming, baseline", Strategy::Bounce, true),
        ("streaming, pipelined", Strategy::Bounce, false),
    ]
    .into_iter()
    .enumerate()
    {
        inputs.doing(format!("ARMCI: figure {figure}, {name}"));
        let mut setup = Setup::new(machine, strategy, 128 * MB, 64 * MB);
        // Where the NIC cannot read, a get without copies is in pieces of 32 buckets.
        setup.bucket = 16 * PAGE;
        let points = setup.run(|job| {
            let times = if calls {
                by_calls(job, &sizes, rounds)?
            } else {
                direct(job, &sizes, rounds)?
            };
            job.barrier()?;
            Ok(times)
        })?;
        series.push(Series {
            name: name.to_owned(),
            kind: SeriesKind::Ours,
            colour,
            points: (points.iter())
                .map(|(size, time)| (*size as f64, bandwidth(*size as u64, *time)))
                .collect(),
        });
    }
    part.sheets.push(Sheet::of_series(
        id,
        format!("figure {figure}"),
        "bytes",
        "mbs",
        &series,
    ));
    Ok((part, series))
}

/// Gets by the library itself. Returns the mean time by size.
fn direct(job: &Job, sizes: &[usize], rounds: usize) -> Result<Vec<(usize, Duration)>> {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let source = memory(job, largest as u64)?;
    let mut times = Vec::new();
    if job.rank() == FIRST {
        let mut into = vec![0_u8; largest + SPARE];
        let start = aligned(&into);
        let into = &mut into[start..];
        for &size in sizes {
            source.get(SECOND, 0, &mut into[..size])?;
            let time = timed(job, || {
                (0..rounds).try_for_each(|_| source.get(SECOND, 0, &mut into[..size]))
            })?;
            times.push((size, time / rounds as u32));
        }
    }
    Ok(times)
}

/// Chunks in sequence, each a remote call whose result is the data.
fn by_calls(job: &Job, sizes: &[usize], rounds: usize) -> Result<Vec<(usize, Duration)>> {
    let fetch = job.function(|_: Rank, bytes: u32| vec![1_u8; bytes as usize])?;
    // The header of a result.
    let most = job.limits().max_medium - 16;
    let mut times = Vec::new();
    if job.rank() == FIRST {
        for &size in sizes {
            let time = timed(job, || {
                for _ in 0..rounds {
                    let mut left = size;
                    while left > 0 {
                        let chunk = left.min(most);
                        left -= job.call(SECOND, &fetch, &(chunk as u32))?.len();
                    }
                }
                Ok(())
            })?;
            times.push((size, time / rounds as u32));
        }
    }
    Ok(times)
}
