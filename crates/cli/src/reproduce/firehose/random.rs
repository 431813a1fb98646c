//! Figures 3 to 5: puts at random over a growing area, and to one place.

use std::time::Duration;

use hydrant::{Job, Result, Strategy};

use crate::plot::{self, Figure, Kind, Panel, Series};
use crate::reproduce::job::{
    FIRST, MB, PAGE, Random, SECOND, Setup, aligned, bandwidth, lifted, memory, micros, timed,
};
use crate::reproduce::papers::value;
use crate::reproduce::part::{Cell, Part, Picture, Sheet};
use crate::reproduce::{ReproduceError, Scope};
use crate::units;

const MACHINE: &str = "myrinet-gm";
const UNPIN: Strategy = Strategy::Rendezvous { unpin: true };
const NO_UNPIN: Strategy = Strategy::Rendezvous { unpin: false };
/// The paper's M and MAXVICTIM, in MB.
const LIMITS: (u64, u64) = (400, 50);
/// A put that takes longer waited for memory to be deregistered.
const UNPINNED: Duration = Duration::from_millis(1);

type Outcome<T> = std::result::Result<T, ReproduceError>;

/// At one size of the area.
#[derive(Clone, Copy)]
struct Point {
    mb: f64,
    mean: Duration,
    /// Of a hundred puts, those that waited for a deregistration.
    unpinned: f64,
    /// Of a hundred puts, those that were hits.
    hits: f64,
}

/// How much, and where.
#[derive(Clone, Copy)]
struct Load {
    bytes: usize,
    /// Puts measured at each size.
    puts: usize,
    /// Puts under way at once.
    at_once: usize,
    /// In a quick run everything is smaller by this.
    smaller: u64,
    /// Areas, in MB.
    areas: [u64; 3],
}

impl Load {
    fn of(scope: &Scope<'_>, bytes: usize, puts: usize, at_once: usize) -> Self {
        Self {
            bytes,
            puts,
            at_once,
            smaller: scope.pick(1, 25),
            areas: [50, 800, scope.pick(50, 150)],
        }
    }

    fn areas(&self) -> impl Iterator<Item = u64> {
        let [from, to, step] = self.areas;
        (from..=to).step_by(step as usize)
    }

    fn setup(&self, machine: &str, strategy: Strategy) -> Setup {
        let [m, maxvictim] = [LIMITS.0, LIMITS.1].map(|mb| mb * MB / self.smaller);
        let mut setup = Setup::new(machine, strategy, m, maxvictim);
        setup.heap = (self.areas[1] * MB / self.smaller) as usize + (4 << 20);
        setup
    }

    /// Puts at random over each area in turn, having touched all of it before. The source is at
    /// random within MAXVICTIM, less what the ends of a buffer take.
    fn run(&self, setup: &Setup) -> Outcome<Vec<Point>> {
        let area_of = |mb: u64| (mb * MB / self.smaller) as usize / self.bytes;
        setup.run(|job| {
            let target = memory(job, self.areas[1] * MB / self.smaller)?;
            let mut points = Vec::new();
            if job.rank() == FIRST {
                let spare = 2 * self.bytes.max(PAGE) * self.at_once;
                let source = vec![1_u8; setup.maxvictim as usize];
                let places = (source.len() - spare).max(self.bytes) / self.bytes;
                let mut random = Random::new(1);
                let mut touched = 0;
                // A put each stride touches every page.
                let stride = (PAGE / self.bytes).max(1);
                for mb in self.areas() {
                    let slots = area_of(mb);
                    let fresh = random.shuffled(touched / stride, slots / stride);
                    touched = slots;
                    let fresh: Vec<usize> = fresh.into_iter().map(|at| at * stride).collect();
                    self.puts(job, &target, &source, places, &fresh, &mut random)?;
                    let measured: Vec<usize> =
                        (0..self.puts).map(|_| random.below(slots)).collect();
                    let hits = job.counters().hits;
                    let (time, unpinned) =
                        self.puts(job, &target, &source, places, &measured, &mut random)?;
                    let part = |count: u64| 100.0 * count as f64 / self.puts as f64;
                    points.push(Point {
                        mb: mb as f64,
                        mean: time / self.puts as u32,
                        unpinned: part(unpinned),
                        hits: part(job.counters().hits - hits),
                    });
                }
            }
            job.barrier()?;
            Ok(points)
        })
    }

