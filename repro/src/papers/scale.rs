//! New: the protocol with 16 to 10,000 ranks, a static share compared with borrowing.

use std::time::Duration;

use crate::scale::{self, ScaleOutcome, ScaleSetup, Traffic};
use hydrant_sim::Profile;

use super::job::micros;
use super::part::{Cell, Part, Picture, Sheet};
use super::{ExperimentInputs, ReproduceError};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

const MACHINE: &str = "myrinet-gm";
/// The pages of each peer that a rank puts to.
const PAGES: u64 = 64;

/// The pages with traffic of every kind, where a rank has up to eight peers.
const TRAFFIC_PAGES: u64 = 32;

/// The modes: name, borrowing, adaptive victims.
const MODES: [(&str, bool, bool); 4] = [
    ("static share", false, false),
    ("adaptive victims", false, true),
    ("borrowing", true, false),
    ("both", true, true),
];

const COLUMNS: [&str; 13] = [
    "traffic",
    "ranks",
    "share_pages",
    "mode",
    "puts",
    "hits_pct",
    "moves",
    "mean_put_us",
    "p99_us",
    "stalls",
    "lent",
    "deregistrations",
    "registered_peak_mb",
];

fn run_one(
    inputs: &ExperimentInputs<'_>,
    profile: &Profile,
    traffic: Traffic,
    ranks: u32,
    (name, borrowing, adaptive_victims): (&str, bool, bool),
    setup: ScaleSetup,
) -> Result<ScaleOutcome, ReproduceError> {
    let mut setup = ScaleSetup {
        ranks,
        traffic,
        ..setup
    };
    setup.pause = Duration::from_micros(100);
    setup.borrowing = borrowing;
    setup.adaptive_victims = adaptive_victims;
    let mut reported = Duration::ZERO;
    let begin = std::time::Instant::now();
    let outcome = scale::run(profile, &setup, &mut |part| {
        if begin.elapsed() > reported + Duration::from_millis(500) {
            reported = begin.elapsed();
            inputs.doing(format!(
                "{traffic}, {ranks} ranks, {name}: {:.0} %",
                part * 100.0
            ));
        }
    })?;
    Ok(outcome)
}

fn row(sheet: &mut Sheet, setup: &ScaleSetup, mode: &str, outcome: &ScaleOutcome) {
    let share = setup.m / setup.bucket as u64 / u64::from(setup.ranks - 1);
    sheet.row([
        setup.traffic.name().into(),
        Cell::from(u64::from(setup.ranks)),
        share.into(),
        mode.into(),
        outcome.puts.into(),
        (100.0 * outcome.hit_share()).into(),
        outcome.moves.into(),
        micros(outcome.mean).into(),
        micros(outcome.p99).into(),
        outcome.stalls.into(),
        outcome.lent.into(),
        outcome.deregistrations.into(),
        (outcome.registered_peak as f64 / f64::from(1 << 20)).into(),
    ]);
}

