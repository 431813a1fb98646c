//! Figure 11 and table 2: the NAS benchmarks by strategy. Figure 3: a limit on registered memory.

use std::time::Duration;

use hydrant::Strategy;

use super::{MACHINE, REGISTERED, in_mib, percent_above, percent_saved};
use crate::papers::job::MB;
use crate::papers::part::{Cell, Part, Picture, Sheet};
use crate::papers::published::value;
use crate::papers::replays::{Replay, Replayed, script};
use crate::papers::traces::Recorded;
use crate::papers::{ExperimentInputs, PaperResult};
use crate::replay::{Played, staircase};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

const LEAVE: Strategy = Strategy::OnDemand { leave_pinned: true };
const NO_LEAVE: Strategy = Strategy::OnDemand {
    leave_pinned: false,
};
const OTHERS: [Strategy; 3] = [NO_LEAVE, Strategy::PinDown, Strategy::Firehose];

/// The most changes of registered memory in a picture: with more, it is a blot.
const SHOWN: usize = 160;

/// The paper's results of a program: its name there, the percentage of the peak saved, and its part
/// of the names in the data file. Those names are for the seconds with the helper, and for the
/// seconds with memory left pinned.
const PAPER: [(&str, &str, &str); 5] = [
    ("bt", "BT.D.4", "bt"),
    ("lu", "LU.D.4", "lu"),
    ("sp", "SP.D.4", "sp"),
    ("cg", "CG.D.4", "cg"),
    ("ft", "FT.B.4", "ft"),
];

/// A replayed trace, with memory left pinned and with the helper.
struct ReplayedPair<'a> {
    recorded: &'a Recorded,
    leave: Replayed,
    helper: Replayed,
}

impl ReplayedPair<'_> {
    fn peak_saved(&self) -> f64 {
        percent_saved(
            self.helper.all.peak_bytes as f64,
            self.leave.all.peak_bytes as f64,
        )
    }

    fn mean_saved(&self) -> f64 {
        percent_saved(
            self.helper.all.mean_bytes as f64,
            self.leave.all.mean_bytes as f64,
        )
    }

    fn slower(&self) -> f64 {
        percent_above(self.helper.seconds(), self.leave.seconds())
    }
}

/// Figure 11, columns like those of tables 2 and 3 for every strategy, and figure 3.
pub(in crate::papers) fn figure_11(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-11",
        "Foresight, figure 11 and table 2: the NAS benchmarks",
    );
    part.note(
        "Traces of the benchmarks are replayed: messages are sent again, and what was computed between them is waited \
         out. Messages above 8 KB are registered for, as the costs of the machine have it. The peak is that of the \
         rank that registers most, the mean that of all ranks over time. Mean and peak of figure 11 are of the paper's \
         class D and B; ours are of the classes in the names.",
    );
    let mut sheet = Sheet::new(
        "foresight-figure-11",
        "Each benchmark by each strategy",
        &[
            "trace",
            "strategy",
            "time_s",
            "against_leave_pinned_pct",
            "communication_ms",
            "peak_mb",
            "mean_mb",
            "on_path",
            "off_path",
            "hits",
            "late",
            "early",
        ],
    );
    let (mut pairs, mut without) = (Vec::new(), Vec::new());
    let mut slower_without = Vec::new();
    let is_short = |it: &&Recorded| {
        let records = it.trace.ranks().iter().map(|it| it.records().len());
        !inputs.quick || records.sum::<usize>() < 2000
    };
    for recorded in inputs.traces.all(inputs.quick).filter(is_short) {
        let script = script(&recorded.trace, MACHINE)?;
        let run = |strategy| Replay::new(MACHINE, strategy).run(inputs, &recorded.name, &script);
        let leave = run(LEAVE)?;
        if leave.all.peak_bytes == 0 {
            without.push(recorded.name.as_str());
            continue;
        }
        let helper = run(Strategy::Foresight)?;
        row(&mut sheet, recorded, LEAVE, &leave, &leave);
        row(&mut sheet, recorded, Strategy::Foresight, &helper, &leave);
        for strategy in OTHERS {
            let other = run(strategy)?;
            row(&mut sheet, recorded, strategy, &other, &leave);
            if strategy == NO_LEAVE {
                slower_without.push(other.all.communication_ns > leave.all.communication_ns);
            }
        }
        pairs.push(ReplayedPair {
            recorded,
            leave,
            helper,
        });
    }
    if !without.is_empty() {
        part.note(format!(
            "All messages of {} are shorter than that, so that nothing is registered for them; they are left out.",
            without.join(", ")
        ));
    }
    part.sheets.push(sheet);
    part.sheets.push(beside_the_paper(&pairs)?);
    judge(&mut part, &pairs)?;
    let longer = slower_without.iter().filter(|it| **it).count();
    part.expect(
        "not leaving pinned takes longer in communication than leaving pinned",
        "a significant performance loss",
        format!("in {longer} of {} traces", slower_without.len()),
        longer == slower_without.len(),
        "",
    );
    limited(inputs, &mut part, &pairs)?;
    let panels = pairs.iter().map(over_time).collect();
    part.pictures.push(Picture {
        name: "foresight-figure-11".to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: format!(
                "sim:{MACHINE}; the rank that registers most when all is left pinned; not more than {SHOWN} changes \
                 from the middle of a run"
            ),
            panels,
        },
    });
    Ok(part)
}

