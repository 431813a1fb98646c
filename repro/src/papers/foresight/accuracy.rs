//! Figures 5 and 6: the accuracy of predictions, by predictor and by the length of its window.

use hydrant_foresight::{Costs, LinearCost};
use hydrant_traces::evaluation::{
    Accuracy, BOUNDS, Errors, EvaluationSetting, TraceClock, bound, evaluate,
};
use hydrant_traces::predictor::Method;
use hydrant_traces::trace::Trace;

use crate::papers::part::{Cell, Part, Picture, Sheet};
use crate::papers::published::value;
use crate::papers::traces::Recorded;
use crate::papers::{ExperimentInputs, PaperResult};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

/// The windows of the periodicity predictor.
const PATTERNS: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// The windows of signatures.
const SIGNATURES: [usize; 4] = [0, 1, 2, 4];

/// Thousandths for the paper's 5 % and 0.5 %.
const FIVE: u32 = 50;
const HALF: u32 = 5;

/// A predictor of figure 5.
struct PredictorColumn {
    name: &'static str,
    colour: usize,
    kind: SeriesKind,
    errors: fn(&Trace, &EvaluationSetting) -> Errors,
}

const COLUMNS: [PredictorColumn; 6] = [
    PredictorColumn {
        name: "shortest (the paper's)",
        colour: 0,
        kind: SeriesKind::Ours,
        errors: |trace, setting| evaluate(trace, Method::Shortest, setting).at_use,
    },
    PredictorColumn {
        name: "periodicity, best window",
        colour: 1,
        kind: SeriesKind::Ours,
        errors: periodicity,
    },
    PredictorColumn {
        name: "median of 9",
        colour: 7,
        kind: SeriesKind::Ours,
        errors: |trace, setting| evaluate(trace, Method::Median { of: 9 }, setting).at_use,
    },
    PredictorColumn {
        name: "landmarks, at use",
        colour: 4,
        kind: SeriesKind::Ours,
        errors: |trace, setting| evaluate(trace, Method::Landmarks, setting).at_use,
    },
    PredictorColumn {
        name: "landmarks, acted upon",
        colour: 2,
        kind: SeriesKind::Ours,
        errors: |trace, setting| evaluate(trace, Method::Landmarks, setting).acted,
    },
    PredictorColumn {
        name: "best constants in hindsight",
        colour: 3,
        kind: SeriesKind::Reference,
        errors: |trace, setting| bound(trace, setting).gaps,
    },
];

/// The rival, with the best window for the trace.
fn periodicity(trace: &Trace, setting: &EvaluationSetting) -> Errors {
    let of = |window| patterns(trace, setting, window).at_use;
    let all = PATTERNS.map(of).into_iter();
    let best = all.max_by(|a, b| {
        a.percent_within(FIVE)
            .total_cmp(&b.percent_within(FIVE))
            .then(a.forecasts.cmp(&b.forecasts))
    });
    best.unwrap_or_default()
}

fn patterns(trace: &Trace, setting: &EvaluationSetting, window: usize) -> Accuracy {
    let setting = EvaluationSetting {
        // Its patterns contain the context.
        window: 0,
        ..*setting
    };
    evaluate(trace, Method::Periodicity { window }, &setting)
}

/// The errors over all repeated uses. A use without a prediction counts as missed.
fn of_repeated(accuracy: Accuracy) -> Errors {
    Errors {
        forecasts: accuracy.repeated,
        ..accuracy.at_use
    }
}

/// The definition of a use. Programs whose buffers are all below the paper's 16 KB, such as those
/// of class S, are judged by a smaller threshold, with a registration time that shrinks in
/// proportion.
fn setting_of(trace: &Trace, clock: TraceClock) -> EvaluationSetting {
    const SHORT: LinearCost = LinearCost {
        per_page_ns: 25.0,
        per_operation_ns: 1000.0,
    };
    let paper = EvaluationSetting {
        clock,
        ..EvaluationSetting::PAPER
    };
    let records = trace.ranks().iter().flat_map(|it| it.records());
    let longest = records.map(|it| it.bytes).max().unwrap_or(0);
    if longest > paper.threshold_bytes {
        return paper;
    }
    EvaluationSetting {
        threshold_bytes: 1500,
        costs: Costs {
            register: SHORT,
            deregister: SHORT,
            hash_ns: 100,
            comparison_ns: 0,
        },
        ..paper
    }
}