/// Hot spots, from 16 to 10,000 ranks.
pub(super) fn hot_spot(inputs: &ExperimentInputs<'_>) -> Result<Part, ReproduceError> {
    let profile = Profile::named(MACHINE)?;
    let sizes: &[u32] = inputs.pick(&[16, 64, 256, 1024, 4096, 10_000], &[16, 128, 1024]);
    // A quick run has fewer ranks, so M must be smaller to be short.
    let m = inputs.pick(400_u64, 100);
    let short = (m << 20) / 4096 / PAGES + 1;
    let mut part = Part::new(
        "scale-hot-spot",
        "New: hot spots of 16 to 10,000 ranks, the static share beside borrowing",
    );
    part.note(format!(
        "The pinning protocol alone, without ranks as threads: engines, hosts and NICs in one event \
         loop with the figures of myrinet-gm. In groups of 16 ranks, 15 put 8 bytes at a time to \
         the first, each at random over 64 pages of its own (256 KB), with 100 µs between two puts. \
         M = {m} MB and MAXVICTIM = M / 8. What a hot spot is asked for, 960 \
         pages, stays the same; the static share F = M / (N − 1) of each peer falls with the number \
         of ranks, below the 64 pages beyond {short} of them.",
    ));
    let mut sheet = Sheet::new("scale-hot-spot", "Hot spots by ranks", &COLUMNS);
    let mut series: [Vec<Series>; 2] = Default::default();
    let mut ends = Vec::new();
    for (colour, mode) in [MODES[0], MODES[2]].into_iter().enumerate() {
        let mut points: [Vec<(f64, f64)>; 2] = Default::default();
        for &ranks in sizes {
            inputs.doing(format!("hot spot, {ranks} ranks, {}", mode.0));
            let mut setup = ScaleSetup::new(ranks, Traffic::HotSpot);
            setup.area = PAGES * 4096;
            setup.m = m << 20;
            setup.maxvictim = setup.m / 8;
            setup.puts = inputs.pick(96, 32);
            setup.warm_up = inputs.pick(192, 128);
            let outcome = run_one(
                inputs,
                &profile,
                Traffic::HotSpot,
                ranks,
                mode,
                setup.clone(),
            )?;
            row(&mut sheet, &setup, mode.0, &outcome);
            points[0].push((f64::from(ranks), 100.0 * outcome.hit_share()));
            points[1].push((f64::from(ranks), micros(outcome.mean)));
            if Some(&ranks) == sizes.last() {
                ends.push(outcome);
            }
        }
        for (of, points) in series.iter_mut().zip(points) {
            of.push(Series {
                name: mode.0.to_owned(),
                kind: SeriesKind::Ours,
                colour,
                points,
            });
        }
    }
    let most = sizes.last().copied().unwrap_or(0);
    if let [fixed, borrowed] = &ends[..] {
        let percent = |outcome: &ScaleOutcome| format!("{:.0} %", 100.0 * outcome.hit_share());
        part.expect(
            format!("{most} ranks: borrowing keeps hits that a static share loses"),
            "(new)",
            format!("{} against {}", percent(borrowed), percent(fixed)),
            borrowed.hit_share() > 1.5 * fixed.hit_share(),
            "",
        );
        let within = |outcome: &ScaleOutcome| outcome.registered_peak <= (m + m / 8) << 20;
        part.expect(
            format!("{most} ranks: never more registered than M + MAXVICTIM"),
            format!("{} MB", m + m / 8),
            format!(
                "{:.1} MB at most",
                borrowed.registered_peak as f64 / f64::from(1 << 20)
            ),
            within(fixed) && within(borrowed),
            "",
        );
    }
    part.sheets.push(sheet);
    let [hits, latency] = series;
    let ranks = plot::Axis {
        label: "ranks",
        scale: plot::Scale::Twos,
        words: |ranks| format!("{ranks:.0}"),
    };
    part.pictures.push(Picture {
        name: "scale-hot-spot".to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: format!(
                "engines on the figures of myrinet-gm; M = {m} MB, MAXVICTIM = M / 8"
            ),
            panels: vec![
                Panel::Curves {
                    title: "puts that found their firehose".to_owned(),
                    x: ranks,
                    y: plot::Axis {
                        label: "%",
                        scale: plot::Scale::Plain,
                        words: units::plain,
                    },
                    series: hits,
                    marks: vec![(short as f64, "F = 64 pages".to_owned())],
                },
                Panel::Curves {
                    title: "mean latency of a put".to_owned(),
                    x: ranks,
                    y: plot::Axis {
                        label: "µs",
                        scale: plot::Scale::Plain,
                        words: units::plain,
                    },
                    series: latency,
                    marks: vec![(short as f64, "F = 64 pages".to_owned())],
                },
            ],
        },
    });
    Ok(part)
}

/// Every kind of traffic with every kind of sharing.
pub(super) fn traffic(inputs: &ExperimentInputs<'_>) -> Result<Part, ReproduceError> {
    let profile = Profile::named(MACHINE)?;
    let ranks = inputs.pick(1024, 128);
    let mut part = Part::new(
        "scale-traffic",
        format!("New: four kinds of traffic between {ranks} ranks"),
    );
    part.note(
        "As the hot spots, with each way to share M. Uniform: each rank puts to eight others, drawn \
         at random. Neighbour: to the ranks before and after. Power law: to eight others, rank r \
         drawn with a weight of 1/(r + 1), so that the first ranks are talked to by most. 32 pages \
         for each pair, and M such that the static share of each peer is 25.",
    );
    let mut sheet = Sheet::new(
        "scale-traffic",
        "Traffic by kind and way to share",
        &COLUMNS,
    );
    let mut better = Vec::new();
    for traffic in Traffic::ALL {
        let mut shares = Vec::new();
        for mode in MODES {
            inputs.doing(format!("{traffic}, {ranks} ranks, {}", mode.0));
            let mut setup = ScaleSetup::new(ranks, traffic);
            setup.area = TRAFFIC_PAGES * 4096;
            setup.puts = 160;
            setup.warm_up = 640;
            setup.m = u64::from(ranks) * 100 * 1024;
            setup.maxvictim = setup.m / 8;
            let outcome = run_one(inputs, &profile, traffic, ranks, mode, setup.clone())?;
            row(&mut sheet, &setup, mode.0, &outcome);
            shares.push(outcome.hit_share());
        }
        better.push((traffic, shares[2] >= shares[0] - 0.01, shares));
    }
    let words: Vec<String> = (better.iter())
        .map(|(traffic, _, shares)| {
            format!(
                "{traffic} {:.0} → {:.0} %",
                100.0 * shares[0],
                100.0 * shares[2]
            )
        })
        .collect();
    part.expect(
        "borrowing never hits less than the static share",
        "(new)",
        words.join(", "),
        better.iter().all(|(_, better, _)| *better),
        "",
    );
    part.sheets.push(sheet);
    Ok(part)
}
