//! Figures 3 and 4: puts at random over a growing area.

use hydrant::Strategy;

use super::LIMITS;
use super::load::{AreaPoint, Load};

use crate::papers::job::{MB, bandwidth, lifted, micros};
use crate::papers::part::{Cell, Part, Picture, Sheet};
use crate::papers::published::value;
use crate::papers::{ExperimentInputs, PaperResult};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

pub(super) const MACHINE: &str = "myrinet-gm";
pub(super) const UNPIN: Strategy = Strategy::Rendezvous { unpin: true };
pub(super) const NO_UNPIN: Strategy = Strategy::Rendezvous { unpin: false };

pub(super) fn curve(
    name: &str,
    colour: usize,
    points: &[AreaPoint],
    of: impl Fn(&AreaPoint) -> f64,
) -> Series {
    Series {
        name: name.to_owned(),
        kind: SeriesKind::Ours,
        colour,
        points: points.iter().map(|point| (point.mb, of(point))).collect(),
    }
}

/// Runs the three strategies of the paper over the areas.
fn three_strategies(
    inputs: &ExperimentInputs<'_>,
    load: &Load,
    figure: &str,
) -> PaperResult<[Vec<AreaPoint>; 3]> {
    let run = |strategy: Strategy, machine: &str| {
        inputs.doing(format!("firehose: figure {figure}, {strategy}"));
        let mut setup = load.setup(machine, strategy);
        if strategy == NO_UNPIN {
            setup.m = 2048 * MB;
        }
        load.run(&setup)
    };
    let firehose = run(Strategy::Firehose, MACHINE)?;
    let no_unpin = run(NO_UNPIN, &lifted(inputs, MACHINE))?;
    // With unpin the area makes no difference, so fewer of the long puts suffice.
    let few = Load {
        puts: load.puts.div_ceil(8),
        ..*load
    };
    inputs.doing(format!("firehose: figure {figure}, {UNPIN}"));
    let unpin = few.run(&few.setup(MACHINE, UNPIN))?;
    Ok([firehose, no_unpin, unpin])
}

pub(super) fn details(name: &str, title: &str, all: &[(&str, &[AreaPoint])]) -> Sheet {
    let columns = [
        "strategy",
        "area_mb",
        "mean_put_us",
        "waited_for_unpin_pct",
        "hits_pct",
    ];
    let mut sheet = Sheet::new(name, title, &columns);
    sheet.hidden = true;
    for (strategy, points) in all {
        for point in *points {
            sheet.row([
                (*strategy).into(),
                Cell::from(point.mb),
                micros(point.mean).into(),
                point.unpinned.into(),
                point.hits.into(),
            ]);
        }
    }
    sheet
}

pub(super) fn smaller(part: &mut Part, load: &Load) {
    if load.smaller > 1 {
        part.note(format!(
            "A quick run: areas, M and MAXVICTIM are a {}th of what the axis says.",
            load.smaller
        ));
    }
}

/// Figure 3: the latency of 8-byte puts.
pub(in crate::papers) fn figure_3(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let load = Load::of(inputs, 8, inputs.pick(4000, 400), 1);
    let [firehose, no_unpin, unpin] = three_strategies(inputs, &load, "3")?;
    let mut part = Part::new(
        "firehose-figure-3",
        "Firehose, figure 3: 8-byte puts at random over a growing area",
    );
    part.note(
        "One rank of two puts 8 bytes at a time, at random over an area of the other's memory, from \
         a place at random within an area of MAXVICTIM of its own; before it is measured every page \
         of the area has been put to once. Beyond M + MAXVICTIM no-unpin has more registered than \
         it may: the limit is lifted for it (the paper: it is “cheating”).",
    );
    smaller(&mut part, &load);
    let gap = value("firehose", "gap")?;
    let knee = value("firehose", "knee")?;
    let gaps: Vec<f64> = (firehose.iter().zip(&no_unpin))
        .filter(|(point, _)| point.mb <= LIMITS.0 as f64)
        .map(|(point, other)| micros(other.mean) - micros(point.mean))
        .collect();
    let mean_gap = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
    part.expect(
        "no-unpin above firehose up to M, by 15 to 45 µs",
        format!("{gap} µs"),
        format!("{mean_gap:.1} µs"),
        (15.0..=45.0).contains(&mean_gap),
        "the paper's 30 µs is more than the 20 µs of a request and reply that it gives itself, and \
         than the 34 − 14 µs of its table 3; ours is the round trip",
    );
    let at = |points: &[AreaPoint], mb: f64| {
        (points.iter())
            .find(|point| point.mb == mb)
            .map_or(f64::NAN, |point| micros(point.mean))
    };
    let before: f64 = (firehose.iter().filter(|point| point.mb <= knee))
        .map(|point| micros(point.mean))
        .fold(0.0, f64::max);
    let first_after = firehose.iter().find(|point| point.mb > knee);
    let after = first_after.map_or(f64::NAN, |point| micros(point.mean));
    part.expect(
        "firehose: the knee is at M + MAXVICTIM",
        format!("{knee} MB"),
        format!("{before:.1} µs at most before, {after:.0} µs at the next size"),
        after > 3.0 * before,
        "",
    );
    let crossing = firehose
        .iter()
        .zip(&no_unpin)
        .find(|(point, other)| point.mean > other.mean);
    let crossed = crossing.map_or("never".to_owned(), |(point, _)| {
        format!("by {:.1} % at {} MB", point.unpinned, point.mb)
    });
    part.expect(
        "firehose passes no-unpin only beyond the knee",
        "once 3 % of the puts need an unpin",
        crossed,
        crossing.is_some_and(|(point, _)| point.mb > knee),
        "",
    );
    let steady = at(&unpin, unpin.last().map_or(0.0, |point| point.mb)) / 1e3;
    part.expect(
        "with unpin: steadily in the 6 ms range",
        "6 ms",
        format!("{steady:.2} ms"),
        (5.0..=7.0).contains(&steady),
        "",
    );
    let series = vec![
        curve("firehose", 0, &firehose, |point| micros(point.mean)),
        curve("rendezvous no-unpin", 1, &no_unpin, |point| {
            micros(point.mean)
        }),
        curve("rendezvous with unpin", 2, &unpin, |point| {
            micros(point.mean)
        }),
    ];
    let named = [
        ("firehose", &firehose[..]),
        ("no-unpin", &no_unpin),
        ("unpin", &unpin),
    ];
    part.sheets
        .push(details("firehose-figure-3", "figure 3", &named));
    part.pictures.push(picture(
        "firehose-figure-3",
        &part.title,
        vec![over_area("mean latency of an 8-byte put", LATENCY, series)],
    ));
    Ok(part)
}

