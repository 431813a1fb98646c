//! Figure 5: the bandwidth of puts to one address, by size.

use hydrant::Strategy;

use super::LIMITS;
use super::random::{BANDWIDTH, MACHINE, NO_UNPIN, UNPIN, picture};
use crate::papers::job::{FIRST, MB, SECOND, SPARE, Setup, aligned, bandwidth, memory, timed};
use crate::papers::part::{Part, Sheet};
use crate::papers::{ExperimentInputs, PaperResult};
use hydrant_report::plot::{self, Panel, Series, SeriesKind};
use hydrant_report::units;

/// Figure 5: the bandwidth of puts to one address, by size.
pub(in crate::papers) fn figure_5(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let sizes: Vec<usize> = (3..=21)
        .step_by(inputs.pick(1, 3))
        .map(|bits| 1 << bits)
        .collect();
    let largest = sizes.last().copied().unwrap_or(8);
    let rounds = inputs.pick(8, 2);
    let mut series = Vec::new();
    for (colour, (strategy, name)) in [
        (Strategy::Firehose, "firehose"),
        (NO_UNPIN, "rendezvous no-unpin"),
        (UNPIN, "rendezvous with unpin"),
    ]
    .into_iter()
    .enumerate()
    {
        inputs.doing(format!("firehose: figure 5, {strategy}"));
        let setup = Setup::new(MACHINE, strategy, LIMITS.0 * MB, LIMITS.1 * MB);
        let points = setup.run(|job| {
            let target = memory(job, largest as u64)?;
            let mut points = Vec::new();
            if job.rank() == FIRST {
                let source = vec![1_u8; largest + SPARE];
                let source = &source[aligned(&source)..];
                for &size in &sizes {
                    let put = || target.put(SECOND, 0, &source[..size]);
                    put()?;
                    let time = timed(job, || {
                        for _ in 0..rounds {
                            job.scope(|scope| {
                                for _ in 0..8 {
                                    scope.put(&target, SECOND, 0, &source[..size])?;
                                }
                                Ok(())
                            })?;
                        }
                        Ok(())
                    })?;
                    points.push((size as f64, bandwidth((8 * rounds * size) as u64, time)));
                }
            }
            job.barrier()?;
            Ok(points)
        })?;
        series.push(Series {
            name: name.to_owned(),
            kind: SeriesKind::Ours,
            colour,
            points,
        });
    }
    let mut part = Part::new(
        "firehose-figure-5",
        "Firehose, figure 5: peak bandwidth to one place, by size",
    );
    part.note("Puts from one place to one place, eight of them under way at once.");
    let above = |over: &Series, under: &Series| {
        (over.points.iter().zip(&under.points)).all(|((_, a), (_, b))| *a >= 0.98 * b)
    };
    let lead = |size: f64| {
        let at = |of: &Series| {
            (of.points.iter())
                .find(|(x, _)| *x >= size)
                .map_or(f64::NAN, |(_, y)| *y)
        };
        at(&series[0]) / at(&series[1])
    };
    part.expect(
        "firehose above no-unpin (or within 2 % of it) above with unpin, at every size",
        "“by a noticeable margin”",
        format!(
            "firehose {:.2} × no-unpin at 4 KB, {:.2} × at 64 KB",
            lead(4096.0),
            lead(65536.0)
        ),
        above(&series[0], &series[1]) && above(&series[1], &series[2]),
        "above 16 KB the two are level: probably the round trips of large puts pass under the data of \
         the other seven that are under way",
    );
    part.sheets.push(Sheet::of_series(
        "firehose-figure-5",
        "figure 5",
        "bytes",
        "mbs",
        &series,
    ));
    part.pictures.push(picture(
        "firehose-figure-5",
        &part.title,
        vec![Panel::Curves {
            title: "bandwidth by size".to_owned(),
            x: plot::Axis {
                label: "size of a put, bytes",
                scale: plot::Scale::Twos,
                words: units::bytes,
            },
            y: BANDWIDTH,
            series,
            marks: Vec::new(),
        }],
    ));
    Ok(part)
}
