//! The pin-down cache paper's table 2 and figures 5 and 6 (Tezuka et al. 1998, §6).

use std::time::Duration;

use hydrant::{Job, Result, Strategy, Symmetric};

use super::job::{
    FIRST, MB, PAGE, Random, SECOND, Setup, aligned, bandwidth, lifted, memory, micros, timed,
};
use super::papers::value;
use super::part::{Cell, Part, Picture, Sheet};
use super::{ReproduceError, Scope};
use crate::plot::{self, Figure, Kind, Panel, Series};
use crate::units;

const MACHINE: &str = "myrinet-pm";
/// What own operations may keep registered.
const KEPT: usize = 8 << 20;
/// Bytes that the pools of buffers that miss take: every second buffer of it is used, and these
/// are more than are kept.
const POOL: usize = 25 << 20;
const RATIOS: [usize; 5] = [0, 25, 50, 75, 100];

type Outcome<T> = std::result::Result<T, ReproduceError>;

/// Room for what is to hit, which is not PM's 4 MB: which put hits is given here.
fn setup(scope: &Scope<'_>, strategy: Strategy) -> Outcome<Setup> {
    let machine = lifted(scope, MACHINE)?;
    let mut setup = Setup::new(&machine, strategy, 16 * MB, KEPT as u64);
    setup.entries = KEPT as u64 / PAGE as u64;
    setup.heap = POOL + (4 << 20);
    Ok(setup)
}

/// Buffers that are registered when they are used, or are not.
struct Buffers {
    size: usize,
    order: Vec<usize>,
    next: usize,
}

impl Buffers {
    /// In a pool whose first megabyte holds the buffer that is always registered.
    fn new(size: usize) -> Self {
        let slot = size.next_multiple_of(PAGE);
        let slots = (POOL - MB as usize) / slot / 2;
        // Misses in sequence would register ahead: any other order, and none beside another.
        let order = Random::new(size as u64).shuffled(0, slots);
        Self {
            size: slot,
            order,
            next: 0,
        }
    }

    fn place(&mut self, hit: bool) -> usize {
        if hit {
            return 0;
        }
        self.next += 1;
        MB as usize + self.order[self.next % self.order.len()] * 2 * self.size
    }
}

/// Puts of one size, one after the other, of which so many in a hundred find their own side
/// registered, and the far side as well if that is to vary. The mean time.
fn puts(
    job: &Job,
    target: &Symmetric<u8>,
    size: usize,
    ratio: usize,
    both: bool,
    count: usize,
) -> Result<Duration> {
    let pool = vec![1_u8; POOL + PAGE];
    let pool = &pool[aligned(&pool)..];
    let (mut near, mut far) = (Buffers::new(size), Buffers::new(size));
    let mut put = |hit: bool| {
        let from = near.place(hit);
        let to = if both { far.place(hit) } else { 0 };
        target.put(SECOND, to, &pool[from..from + size])
    };
    // Until the caches are full of what will be given up.
    for _ in 0..(KEPT / size.next_multiple_of(PAGE)).max(8) {
        put(false)?;
        put(true)?;
    }
    let mut due = 0;
    let time = timed(job, || {
        for _ in 0..count {
            due += ratio;
            let hit = due >= 100;
            due -= if hit { 100 } else { 0 };
            put(hit)?;
        }
        Ok(())
    })?;
    Ok(time / count as u32)
}

fn sizes(scope: &Scope<'_>) -> Vec<usize> {
    // The largest is what the paper has figures of.
    let mut sizes: Vec<usize> = (0..=18)
        .step_by(scope.pick(1, 3))
        .map(|halved| (1 << 20) >> halved)
        .collect();
    sizes.reverse();
    sizes
}

/// The mean time of a put by size, for a strategy and a hit ratio.
fn sweep(
    scope: &Scope<'_>,
    strategy: Strategy,
    ratio: usize,
    both: bool,
) -> Outcome<Vec<(f64, Duration)>> {
    let count = scope.pick(200, 40);
    (sizes(scope).into_iter())
        .map(|size| {
            let [time] = means(scope, strategy, size, [ratio], both, count)?;
            Ok((size as f64, time))
        })
        .collect()
}

/// The mean time of a put of a size at some hit ratios, in a job of its own: what another size
/// left registered would be half a hit.
fn means<const N: usize>(
    scope: &Scope<'_>,
    strategy: Strategy,
    size: usize,
    ratios: [usize; N],
    both: bool,
    count: usize,
) -> Outcome<[Duration; N]> {
    setup(scope, strategy)?.run(|job| {
        let target = memory(job, (POOL + PAGE) as u64)?;
        let mut times = [Duration::ZERO; N];
        if job.rank() == FIRST {
            for (time, ratio) in times.iter_mut().zip(ratios) {
                *time = puts(job, &target, size, ratio, both, count)?;
            }
        }
        job.barrier()?;
        Ok(times)
    })
}