/// Figure 4: the bandwidth of puts of 64 KB.
pub(in crate::papers) fn figure_4(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let load = Load::of(inputs, 64 << 10, inputs.pick(400, 64), 8);
    let [firehose, no_unpin, unpin] = three_strategies(inputs, &load, "4")?;
    let mut part = Part::new(
        "firehose-figure-4",
        "Firehose, figure 4: 64 KB puts at random over a growing area",
    );
    part.note(
        "As figure 3 with puts of 64 KB, eight of them under way at once. MB/s are millions of \
         bytes.",
    );
    smaller(&mut part, &load);
    let rate = |point: &AreaPoint| bandwidth(load.bytes as u64, point.mean);
    let within = |points: &[AreaPoint], from: f64, to: f64| -> Vec<f64> {
        (points.iter())
            .filter(|point| point.mb > from && point.mb <= to)
            .map(rate)
            .collect()
    };
    let m = LIMITS.0 as f64;
    let least = within(&firehose, 0.0, m)
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    let most = within(&firehose, 0.0, m).into_iter().fold(0.0, f64::max);
    part.expect(
        "firehose: full bandwidth up to M",
        "full DMA bandwidth",
        format!("{least:.0} to {most:.0} MB/s"),
        least >= 0.9 * most && least >= 200.0,
        "the profile's link carries 250 MB/s, less what packets cost",
    );
    let beyond = within(&firehose, m + LIMITS.1 as f64, 1e9);
    let declines = beyond.windows(2).all(|pair| pair[1] <= pair[0] * 1.1);
    let last = beyond.last().copied().unwrap_or(f64::NAN);
    let floor = unpin.last().map_or(f64::NAN, rate);
    part.expect(
        "firehose: declines beyond, towards with-unpin",
        "gracefully",
        format!("{last:.1} MB/s at the end, with unpin {floor:.1}"),
        declines && last < least && last >= floor,
        "a page is a registration of its own where buckets are a page, so a put of 64 KB can \
         wait for up to sixteen deregistrations of 6 ms",
    );
    let series = vec![
        curve("firehose", 0, &firehose, rate),
        curve("rendezvous no-unpin", 1, &no_unpin, rate),
        curve("rendezvous with unpin", 2, &unpin, rate),
    ];
    let named = [
        ("firehose", &firehose[..]),
        ("no-unpin", &no_unpin),
        ("unpin", &unpin),
    ];
    part.sheets
        .push(details("firehose-figure-4", "figure 4", &named));
    part.pictures.push(picture(
        "firehose-figure-4",
        &part.title,
        vec![over_area("bandwidth of 64 KB puts", BANDWIDTH, series)],
    ));
    Ok(part)
}

pub(super) const LATENCY: plot::Axis = plot::Axis {
    label: "mean of a put",
    scale: plot::Scale::Tens,
    words: |micros| units::nanos(micros * 1e3),
};

pub(super) const BANDWIDTH: plot::Axis = plot::Axis {
    label: "MB/s",
    scale: plot::Scale::Plain,
    words: units::plain,
};

pub(super) fn over_area(title: &str, y: plot::Axis, series: Vec<Series>) -> Panel {
    Panel::Curves {
        title: title.to_owned(),
        x: plot::Axis {
            label: "area, MB",
            scale: plot::Scale::Plain,
            words: |mb| format!("{mb:.0}"),
        },
        y,
        series,
        marks: vec![
            (LIMITS.0 as f64, "M, 400 MB".to_owned()),
            (
                (LIMITS.0 + LIMITS.1) as f64,
                "M + MAXVICTIM, 450 MB".to_owned(),
            ),
        ],
    }
}

pub(super) fn picture(name: &str, title: &str, panels: Vec<Panel>) -> Picture {
    Picture {
        name: name.to_owned(),
        figure: Figure {
            title: title.to_owned(),
            subtitle: "sim:myrinet-gm, M = 400 MB, MAXVICTIM = 50 MB, buckets of a page".to_owned(),
            panels,
        },
    }
}