    fn puts(
        &self,
        job: &Job,
        target: &hydrant::Symmetric<u8>,
        source: &[u8],
        places: usize,
        slots: &[usize],
        random: &mut Random,
    ) -> Result<(Duration, u64)> {
        let (mut all, mut unpinned) = (Duration::ZERO, 0);
        for slots in slots.chunks(self.at_once) {
            let from: Vec<usize> = (slots.iter())
                .map(|_| random.below(places) * self.bytes)
                .collect();
            let time = timed(job, || {
                if let ([slot], [from]) = (slots, &from[..]) {
                    let data = &source[*from..from + self.bytes];
                    return target.put(SECOND, slot * self.bytes, data);
                }
                job.scope(|scope| {
                    for (slot, from) in slots.iter().zip(&from) {
                        let data = &source[*from..from + self.bytes];
                        scope.put(target, SECOND, slot * self.bytes, data)?;
                    }
                    Ok(())
                })
            })?;
            all += time;
            unpinned += u64::from(time > UNPINNED);
        }
        Ok((all, unpinned))
    }
}

fn curve(name: &str, colour: usize, points: &[Point], of: impl Fn(&Point) -> f64) -> Series {
    Series {
        name: name.to_owned(),
        kind: Kind::Ours,
        colour,
        points: points.iter().map(|point| (point.mb, of(point))).collect(),
    }
}

/// The three strategies of the paper over the areas.
fn three(scope: &Scope<'_>, load: &Load, figure: &str) -> Outcome<[Vec<Point>; 3]> {
    let run = |strategy: Strategy, machine: &str| {
        scope.doing(format!("firehose: figure {figure}, {strategy}"));
        let mut setup = load.setup(machine, strategy);
        if strategy == NO_UNPIN {
            setup.m = 2048 * MB;
        }
        load.run(&setup)
    };
    let firehose = run(Strategy::Firehose, MACHINE)?;
    let no_unpin = run(NO_UNPIN, &lifted(scope, MACHINE)?)?;
    // With unpin an area makes no difference: fewer of the long puts will do.
    let few = Load {
        puts: load.puts.div_ceil(8),
        ..*load
    };
    scope.doing(format!("firehose: figure {figure}, {UNPIN}"));
    let unpin = few.run(&few.setup(MACHINE, UNPIN))?;
    Ok([firehose, no_unpin, unpin])
}