fn row(
    sheet: &mut Sheet,
    recorded: &Recorded,
    strategy: Strategy,
    of: &Replayed,
    leave: &Replayed,
) {
    let mb = |bytes: u64| Cell::from(bytes as f64 / MB as f64);
    sheet.row([
        recorded.name.as_str().into(),
        strategy.to_string().into(),
        of.seconds().into(),
        percent_above(of.seconds(), leave.seconds()).into(),
        (of.all.communication_ns as f64 / 1e6).into(),
        mb(of.all.peak_bytes),
        mb(of.all.mean_bytes),
        of.all.on_path.into(),
        of.all.off_path.into(),
        of.all.hits.into(),
        of.all.late.into(),
        of.all.early.into(),
    ]);
}

/// The savings and costs of the helper, compared with the paper.
fn beside_the_paper(pairs: &[ReplayedPair<'_>]) -> PaperResult<Sheet> {
    let mut sheet = Sheet::new(
        "foresight-table-2",
        "The helper thread beside leaving pinned",
        &[
            "trace",
            "peak_saved_pct",
            "mean_saved_pct",
            "time_pct",
            "errors_up_to_5_pct",
            "paper",
            "paper_peak_saved_pct",
            "paper_time_pct",
        ],
    );
    for pair in pairs {
        let program = pair.recorded.program();
        let paper = PAPER.iter().find(|it| it.0 == program);
        let (name, saved, time) = match paper {
            Some((_, name, key)) => {
                let figure = |what: &str| value("foresight", &format!("{key}_{what}"));
                let saved = if *key == "cg" { 0.0 } else { figure("saved")? };
                let time = percent_above(figure("helper_time")?, figure("pinned_time")?);
                (Cell::from(*name), Cell::from(saved), Cell::from(time))
            }
            None => (Cell::Empty, Cell::Empty, Cell::Empty),
        };
        let all: u64 = pair.helper.all.errors.iter().sum();
        let near: u64 = pair.helper.all.errors[..3].iter().sum();
        sheet.row([
            pair.recorded.name.as_str().into(),
            pair.peak_saved().into(),
            pair.mean_saved().into(),
            pair.slower().into(),
            match all {
                0 => Cell::Empty,
                all => (100.0 * near as f64 / all as f64).into(),
            },
            name,
            saved,
            time,
        ]);
    }
    Ok(sheet)
}

fn judge(part: &mut Part, pairs: &[ReplayedPair<'_>]) -> PaperResult<()> {
    let saved = pairs.iter().map(ReplayedPair::peak_saved);
    let mean = saved.clone().sum::<f64>() / pairs.len().max(1) as f64;
    let best = saved.fold(f64::NEG_INFINITY, f64::max);
    for (name, what, ours) in [
        ("saved_mean", "on average", mean),
        ("saved_most", "in the best case", best),
    ] {
        let paper = value("foresight", name)?;
        part.expect(
            format!("the helper's peak is below that of leaving pinned, {what}"),
            format!("{paper} %"),
            format!("{ours:.1} %"),
            ours >= paper,
            "the peak cannot fall where all buffers are in use at one moment, as in small classes: BT's and SP's are, and CG's take more time than may be lost",
        );
    }
    let mean_saved: Vec<f64> = pairs.iter().map(ReplayedPair::mean_saved).collect();
    let least = mean_saved.iter().copied().fold(f64::INFINITY, f64::min);
    part.expect(
        "registered memory falls over time for every benchmark",
        "also for CG, whose peak does not",
        format!("{least:.1} % of the mean saved at least"),
        least > 0.0,
        "",
    );
    let worst = (pairs.iter()).max_by(|a, b| a.slower().abs().total_cmp(&b.slower().abs()));
    part.expect(
        "the helper's time is within 1.2 % of leaving pinned, as the paper's is",
        "0.04 to 1.12 % apart",
        worst.map_or("none".to_owned(), |it| {
            format!("{:+.2} % at most, {}", it.slower(), it.recorded.name)
        }),
        worst.is_some_and(|it| it.slower().abs() <= 1.2),
        "FT and IS have six to ten iterations, of which the first two teach the helper; the paper's times are of \
         the largest classes, ours of small ones",
    );
    if let Some(ft) = pairs.iter().rfind(|it| it.recorded.program() == "ft") {
        let paper = value("foresight", "ft_saved")?;
        part.expect(
            "FT, whose exchanges are of all memory: the peak falls",
            format!("{paper} %"),
            format!("{:.1} %", ft.peak_saved()),
            ft.peak_saved() >= paper,
            "",
        );
    }
    Ok(())
}

/// Figure 3: a limit below the memory that leaving pinned needs.
fn limited(
    inputs: &ExperimentInputs<'_>,
    part: &mut Part,
    pairs: &[ReplayedPair<'_>],
) -> PaperResult<()> {
    let ft = pairs.iter().filter(|it| it.recorded.program() == "ft");
    let Some(pair) = ft.max_by_key(|it| it.leave.all.peak_bytes) else {
        return Ok(());
    };
    // The paper's share: 3 GB of 3.58 GB.
    let share = value("foresight", "limit")? / value("foresight", "limit_needed")?;
    let limit = (pair.leave.all.peak_bytes as f64 * share) as u64;
    let script = script(&pair.recorded.trace, MACHINE)?;
    let mut sheet = Sheet::new(
        "foresight-figure-3",
        format!(
            "Figure 3: {} where {} may be registered, {:.0} % of what leaving pinned takes",
            pair.recorded.name,
            units::bytes(limit as f64),
            100.0 * share
        ),
        &["strategy", "limit_mb", "finishes", "why"],
    );
    let never = Strategy::Rendezvous { unpin: false };
    let limit_mb = limit as f64 / MB as f64;
    let mut finished = Vec::new();
    for strategy in [never, LEAVE, Strategy::Foresight] {
        let mut replay = Replay::new(MACHINE, strategy);
        replay.limit = Some(limit);
        let run = replay.run(inputs, &pair.recorded.name, &script);
        finished.push(run.is_ok());
        // The addresses of buffers decide which ones are evicted, and they differ in every run. So
        // time and peak differ too.
        let (finishes, why) = match run {
            Ok(_) => ("yes", Cell::Empty),
            Err(why) => ("no", why.to_string().into()),
        };
        sheet.row([
            strategy.to_string().into(),
            limit_mb.into(),
            finishes.into(),
            why,
        ]);
    }
    part.sheets.push(sheet);
    part.expect(
        "under a limit that leaving pinned exceeds, FT finishes with the helper",
        "Open MPI leaving pinned does not",
        if finished[2] { "it does" } else { "it does not" },
        finished[2],
        "ours finishes by every strategy: what was used longest ago is given up, and what finds no room is copied",
    );
    Ok(())
}

/// A panel of figure 11.
fn over_time(pair: &ReplayedPair<'_>) -> Panel {
    let rank = pair.leave.largest();
    let (from, until) = window(&pair.helper.ranks[rank]);
    let of = |name: &str, kind, colour, played: &Played| Series {
        name: name.to_owned(),
        kind,
        colour,
        points: in_mib(super::cut(
            &staircase(&played.series, played.took),
            from,
            until,
        )),
    };
    Panel::Curves {
        title: format!(
            "{}, {} to {} of {}",
            pair.recorded.name,
            units::nanos(from * 1e6),
            units::nanos(until * 1e6),
            units::nanos(pair.helper.all.run_ns as f64)
        ),
        x: plot::Axis {
            label: "milliseconds",
            scale: plot::Scale::Plain,
            words: units::plain,
        },
        y: REGISTERED,
        series: vec![
            of(
                "leave pinned",
                SeriesKind::Reference,
                1,
                &pair.leave.ranks[rank],
            ),
            of(
                "helper thread",
                SeriesKind::Line,
                0,
                &pair.helper.ranks[rank],
            ),
        ],
        marks: Vec::new(),
    }
}

/// The time range of a rank in a picture, in milliseconds: all of it, or the longest part of the
/// middle that fits.
fn window(played: &Played) -> (f64, f64) {
    let ms = |at: Duration| at.as_secs_f64() * 1e3;
    let changes = played.series.len();
    if changes <= SHOWN {
        return (0.0, ms(played.took));
    }
    let first = (changes - SHOWN) / 2;
    (
        ms(played.series[first].0),
        ms(played.series[first + SHOWN - 1].0),
    )
}
