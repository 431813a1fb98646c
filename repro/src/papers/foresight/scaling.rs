//! Figures 13 and 14 and table 4: FT on more ranks.

use hydrant::Strategy;

use super::{MACHINE, REGISTERED, in_mib, percent_above, percent_saved};
use crate::papers::derive::{Scaling, derive};
use crate::papers::job::MB;
use crate::papers::part::{Part, Picture, Sheet};
use crate::papers::published::value;
use crate::papers::replays::{Replay, script};
use crate::papers::traces::{Recorded, Traces};
use crate::papers::{ExperimentInputs, PaperResult};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

const LEAVE: Strategy = Strategy::OnDemand { leave_pinned: true };

/// A kind of growth, and the paper's results for it.
struct Growth {
    scaling: Scaling,
    figure: &'static str,
    name: &'static str,
}

const WAYS: [Growth; 2] = [
    Growth {
        scaling: Scaling::Strong,
        figure: "13",
        name: "strong",
    },
    Growth {
        scaling: Scaling::Weak,
        figure: "14",
        name: "weak",
    },
];

/// Figures 13 and 14, and table 4.
pub(in crate::papers) fn figure_13(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-13",
        "Foresight, figures 13 and 14, and table 4: FT on more ranks",
    );
    // Each rank's memory exists 64 times, so large classes would not fit a machine.
    let own = Traces::own()?;
    let (Some(large), Some(small)) = (
        inputs.traces.of_program("ft", inputs.quick),
        own.find("ft", inputs.pick("W", "S")),
    ) else {
        part.note("There is no trace of FT.");
        return Ok(part);
    };
    part.note(format!(
        "Each rank has a host. The traces of 16, 32 and 64 ranks are derived: with strong scaling the arrays and the \
         computing of {} are divided among more ranks, with weak scaling each rank keeps those that a rank of {} has, \
         and each exchange is in smaller parts. How FT's computing would change beside that is not known.",
        large.name, small.name
    ));
    let sizes: &[u32] = inputs.pick(&[16, 32, 64][..], &[4, 8][..]);
    let mut sheet = Sheet::new(
        "foresight-table-4",
        "FT by the number of ranks",
        &[
            "scaling",
            "ranks",
            "pinned_peak_mb",
            "helper_peak_mb",
            "saved_pct",
            "pinned_s",
            "helper_s",
            "time_pct",
            "paper_saved_pct",
            "paper_time_pct",
        ],
    );
    let mut panels = Vec::new();
    for way in WAYS {
        let recorded = match way.scaling {
            Scaling::Strong => large,
            Scaling::Weak => small,
        };
        let rows = grown(inputs, recorded, &way, sizes)?;
        for row in &rows {
            let of = |what: &str| value("foresight", &format!("{}_{}_{what}", way.name, row.ranks));
            let paper_time = match (of("helper_time"), of("pinned_time")) {
                (Ok(helper), Ok(pinned)) => Some(percent_above(helper, pinned)),
                _ => None,
            };
            sheet.row([
                way.name.into(),
                u64::from(row.ranks).into(),
                (row.peaks[0] / MB as f64).into(),
                (row.peaks[1] / MB as f64).into(),
                row.saved().into(),
                row.seconds[0].into(),
                row.seconds[1].into(),
                percent_above(row.seconds[1], row.seconds[0]).into(),
                of("saved").ok().into(),
                paper_time.into(),
            ]);
        }
        judge(&mut part, &way, &rows);
        panels.push(panel(&way, &rows));
    }
    part.sheets.push(sheet);
    part.pictures.push(Picture {
        name: "foresight-figure-13".to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: format!("sim:{MACHINE}; the rank that registers most"),
            panels,
        },
    });
    Ok(part)
}

/// FT on this many ranks, with memory left pinned and with the helper.
struct ScalingRow {
    ranks: u32,
    peaks: [f64; 2],
    seconds: [f64; 2],
}

impl ScalingRow {
    fn saved(&self) -> f64 {
        percent_saved(self.peaks[1], self.peaks[0])
    }
}

fn grown(
    inputs: &ExperimentInputs<'_>,
    recorded: &Recorded,
    way: &Growth,
    sizes: &[u32],
) -> PaperResult<Vec<ScalingRow>> {
    let mut rows = Vec::new();
    for &ranks in sizes {
        if !ranks.is_multiple_of(recorded.trace.ranks().len() as u32) {
            continue;
        }
        let trace = derive(&recorded.trace, ranks, way.scaling)?;
        let script = script(&trace, MACHINE)?;
        let name = format!("{}, {} scaling, {ranks} ranks", recorded.name, way.name);
        let mut row = ScalingRow {
            ranks,
            peaks: [0.0; 2],
            seconds: [0.0; 2],
        };
        for (at, strategy) in [LEAVE, Strategy::Foresight].into_iter().enumerate() {
            let run = Replay::new(MACHINE, strategy).run(inputs, &name, &script)?;
            row.peaks[at] = run.all.peak_bytes as f64;
            row.seconds[at] = run.seconds();
        }
        rows.push(row);
    }
    Ok(rows)
}

fn judge(part: &mut Part, way: &Growth, rows: &[ScalingRow]) {
    let saved: Vec<String> = rows
        .iter()
        .map(|it| format!("{:.1} %", it.saved()))
        .collect();
    let paper = match way.scaling {
        Scaling::Strong => "33.19, 34.08 and 31.70 %",
        Scaling::Weak => "33.05, 34.08 and 33.09 %",
    };
    let saves = rows.iter().map(ScalingRow::saved);
    let (least, most) = saves.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| {
        (least.min(it), most.max(it))
    });
    part.expect(
        format!(
            "{} scaling: about a third of the peak is saved (25 % or more)",
            way.name
        ),
        paper,
        saved.join(", "),
        least >= 25.0,
        "",
    );
    part.expect(
        format!(
            "{} scaling: the share is the same at all sizes (within 10 points)",
            way.name
        ),
        "proportional savings in all cases",
        format!("{least:.1} to {most:.1} %"),
        most - least <= 10.0,
        "the more ranks, the shorter are the parts of an exchange, and the more of them are registered at once",
    );
    let peaks: Vec<f64> = rows.iter().map(|it| it.peaks[0]).collect();
    let of = |it: &[f64]| it.windows(2).all(|it| it[1] < 0.75 * it[0]);
    let (what, met) = match way.scaling {
        Scaling::Strong => ("falls with the number of ranks", of(&peaks)),
        Scaling::Weak => (
            "is almost constant",
            peaks.windows(2).all(|it| (it[1] / it[0] - 1.0).abs() < 0.1),
        ),
    };
    let words: Vec<String> = peaks.iter().map(|it| units::bytes(*it)).collect();
    part.expect(
        format!("{} scaling: what leaving pinned registers {what}", way.name),
        "so",
        words.join(", "),
        met,
        "",
    );
}

fn panel(way: &Growth, rows: &[ScalingRow]) -> Panel {
    let of = |name: &str, colour, at: usize| Series {
        name: name.to_owned(),
        kind: SeriesKind::Ours,
        colour,
        points: in_mib(rows.iter().map(|it| (f64::from(it.ranks), it.peaks[at]))),
    };
    Panel::Curves {
        title: format!(
            "figure {}: {} scaling, most registered at a time",
            way.figure, way.name
        ),
        x: plot::Axis {
            label: "ranks",
            scale: plot::Scale::Twos,
            words: |ranks| format!("{ranks:.0}"),
        },
        y: REGISTERED,
        series: vec![of("leave pinned", 1, 0), of("helper thread", 0, 1)],
        marks: Vec::new(),
    }
}
