//! The pin-down cache paper's tables 2 and 3 and figures 5 and 6 (Tezuka et al. 1998, §6).

mod benchmarks;
mod copied;
mod puts;

use std::time::Duration;

use hydrant::Strategy;

use super::job::{PAGE, bandwidth, micros};
use super::part::{Cell, Part, Picture, Sheet};
use super::published::value;
use super::{ExperimentInputs, PaperResult};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

pub(super) use benchmarks::table_3;
use copied::{MessageOrder, copied};
use puts::{means, sweep};

const RATIOS: [usize; 5] = [0, 25, 50, 75, 100];

fn curve(name: String, colour: usize, kind: SeriesKind, rows: &[(f64, Duration)]) -> Series {
    Series {
        name,
        kind,
        colour,
        points: (rows.iter())
            .map(|(size, time)| (*size, bandwidth(*size as u64, *time)))
            .collect(),
    }
}

/// The size from which on one series stays above the other, between two measured sizes.
pub(super) fn crossover(over: &Series, under: &Series) -> Option<f64> {
    let both: Vec<(f64, f64)> = (over.points.iter().zip(&under.points))
        .map(|((x, a), (_, b))| (*x, (a / b).ln()))
        .collect();
    let last_below = both.iter().rposition(|(_, lead)| *lead < 0.0);
    match last_below {
        None => both.first().map(|(x, _)| *x),
        Some(at) => {
            let ((x0, y0), (x1, y1)) = (both[at], *both.get(at + 1)?);
            let part = y0 / (y0 - y1);
            Some((x0.ln() + part * (x1.ln() - x0.ln())).exp())
        }
    }
}

fn at(series: &Series, size: f64) -> f64 {
    (series.points.iter())
        .find(|(x, _)| *x == size)
        .map_or(f64::NAN, |(_, y)| *y)
}

/// Table 2: the cost of a hit and of a miss.
pub(super) fn table_2(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    inputs.doing("pin-down: table 2");
    let count = inputs.pick(200, 40);
    let pages = [1_usize, 2, 4, 8, 16, 32, 64, 128, 256];
    let mut rows = Vec::new();
    for pages in pages {
        let size = pages * PAGE;
        let [hit, miss] = means(inputs, Strategy::Firehose, size, [100, 0], false, count)?;
        rows.push((pages, miss.saturating_sub(hit)));
    }
    let mut part = Part::new(
        "pindown-table-2",
        "Pin-down cache, table 2: the cost of a miss",
    );
    part.note(
        "A put from memory that has to be registered, less a put from memory that is: one rank \
         puts to memory of the other that stays registered. The paper timed the calls by \
         themselves; ours come out of whole puts.",
    );
    let (per_op, per_page) = (value("pindown", "miss_op")?, value("pindown", "miss_page")?);
    let mut sheet = Sheet::new(
        "pindown-table-2",
        "A miss, less a hit",
        &["pages", "ours_us", "paper_us"],
    );
    let mut worst: f64 = 0.0;
    for (pages, miss) in &rows {
        let paper = per_op + per_page * *pages as f64;
        worst = worst.max((micros(*miss) / paper - 1.0).abs());
        sheet.row([
            Cell::from(*pages as u64),
            micros(*miss).into(),
            paper.into(),
        ]);
    }
    part.sheets.push(sheet);
    part.expect(
        "a miss costs 40 + 7.0 × pages µs, within 10 %",
        "40 + 7.0 n",
        format!("at most {:.1} % off", worst * 100.0),
        worst <= 0.1,
        "the profile has this cost, so this says that nothing is registered twice and that \
         bookkeeping adds little",
    );
    Ok(part)
}