/// The mean over traces of the forecasts within each bound. Traces without forecasts are left out.
fn means(all: &[Errors]) -> Vec<(f64, f64)> {
    let said: Vec<&Errors> = all.iter().filter(|it| it.forecasts > 0).collect();
    let mean = |bound: u32| {
        let sum: f64 = said.iter().map(|it| it.percent_within(bound)).sum();
        (f64::from(bound) / 10.0, sum / said.len().max(1) as f64)
    };
    BOUNDS.iter().map(|bound| mean(*bound)).collect()
}

fn at(points: &[(f64, f64)], bound: u32) -> f64 {
    let found = points.iter().find(|it| it.0 == f64::from(bound) / 10.0);
    found.map_or(f64::NAN, |it| it.1)
}

/// Figure 5: the predictors compared.
pub(in crate::papers) fn figure_5(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-5",
        "Foresight, figure 5: how well uses of buffers are predicted",
    );
    part.note(
        "Each predictor is played the communication of each rank of the traces, and its forecasts are compared with \
         what came, by computing time. The error is a share of the period. All but landmarks speak at the use \
         before, as the paper's do; landmarks correct themselves until the helper has to act, so they are shown \
         twice. The rival predictor, of Freitag and others, has for each trace the window that suits it best. \
         Best constants in hindsight are what nobody knows in advance: the rest is the traces' own jitter.",
    );
    part.note(
        "The traces are of other machines and classes than the paper's, recorded where four ranks shared two cores, \
         and the computing before a use is as noisy as that made it. The second panel has that noise removed: \
         each computation takes the median of its call site.",
    );
    let traces: Vec<&Recorded> = inputs.traces.all(inputs.quick).collect();
    let mut panels = Vec::new();
    for (clock, title, file) in [
        (TraceClock::Computing, "as recorded", ""),
        (TraceClock::Smooth, "without jitter", "-smooth"),
    ] {
        let (series, sheet) = predictors(inputs, &traces, clock, title);
        if clock == TraceClock::Computing {
            judge(&mut part, &series)?;
        } else {
            let least = [0, 4].map(|column| at(&series[column].points, FIVE));
            part.expect(
                "without jitter both predictors are within 5 % of the period for 95 % of the uses",
                "(goal)",
                format!("{:.1} % and {:.1} %", least[0], least[1]),
                least.iter().all(|it| *it >= 95.0),
                "",
            );
        }
        let name = format!("foresight-figure-5{file}");
        let heading = format!("figure 5, {title}, mean of the traces");
        part.sheets.push(Sheet::of_series(
            name,
            heading,
            "within_pct",
            "pct",
            &series,
        ));
        part.sheets.push(sheet);
        panels.push(panel(
            &format!("mean of all traces, {title}"),
            with_paper(series)?,
        ));
    }
    picture(&mut part, "foresight-figure-5", panels);
    Ok(part)
}