fn details(name: &str, title: &str, all: &[(&str, &[Point])]) -> Sheet {
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

fn smaller(part: &mut Part, load: &Load) {
    if load.smaller > 1 {
        part.note(format!(
            "A quick run: areas, M and MAXVICTIM are a {}th of what the axis says.",
            load.smaller
        ));
    }
}

/// Figure 3: the latency of 8-byte puts.
pub(in crate::reproduce) fn figure_3(scope: &Scope<'_>) -> Outcome<Part> {
    let load = Load::of(scope, 8, scope.pick(4000, 400), 1);
    let [firehose, no_unpin, unpin] = three(scope, &load, "3")?;
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
        "no-unpin above firehose up to M",
        format!("{gap} µs"),
        format!("{mean_gap:.1} µs"),
        (15.0..=45.0).contains(&mean_gap),
        "the paper's 30 µs is more than the 20 µs of a request and reply that it gives itself, and \
         than the 34 − 14 µs of its table 3; ours is the round trip",
    );
    let at = |points: &[Point], mb: f64| {
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
pub(in crate::reproduce) fn figure_4(scope: &Scope<'_>) -> Outcome<Part> {
    let load = Load::of(scope, 64 << 10, scope.pick(400, 64), 8);
    let [firehose, no_unpin, unpin] = three(scope, &load, "4")?;
    let mut part = Part::new(
        "firehose-figure-4",
        "Firehose, figure 4: 64 KB puts at random over a growing area",
    );
    part.note(
        "As figure 3 with puts of 64 KB, eight of them under way at once. MB/s are millions of \
         bytes.",
    );
    smaller(&mut part, &load);
    let rate = |point: &Point| bandwidth(load.bytes as u64, point.mean);
    let within = |points: &[Point], from: f64, to: f64| -> Vec<f64> {
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

/// Figure 5: the bandwidth of puts to one place, by size.
pub(in crate::reproduce) fn figure_5(scope: &Scope<'_>) -> Outcome<Part> {
    let sizes: Vec<usize> = (3..=21)
        .step_by(scope.pick(1, 3))
        .map(|bits| 1 << bits)
        .collect();
    let largest = sizes.last().copied().unwrap_or(8);
    let rounds = scope.pick(8, 2);
    let mut series = Vec::new();
    for (colour, (strategy, name)) in [
        (Strategy::Firehose, "firehose"),
        (NO_UNPIN, "rendezvous no-unpin"),
        (UNPIN, "rendezvous with unpin"),
    ]
    .into_iter()
    .enumerate()
    {
        scope.doing(format!("firehose: figure 5, {strategy}"));
        let setup = Setup::new(MACHINE, strategy, LIMITS.0 * MB, LIMITS.1 * MB);
        let points = setup.run(|job| {
            let target = memory(job, largest as u64)?;
            let mut points = Vec::new();
            if job.rank() == FIRST {
                let source = vec![1_u8; largest + PAGE];
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
            kind: Kind::Ours,
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
        (over.points.iter().zip(&under.points)).all(|((_, a), (_, b))| *a >= 0.999 * b)
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
        "firehose above no-unpin above with unpin, at every size",
        "“by a noticeable margin”",
        format!(
            "firehose {:.2} × no-unpin at 4 KB, {:.2} × at 64 KB",
            lead(4096.0),
            lead(65536.0)
        ),
        above(&series[0], &series[1]) && above(&series[1], &series[2]),
        "",
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

/// Figures 3 and 4 again where one of four ranks puts: its static share is a third of M, and
/// borrowing and adaptive victims give it the rest.
pub(in crate::reproduce) fn shares(scope: &Scope<'_>) -> Outcome<Part> {
    let modes = [
        ("static share", false, false),
        ("adaptive victims", false, true),
        ("borrowing", true, false),
        ("both", true, true),
    ];
    let mut part = Part::new(
        "firehose-shares",
        "New: figures 3 and 4 with borrowing and adaptive victims",
    );
    part.note(
        "One of four ranks puts, the others are silent. F = M / 3 is its static share: 133 MB; what \
         is put to beyond that moves firehoses although two thirds of M are unused. With borrowing \
         the target lends what its other peers leave unused, all but an eighth of M. With adaptive \
         victims the target keeps what was released in the unused part of M, so a move finds it \
         registered. This is the paper's future work; it has no figures.",
    );
    let mut panels = Vec::new();
    let mut all = Vec::new();
    for (bytes, puts, at_once, title) in [
        (8, scope.pick(3000, 300), 1, "mean latency of an 8-byte put"),
        (64 << 10, scope.pick(240, 40), 8, "bandwidth of 64 KB puts"),
    ] {
        let mut load = Load::of(scope, bytes, puts, at_once);
        load.areas = [50, 500, scope.pick(50, 150)];
        if bytes == 8 {
            smaller(&mut part, &load);
        }
        let mut series = Vec::new();
        for (colour, (name, borrowing, adaptive)) in modes.into_iter().enumerate() {
            scope.doing(format!(
                "firehose: one of four ranks puts {bytes} bytes, {name}"
            ));
            let mut setup = load.setup(MACHINE, Strategy::Firehose);
            setup.ranks = 4;
            setup.borrowing = borrowing;
            setup.adaptive = adaptive;
            let points = load.run(&setup)?;
            series.push(curve(name, colour, &points, |point| match bytes {
                8 => micros(point.mean),
                _ => bandwidth(bytes as u64, point.mean),
            }));
            all.push((format!("{name}, {bytes} bytes"), points));
        }
        let axis = if bytes == 8 { LATENCY } else { BANDWIDTH };
        panels.push(over_area(title, axis, series));
    }
    let named: Vec<(&str, &[Point])> = all
        .iter()
        .map(|(name, points)| (&name[..], &points[..]))
        .collect();
    part.sheets
        .push(details("firehose-shares", "all points", &named));
    let at = |mode: usize| {
        (all[mode].1.iter())
            .rfind(|point| point.mb <= 350.0)
            .map_or(f64::NAN, |point| micros(point.mean))
    };
    let [fixed, adaptive, borrowing] = [at(0), at(1), at(2)];
    part.expect(
        "an area between F and M: borrowing beats the static share",
        "(new)",
        format!("{borrowing:.1} µs against {fixed:.0} µs"),
        borrowing < fixed,
        "",
    );
    part.expect(
        "adaptive victims do, too",
        "(new)",
        format!("{adaptive:.1} µs against {fixed:.0} µs"),
        adaptive < fixed,
        "",
    );
    part.pictures
        .push(picture("firehose-shares", &part.title, panels));
    Ok(part)
}

const LATENCY: plot::Axis = plot::Axis {
    label: "mean of a put",
    scale: plot::Scale::Tens,
    words: |micros| units::nanos(micros * 1e3),
};

const BANDWIDTH: plot::Axis = plot::Axis {
    label: "MB/s",
    scale: plot::Scale::Plain,
    words: units::plain,
};

fn over_area(title: &str, y: plot::Axis, series: Vec<Series>) -> Panel {
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

fn picture(name: &str, title: &str, panels: Vec<Panel>) -> Picture {
    Picture {
        name: name.to_owned(),
        figure: Figure {
            title: title.to_owned(),
            subtitle: "sim:myrinet-gm, M = 400 MB, MAXVICTIM = 50 MB, buckets of a page".to_owned(),
            panels,
        },
    }
}