fn curve(name: String, colour: usize, kind: Kind, rows: &[(f64, Duration)]) -> Series {
    Series {
        name,
        kind,
        colour,
        points: (rows.iter())
            .map(|(size, time)| (*size, bandwidth(*size as u64, *time)))
            .collect(),
    }
}

/// The size from which on the one is faster than the other for good, between two measured ones.
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

/// Table 2: what a hit and a miss cost.
pub(super) fn table_2(scope: &Scope<'_>) -> Outcome<Part> {
    scope.doing("pin-down: table 2");
    let count = scope.pick(200, 40);
    let pages = [1_usize, 2, 4, 8, 16, 32, 64, 128, 256];
    let mut rows = Vec::new();
    for pages in pages {
        let size = pages * PAGE;
        let [hit, miss] = means(scope, Strategy::Firehose, size, [100, 0], false, count)?;
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

/// Figure 5: bandwidth by size and hit ratio, the receiver's side registered once.
pub(super) fn figure_5(scope: &Scope<'_>) -> Outcome<Part> {
    let mut series = Vec::new();
    for (colour, ratio) in RATIOS.into_iter().enumerate() {
        scope.doing(format!("pin-down: figure 5, {ratio} % hits"));
        let rows = sweep(scope, Strategy::Firehose, ratio, false)?;
        series.push(curve(
            format!("zero copy, {ratio} % hits"),
            colour,
            Kind::Ours,
            &rows,
        ));
    }
    scope.doing("pin-down: figure 5, copying");
    let copied = copying_stream(scope)?;
    series.push(curve(
        "message with copy".to_owned(),
        7,
        Kind::Reference,
        &copied,
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
         that it can, PM's limit of 1,024 pages is lifted. Copying is a flood of messages of as many \
         bytes, copied on both sides.",
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
    let crossing = crossover(&series[0], &series[5]);
    part.expect(
        "zero copy beats copying from about 8 KB (all misses)",
        "8 KB",
        crossing.map_or("never".to_owned(), units::bytes),
        crossing.is_some_and(|size| (4096.0..=16384.0).contains(&size)),
        "",
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
            kind: Kind::Peer,
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

/// A flood of messages whose data is copied on both sides: the mean time of one.
fn copying_stream(scope: &Scope<'_>) -> Outcome<Vec<(f64, Duration)>> {
    let sizes = sizes(scope);
    let total = scope.pick(2 << 20, 256 << 10);
    setup(scope, Strategy::Bounce)?.run(|job| {
        let target = memory(job, MB + PAGE as u64)?;
        let mut rows = Vec::new();
        if job.rank() == FIRST {
            let from = vec![1_u8; MB as usize];
            for &size in &sizes {
                let count = (total / size).clamp(4, 400);
                let time = timed(job, || {
                    job.scope(|scope| {
                        for _ in 0..count {
                            scope.put(&target, SECOND, 0, &from[..size])?;
                        }
                        Ok(())
                    })
                })?;
                rows.push((size as f64, time / count as u32));
            }
        }
        job.barrier()?;
        Ok(rows)
    })
}

/// Figure 6: message passing, copying against zero copy with both sides asked for.
pub(super) fn figure_6(scope: &Scope<'_>) -> Outcome<Part> {
    let mut series = Vec::new();
    for (colour, ratio) in RATIOS.into_iter().enumerate() {
        scope.doing(format!("pin-down: figure 6, {ratio} % hits"));
        let rows = sweep(scope, Strategy::PinDown, ratio, true)?;
        series.push(curve(
            format!("zero copy, {ratio} % hits"),
            colour,
            Kind::Ours,
            &rows,
        ));
    }
    scope.doing("pin-down: figure 6, copying");
    let copied = sweep(scope, Strategy::Bounce, 100, true)?;
    series.push(curve(
        "message with copy".to_owned(),
        7,
        Kind::Reference,
        &copied,
    ));
    let mut part = Part::new(
        "pindown-figure-6",
        "Pin-down cache, figure 6: message passing with and without copies",
    );
    part.note(
        "Synchronous messages, one at a time: without copies the sides agree first (the pin-down \
         strategy: a request, the receiver's registration, the write, the release), and hit or \
         miss on both sides; with copies the data goes through message buffers on both sides \
         (bounce), up to three chunks of a message under way at once. MPICH's own costs are not \
         modelled.",
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
        "the paper's MPI goes by messages up to 8 KB whatever is faster, so its figure says that \
         the crossing is not above 8 KB; without MPICH's costs ours is lower",
    );
    let misses = crossover(first, copy);
    part.expect(
        "zero copy wins above about 20 KB with no hits",
        "20 KB",
        words(misses),
        misses.is_some_and(|size| (10240.0..=40960.0).contains(&size)),
        "",
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
            kind: Kind::Peer,
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
    let measured = |series: &&Series| series.kind != Kind::Peer;
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