/// Runs all predictors on all traces by one clock. Returns their means, and a table of each.
fn predictors(
    inputs: &ExperimentInputs<'_>,
    traces: &[&Recorded],
    clock: TraceClock,
    title: &str,
) -> (Vec<Series>, Sheet) {
    let columns: Vec<String> = ["trace".to_owned(), "forecasts".to_owned()]
        .into_iter()
        .chain(COLUMNS.iter().flat_map(|column| {
            let name = column
                .name
                .replace([' ', ',', '('], "_")
                .replace([')', '\''], "");
            [format!("{name}_5_pct"), format!("{name}_0.5_pct")]
        }))
        .map(|name| name.replace("__", "_"))
        .collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let name = match clock {
        TraceClock::Smooth => "foresight-figure-5-traces-smooth",
        _ => "foresight-figure-5-traces",
    };
    let mut sheet = Sheet::new(
        name,
        format!("Forecasts within 5 % and 0.5 % of the period, {title}"),
        &columns,
    );
    let mut all: [Vec<Errors>; COLUMNS.len()] = Default::default();
    for recorded in traces {
        inputs.doing(format!("foresight: figure 5, {}, {title}", recorded.name));
        let setting = setting_of(&recorded.trace, clock);
        let found = COLUMNS.map(|column| (column.errors)(&recorded.trace, &setting));
        let percent = |errors: &Errors, bound| match errors.forecasts {
            0 => Cell::Empty,
            _ => errors.percent_within(bound).into(),
        };
        let cells = found
            .iter()
            .flat_map(|errors| [percent(errors, FIVE), percent(errors, HALF)]);
        let first = [recorded.name.as_str().into(), found[0].forecasts.into()];
        sheet.row(first.into_iter().chain(cells));
        for (all, errors) in all.iter_mut().zip(found) {
            all.push(errors);
        }
    }
    let series = COLUMNS.iter().zip(&all).map(|(column, all)| Series {
        name: column.name.to_owned(),
        kind: column.kind,
        colour: column.colour,
        points: means(all),
    });
    (series.collect(), sheet)
}

fn judge(part: &mut Part, series: &[Series]) -> PaperResult<()> {
    let percents = |column: usize, bound| at(&series[column].points, bound);
    let (shortest, rival, acted) = (0, 1, 4);
    let noise = "the shortest period ever seen is the lower edge of the noise, and these traces are noisier than a \
                 quiet cluster's: without jitter the predictor is within 5 % nearly always";
    for (bound, name, what) in [(FIVE, "within_5", "5 %"), (HALF, "within_half", "0.5 %")] {
        let paper = value("foresight", name)?;
        part.expect(
            format!("the paper's predictor, within {what} of the period"),
            format!("{paper} %"),
            format!("{:.1} %", percents(shortest, bound)),
            percents(shortest, bound) >= paper,
            noise,
        );
    }
    part.expect(
        "the paper's predictor is ahead of the periodicity predictor within 0.5 %",
        "74.89 % against less than 40 %",
        format!(
            "{:.1} % against {:.1} %",
            percents(shortest, HALF),
            percents(rival, HALF)
        ),
        percents(shortest, HALF) > percents(rival, HALF),
        "the last round of a pattern is in the middle of the noise, the shortest period at its edge; the paper's rival \
         had one window for all programs",
    );
    for (bound, what, least) in [(FIVE, "5 %", 95.0), (HALF, "0.5 %", 75.0)] {
        let constants = percents(5, bound);
        part.expect(
            format!("landmarks, when acted upon, within {what}"),
            format!("(goal: {least} %)"),
            format!("{:.1} %", percents(acted, bound)),
            percents(acted, bound) >= least,
            format!("the best constants in hindsight come to {constants:.1} %"),
        );
    }
    Ok(())
}

/// Adds the figures of the paper's text.
fn with_paper(mut series: Vec<Series>) -> PaperResult<Vec<Series>> {
    let figure = |name| value("foresight", name);
    for (name, colour, points) in [
        (
            "paper, its predictor",
            0,
            vec![(5.0, figure("within_5")?), (0.5, figure("within_half")?)],
        ),
        (
            "paper, periodicity (0.5 %: below)",
            1,
            vec![
                (5.0, figure("periodicity_within_5")?),
                (0.5, figure("periodicity_within_half")?),
            ],
        ),
    ] {
        series.push(Series {
            name: name.to_owned(),
            kind: SeriesKind::Peer,
            colour,
            points,
        });
    }
    Ok(series)
}