/// Figure 5: bandwidth by size and hit ratio, with the receiver's side registered once.
pub(super) fn figure_5(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut series = Vec::new();
    for (colour, ratio) in RATIOS.into_iter().enumerate() {
        inputs.doing(format!("pin-down: figure 5, {ratio} % hits"));
        let rows = sweep(inputs, Strategy::Firehose, ratio, false)?;
        series.push(curve(
            format!("zero copy, {ratio} % hits"),
            colour,
            SeriesKind::Ours,
            &rows,
        ));
    }
    inputs.doing("pin-down: figure 5, copying");
    let copies = copied(inputs, MessageOrder::Flood)?;
    series.push(curve(
        "message with copy".to_owned(),
        7,
        SeriesKind::Reference,
        &copies,
    ));
    let mut part = Part::new(
        "pindown-figure-5",
        "Pin-down cache, figure 5: bandwidth of zero copy by size and hit ratio",
    );
    part.note(
        "One rank writes to memory of the other that is registered once (a firehose that stays); \
         its own side is looked up, registered and given up for each write, one after the other, \
         as PM's calls were. Hits use one buffer again and again, misses one of a pool that is larger \
         than what is kept registered. As the paper's program, this one says which put hits; so \
         that it can, PM's limit of 1,024 pages is lifted. Copying is a flood of two-sided messages of as \
         many bytes, copied on both sides, in parts of 8 KB as PM's buffers are.",
    );
    let million = f64::from(1 << 20);
    let (hits, misses) = (at(&series[4], million), at(&series[0], million));
    let (paper_hits, paper_misses) = (
        value("pindown", "all_hits")?,
        value("pindown", "all_misses")?,
    );
    let bound = |ours: f64, paper: f64| (ours / paper - 1.0).abs() <= 0.1;
    let rate = |value: f64| format!("{value:.1} MB/s");
    part.expect(
        "1 MB, all hits, within 10 %",
        rate(paper_hits),
        rate(hits),
        bound(hits, paper_hits),
        "the profile's cost of translating a page follows from this figure and the raw 119 MB/s, \
         as the paper explains the one by the other; it is a check of the sum, not a prediction",
    );
    part.expect(
        "1 MB, all misses, within 10 %",
        rate(paper_misses),
        rate(misses),
        bound(misses, paper_misses),
        "the paper's two bandwidths are 3.7 ms a megabyte apart, twice the 1.83 ms that its table \
         2 gives for a miss of 256 pages; the profile has the table's figure, which makes 91 MB/s",
    );
    let crossings = [&series[4], &series[0]].map(|of| crossover(of, &series[5]));
    let [hits_cross, misses_cross] =
        crossings.map(|size| size.map_or("never".to_owned(), units::bytes));
    part.expect(
        "zero copy beats copying from about 8 KB (4 to 16 KB, all hits)",
        "8 KB",
        format!("{hits_cross}, all misses {misses_cross}"),
        crossings[0].is_some_and(|size| (4096.0..=16384.0).contains(&size)),
        format!(
            "the paper does not say for which hit ratio. {}",
            slow_copies(&series[5])?
        ),
    );
    let ordered = (0..4).all(|at_| at(&series[at_], million) < at(&series[at_ + 1], million));
    part.expect(
        "more hits, more bandwidth, at 1 MB",
        "0 < 25 < … < 100 %",
        if ordered { "so" } else { "not so" },
        ordered,
        "",
    );
    for (name, value) in [
        ("paper, all hits", paper_hits),
        ("paper, all misses", paper_misses),
    ] {
        series.push(Series {
            name: name.to_owned(),
            kind: SeriesKind::Peer,
            colour: if value == paper_hits { 4 } else { 0 },
            points: vec![(million, value)],
        });
    }
    picture(
        &mut part,
        "pindown-figure-5",
        "zero copy by hit ratio",
        series,
        vec![(8192.0, "8 KB (paper: crossover)".to_owned())],
    );
    Ok(part)
}

/// The reason why copying is slower than in the paper, if it is.
fn slow_copies(copying: &Series) -> PaperResult<String> {
    let (ours, paper) = (at(copying, 131_072.0), value("pindown", "message_copy")?);
    if ours > 0.8 * paper {
        return Ok(String::new());
    }
    Ok(format!(
        "ours copies 128 KB at {ours:.1} MB/s, the paper's at {paper}, so zero copy wins earlier"
    ))
}