/// Figure 6: the accuracy by the length of the window, on CG.
pub(in crate::papers) fn figure_6(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-6",
        "Foresight, figure 6: how much predictors depend on their windows",
    );
    let all = || inputs.traces.all(false);
    let Some(recorded) = (inputs.traces.of_program("cg", false)).or_else(|| all().next()) else {
        return Ok(part);
    };
    part.note(format!(
        "Forecasts of {}, as recorded. The window of signatures is how many communications before a use tell it from \
         others; that of the periodicity predictor how many must repeat themselves. Percentages are of all uses that \
         were seen before, for what is not foreseen is as good as missed.",
        recorded.name
    ));
    let setting = setting_of(&recorded.trace, TraceClock::Computing);
    let series = |name: String, colour, errors: Errors| Series {
        name,
        kind: SeriesKind::Ours,
        colour,
        points: means(&[errors]),
    };
    let by_signature = |method: Method| -> Vec<Series> {
        let of = |(colour, window)| {
            inputs.doing(format!("foresight: figure 6, {method}, window {window}"));
            let setting = EvaluationSetting { window, ..setting };
            let errors = of_repeated(evaluate(&recorded.trace, method, &setting));
            series(format!("{method}, window {window}"), colour, errors)
        };
        SIGNATURES.into_iter().enumerate().map(of).collect()
    };
    let shortest = by_signature(Method::Shortest);
    let landmarks = by_signature(Method::Landmarks);
    let patterns: Vec<Series> = (PATTERNS.into_iter().enumerate())
        .map(|(colour, window)| {
            inputs.doing(format!("foresight: figure 6, periodicity, window {window}"));
            let errors = of_repeated(patterns(&recorded.trace, &setting, window));
            let name = format!("periodicity, window {window}");
            series(name, colour, errors)
        })
        .collect();
    let gain = at(&shortest[1].points, HALF) - at(&shortest[0].points, HALF);
    let paper = value("foresight", "window_0_loses")?;
    part.expect(
        "(a) without the communication before, fewer forecasts are within 0.5 % (10 points or more)",
        format!("{paper} points fewer"),
        format!("{gain:.1} points fewer"),
        gain >= paper / 2.0,
        "the traces have the hash of six return addresses, which tell CG's uses apart by themselves; the paper's stack \
         frames did not",
    );
    let spread = |all: &[Series], bound| {
        let percents = all.iter().map(|it| at(&it.points, bound));
        let (least, most) = percents.fold((100.0_f64, 0.0_f64), |(least, most), it| {
            (least.min(it), most.max(it))
        });
        most - least
    };
    let longer = spread(&shortest[1..], HALF);
    part.expect(
        "(a) more than the communication just before adds little (5 points at most, within 0.5 %)",
        "accuracy increases little",
        format!("{longer:.1} points"),
        longer <= 5.0,
        "",
    );
    let apart = spread(&patterns, FIVE).max(spread(&patterns, HALF));
    part.expect(
        "(b) the periodicity predictor depends on its window (10 points or more)",
        "highly sensitive",
        format!("{apart:.1} points"),
        apart >= 10.0,
        "a program whose patterns are shorter than all windows is foreseen alike by all of them",
    );
    for (name, title, series) in [
        (
            "a",
            "(a) window of signatures, the paper's predictor",
            shortest,
        ),
        (
            "landmarks",
            "window of signatures, landmarks at use",
            landmarks,
        ),
        ("b", "(b) window of the periodicity predictor", patterns),
    ] {
        part.sheets.push(Sheet::of_series(
            format!("foresight-figure-6-{name}"),
            title,
            "within_pct",
            "pct",
            &series,
        ));
        let panels = vec![panel(title, series)];
        picture(&mut part, &format!("foresight-figure-6-{name}"), panels);
    }
    Ok(part)
}

fn panel(title: &str, series: Vec<Series>) -> Panel {
    Panel::Curves {
        title: title.to_owned(),
        x: plot::Axis {
            label: "error, % of the period, at most",
            scale: plot::Scale::Tens,
            words: units::plain,
        },
        y: plot::Axis {
            label: "forecasts, %",
            scale: plot::Scale::Plain,
            words: units::plain,
        },
        series,
        marks: Vec::new(),
    }
}

fn picture(part: &mut Part, name: &str, panels: Vec<Panel>) {
    part.pictures.push(Picture {
        name: name.to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: "forecasts within an error, in percent of all".to_owned(),
            panels,
        },
    });
}