/// Figure 6: message passing, copying compared with zero copy, with a registration on both sides.
pub(super) fn figure_6(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut series = Vec::new();
    for (colour, ratio) in RATIOS.into_iter().enumerate() {
        inputs.doing(format!("pin-down: figure 6, {ratio} % hits"));
        let rows = sweep(inputs, Strategy::PinDown, ratio, true)?;
        series.push(curve(
            format!("zero copy, {ratio} % hits"),
            colour,
            SeriesKind::Ours,
            &rows,
        ));
    }
    inputs.doing("pin-down: figure 6, copying");
    let copies = copied(inputs, MessageOrder::Flood)?;
    series.push(curve(
        "message with copy".to_owned(),
        7,
        SeriesKind::Reference,
        &copies,
    ));
    let answered = copied(inputs, MessageOrder::Answered)?;
    series.push(curve(
        "message with copy, each answered".to_owned(),
        6,
        SeriesKind::Reference,
        &answered,
    ));
    let mut part = Part::new(
        "pindown-figure-6",
        "Pin-down cache, figure 6: message passing with and without copies",
    );
    part.note(
        "Blocking sends, one after the other. Without copies the sides agree first (the pin-down \
         strategy: a request, the receiver's registration, the write, the release), and hit or \
         miss on both sides. With copies they are two-sided messages in parts of 8 KB, as PM's buffers are, and \
         a send is over when its source is free, so that both sides copy at the same time. We take it \
         that the paper's were like this: were each answered before the next, two copies of 8 KB at 50 MB/s \
         would alone make 25 MB/s, and zero copy would win far below the paper's 8 KB, as the last curve \
         has it. MPICH's own costs are not modelled.",
    );
    let (first, last) = (&series[0], &series[4]);
    let copy = &series[5];
    let words = |size: Option<f64>| size.map_or("never".to_owned(), units::bytes);
    let hits = crossover(last, copy);
    part.expect(
        "zero copy wins above about 8 KB with all hits",
        "8 KB",
        words(hits),
        hits.is_some_and(|size| (4096.0..=16384.0).contains(&size)),
        format!(
            "the paper's MPI goes by messages up to 8 KB whatever is faster, so its figure says \
             that the crossing is not above 8 KB; ours is between the measured sizes beside it. {}",
            slow_copies(copy)?
        ),
    );
    let misses = crossover(first, copy);
    part.expect(
        "zero copy wins above about 20 KB with no hits",
        "20 KB",
        words(misses),
        misses.is_some_and(|size| (10240.0..=40960.0).contains(&size)),
        slow_copies(copy)?,
    );
    part.expect(
        "the crossing is later with no hits than with all",
        "8 KB < 20 KB",
        format!("{} < {}", words(hits), words(misses)),
        hits < misses,
        "",
    );
    let mut sheet = Sheet::new(
        "pindown-figure-6-points",
        "Beside the paper's figures",
        &["message", "bytes", "ours_mbs", "paper_mbs"],
    );
    let points = [
        ("copied", copy, 131_072.0, "message_copy", 7),
        ("zero copy, no hits", first, 131_072.0, "message_misses", 0),
        ("zero copy, all hits", last, 131_072.0, "message_hits", 4),
        ("zero copy, all hits", last, 1_048_576.0, "message_peak", 4),
    ];
    let mut papers = Vec::new();
    for (what, of, size, name, colour) in points {
        let paper = value("pindown", name)?;
        let ours = (of.points.iter())
            .find(|(x, _)| *x == size)
            .map(|(_, y)| *y);
        sheet.row([what.into(), Cell::from(size), ours.into(), paper.into()]);
        papers.push((colour, (size, paper)));
    }
    part.sheets.push(sheet);
    for (colour, point) in papers {
        series.push(Series {
            name: format!("paper, {} MB/s at {}", point.1, units::bytes(point.0)),
            kind: SeriesKind::Peer,
            colour,
            points: vec![point],
        });
    }
    picture(
        &mut part,
        "pindown-figure-6",
        "message passing by hit ratio",
        series,
        vec![
            (8192.0, "8 KB (paper, all hits)".to_owned()),
            (20480.0, "20 KB (paper, no hits)".to_owned()),
        ],
    );
    Ok(part)
}

fn picture(
    part: &mut Part,
    name: &str,
    title: &str,
    series: Vec<Series>,
    marks: Vec<(f64, String)>,
) {
    let measured = |series: &&Series| series.kind != SeriesKind::Peer;
    let measured: Vec<Series> = series.iter().filter(measured).cloned().collect();
    let sheet = Sheet::of_series(name, title, "bytes", "mbs", &measured);
    part.sheets.push(sheet);
    part.pictures.push(Picture {
        name: name.to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: "sim:myrinet-pm; MB are a million bytes".to_owned(),
            panels: vec![Panel::Curves {
                title: title.to_owned(),
                x: plot::Axis {
                    label: "size, bytes",
                    scale: plot::Scale::Twos,
                    words: units::bytes,
                },
                y: plot::Axis {
                    label: "MB/s",
                    scale: plot::Scale::Plain,
                    words: units::plain,
                },
                series,
                marks,
            }],
        },
    });
}
