//! Figures 2, 9 and 10: the paper's microbenchmark (Figure 1), whose buffers are reused, or never.

use std::time::Duration;

use hydrant::{Job, MessageProtocol, Result, Strategy, at_site};
use hydrant_base::Random;

use super::{MACHINE, REGISTERED, in_mib, percent_above, percent_saved};
use crate::papers::job::{FIRST, MB, SECOND, SPARE, Setup, aligned, micros, timed};
use crate::papers::part::{Cell, Part, Picture, Sheet};
use crate::papers::published::value;
use crate::papers::{ExperimentInputs, PaperResult};
use crate::replay::{mean, staircase};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

/// Buffers of an iteration.
const BUFFERS: usize = 3;
/// The number of iterations.
const ROUNDS: usize = 10;
/// The operations in a second on the machine's processors: the computation after each message.
const SECOND_OF_COMPUTING: u64 = 1_400_000_000;
/// The most operations that noise adds to a computation: a millisecond.
const NOISE: usize = 1_400_000;
const KB: usize = 1 << 10;

/// A registration scheme, with its name in the paper's charts.
#[derive(Clone, Copy, Debug)]
struct Scheme {
    name: &'static str,
    strategy: Strategy,
    messages: MessageProtocol,
}

const DEFAULT: Scheme = Scheme {
    name: "leave pinned (default)",
    strategy: Strategy::OnDemand { leave_pinned: true },
    messages: MessageProtocol::Rendezvous,
};
const NO_LEAVE: Scheme = Scheme {
    name: "no leave pinned",
    strategy: Strategy::OnDemand {
        leave_pinned: false,
    },
    messages: MessageProtocol::Rendezvous,
};
const HELPER: Scheme = Scheme {
    name: "helper thread",
    strategy: Strategy::Foresight,
    messages: MessageProtocol::Rendezvous,
};
const PIPELINE: Scheme = Scheme {
    name: "pipeline, no leave pinned",
    strategy: Strategy::Pipeline {
        leave_pinned: false,
    },
    messages: MessageProtocol::Pipeline,
};
const PIPELINE_LEAVE: Scheme = Scheme {
    name: "pipeline, leave pinned",
    strategy: Strategy::Pipeline { leave_pinned: true },
    messages: MessageProtocol::Pipeline,
};

/// The buffers of the iterations: the same ones, or new ones each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferUse {
    Reused,
    Fresh,
}

/// The sender's measurements.
#[derive(Debug)]
struct MessageRun {
    /// The time of each message.
    times: Vec<Duration>,
    /// Registered bytes, with the time of each change.
    series: Vec<(Duration, u64)>,
    took: Duration,
}

impl MessageRun {
    fn mean_us(&self) -> f64 {
        let all: Duration = self.times.iter().sum();
        micros(all) / self.times.len().max(1) as f64
    }

    /// The time of a message once all is learnt and registered.
    fn median_us(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort();
        times
            .get(times.len() / 2)
            .map_or(f64::NAN, |it| micros(*it))
    }

    fn peak(&self) -> f64 {
        self.series.iter().map(|it| it.1).max().unwrap_or(0) as f64
    }

    fn mean(&self) -> f64 {
        mean(&self.series, self.took) as f64
    }
}

/// Runs the benchmark with messages of `bytes` bytes.
fn run(scheme: Scheme, bytes: usize, buffers: BufferUse) -> PaperResult<MessageRun> {
    // No scheme may need to evict for want of room.
    let mut setup = Setup::new(MACHINE, scheme.strategy, 1024 * MB, 1024 * MB);
    setup.messages = scheme.messages;
    setup.run(|job| both_ranks(job, bytes, buffers))
}

fn both_ranks(job: &Job, bytes: usize, buffers: BufferUse) -> Result<MessageRun> {
    let slot = bytes.next_multiple_of(SPARE);
    let slots = match buffers {
        BufferUse::Reused => BUFFERS,
        BufferUse::Fresh => BUFFERS * ROUNDS,
    };
    let mut memory = vec![0_u8; slots * slot + SPARE];
    let start = aligned(&memory);
    let memory = &mut memory[start..];
    // The same noise on both ranks, so that neither waits for the other.
    let mut noise = Random::new(1);
    job.barrier()?;
    job.keep_registered_series();
    let begun = job.now();
    let mut times = Vec::new();
    for message in 0..BUFFERS * ROUNDS {
        let at = message % slots * slot;
        let buffer = &mut memory[at..at + bytes];
        // The benchmark has a call site for each of its buffers.
        let site = (message % BUFFERS) as u64 + 1;
        times.push(at_site(site, || {
            timed(job, || match job.rank() {
                FIRST => job.send(SECOND, 0, buffer),
                _ => job.receive(FIRST, 0, buffer).map(drop),
            })
        })?);
        job.compute(SECOND_OF_COMPUTING + noise.below(NOISE) as u64);
    }
    let took = job.now().saturating_sub(begun);
    let since = |(at, bytes): (Duration, u64)| (at.saturating_sub(begun), bytes);
    let series = job.registered_series().into_iter().map(since).collect();
    job.barrier()?;
    Ok(MessageRun {
        times,
        series,
        took,
    })
}

/// Figure 2: registered memory and time, with buffers left pinned or not.
pub(in crate::papers) fn figure_2(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let bytes = 5 * MB as usize;
    let mut part = Part::new(
        "foresight-figure-2",
        "Foresight, figure 2: what leaving buffers pinned takes, and what not",
    );
    part.note(
        "The paper's microbenchmark: one rank sends three buffers of 5 MB in turn, ten times, and computes a second \
         after each message, give or take a millisecond; the other receives them. Registered memory is that of the \
         sender. The buffers for short messages, the paper's region 1, stay as they are and are left out here.",
    );
    let mut sheet = Sheet::new(
        "foresight-figure-2-times",
        "The sender's messages",
        &["scheme", "mean_us", "all_ms", "peak_mb", "mean_mb"],
    );
    let mut series = Vec::new();
    let mut times = Vec::new();
    for (colour, scheme) in [DEFAULT, NO_LEAVE].into_iter().enumerate() {
        inputs.doing(format!("foresight: figure 2, {}", scheme.name));
        let run = run(scheme, bytes, BufferUse::Reused)?;
        row(&mut sheet, scheme.name.into(), &run);
        times.push(run.mean_us());
        series.push(over_time(scheme, colour, &run));
    }
    let longer = percent_above(times[1], times[0]);
    let paper = value("foresight", "no_leave_pinned")?;
    part.expect(
        "not leaving pinned makes communication longer (13 to 52 %)",
        format!("{paper} %"),
        format!("{longer:.1} %"),
        (0.5..=2.0).contains(&(longer / paper)),
        "the profile's registration is what UCX plans with and its bandwidth that of the class of NIC: the paper \
         gives neither of its machine",
    );
    part.sheets.push(sheet);
    picture(
        &mut part,
        "foresight-figure-2",
        vec![over_time_panel(series)],
    );
    Ok(part)
}

/// Figure 9: buffers are reused.
pub(in crate::papers) fn figure_9(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-9",
        "Foresight, figure 9: buffers that are reused, by scheme",
    );
    part.note(
        "The microbenchmark of figure 2 with messages of 17 KB to 16 MB by each scheme. As in the paper a latency is \
         the mean of all messages, the first ones included: leaving pinned registers each buffer once, the helper \
         lets a use pass before it knows a period. Medians are of messages after that. All schemes register what \
         is above 16 KB; the paper's pipeline copies up to 1 MB, so that its lead below 256 KB is not to be seen here.",
    );
    let found = schemes(inputs, &mut part, "9", BufferUse::Reused)?;
    let [default, helper, pipeline, pipeline_leave] = &found[..] else {
        return Ok(part);
    };
    let paper = value("foresight", "reuse_saved")?;
    let saved = percent_saved(helper.at_4_mb.peak(), default.at_4_mb.peak());
    part.expect(
        "the helper registers less at most than leaving pinned, 4 MB",
        format!("{paper} % less"),
        format!("{saved:.1} % less"),
        saved >= paper,
        "the paper's share is of all that is registered, some 20 MB of buffers for short messages included",
    );
    let others = [default, pipeline, pipeline_leave].map(|it| it.at_4_mb.peak());
    part.expect(
        "the helper has the least registered of all schemes",
        "3.84 % and 21.04 % less than the pipeline",
        format!(
            "{} at most, others {}",
            units::bytes(helper.at_4_mb.peak()),
            others.map(units::bytes).join(", ")
        ),
        others.iter().all(|it| helper.at_4_mb.peak() <= *it),
        "our pipeline that does not leave pinned registers four chunks of 128 KB at a time and gives each up at once, \
         the paper's holds the whole message",
    );
    let worst = (default.means.iter().zip(&helper.means))
        .filter(|((bytes, _), _)| *bytes >= MB as f64)
        .map(|((_, default), (_, helper))| percent_above(*helper, *default))
        .fold(f64::NEG_INFINITY, f64::max);
    part.expect(
        "the helper is less than 5 % slower than leaving pinned from 1 MB on, mean of all messages",
        "less than 5 %",
        format!("at most {worst:.1} %"),
        worst < 5.0,
        "ours learns a period from the second use of a buffer on, so that two of ten uses register on the \
         critical path where leaving pinned has one",
    );
    let settled = (default.medians.iter().zip(&helper.medians))
        .map(|((_, default), (_, helper))| percent_above(*helper, *default))
        .fold(f64::NEG_INFINITY, f64::max);
    part.expect(
        "once it knows the period the helper costs nothing, at any size (median, within 2 %)",
        "(goal)",
        format!("at most {settled:.2} %"),
        settled <= 2.0,
        "in virtual time what the application writes down for the helper takes none; docs/foresight.md has what \
         it takes on a real machine, where the paper has 14.02 % at 17 KB",
    );
    let last = |of: &SchemeSweep| of.means.last().map_or(f64::NAN, |it| it.1);
    part.expect(
        "the pipeline that does not leave pinned is slower than leaving pinned, 16 MB",
        "low performance",
        format!(
            "{:.1} % slower",
            percent_above(last(pipeline), last(default))
        ),
        last(pipeline) > last(default),
        "",
    );
    Ok(part)
}

/// Figure 10: buffers are not reused.
pub(in crate::papers) fn figure_10(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-10",
        "Foresight, figure 10: buffers that are used once, by scheme",
    );
    part.note("As figure 9, each message from, and into, a buffer of its own.");
    let found = schemes(inputs, &mut part, "10", BufferUse::Fresh)?;
    let [default, helper, pipeline, pipeline_leave] = &found[..] else {
        return Ok(part);
    };
    let times = |of: &SchemeSweep| of.at_4_mb.peak() / helper.at_4_mb.peak();
    let paper = value("foresight", "fresh_default")?;
    part.expect(
        "leaving pinned registers several times as much at most as the helper, 4 MB",
        format!("{paper} ×"),
        format!("{:.1} ×", times(default)),
        times(default) >= paper,
        "the paper's has its buffers for short messages in both; without them thirty buffers stand against one",
    );
    part.expect(
        "so does the pipeline that leaves pinned",
        format!("{} ×", value("foresight", "fresh_pipeline")?),
        format!("{:.1} ×", times(pipeline_leave)),
        times(pipeline_leave) > 2.0,
        "",
    );
    let worst = (default.means.iter().zip(&helper.means))
        .map(|((_, default), (_, helper))| percent_above(*helper, *default).abs())
        .fold(0.0, f64::max);
    part.expect(
        "the helper is as fast as leaving pinned (within 5 %): both register on the critical path",
        "comparable",
        format!("at most {worst:.1} % apart"),
        worst <= 5.0,
        "",
    );
    let last = |of: &SchemeSweep| of.means.last().map_or(f64::NAN, |it| it.1);
    let times = |of| last(default) / last(of);
    part.expect(
        "the pipeline is the fastest, 16 MB",
        "effectively reduces registration costs",
        format!(
            "{:.2} × as fast as leaving pinned where it leaves pinned, {:.2} × where not",
            times(pipeline_leave),
            times(pipeline)
        ),
        last(pipeline_leave) < last(default) && last(pipeline_leave) < last(helper),
        "what ours gives up after a chunk is given up on the critical path of the next",
    );
    Ok(part)
}

/// The results of a scheme at all sizes.
struct SchemeSweep {
    /// Microseconds by bytes.
    means: Vec<(f64, f64)>,
    medians: Vec<(f64, f64)>,
    at_4_mb: MessageRun,
}

/// Runs all schemes of figures 9 and 10, and draws them.
fn schemes(
    inputs: &ExperimentInputs<'_>,
    part: &mut Part,
    figure: &str,
    buffers: BufferUse,
) -> PaperResult<Vec<SchemeSweep>> {
    let powers = (5..=14).step_by(inputs.pick(1, 3)).map(|bits| KB << bits);
    let sizes: Vec<usize> = std::iter::once(17 * KB)
        .chain(powers)
        .chain([16 * MB as usize])
        .collect();
    let all = [DEFAULT, HELPER, PIPELINE, PIPELINE_LEAVE];
    let mut sheet = Sheet::new(
        format!("foresight-figure-{figure}-4mb"),
        "Messages of 4 MB: the sender's time and registered memory",
        &["scheme", "mean_us", "all_ms", "peak_mb", "mean_mb"],
    );
    let (mut over, mut by_size, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for (colour, scheme) in all.into_iter().enumerate() {
        inputs.doing(format!("foresight: figure {figure}, {}", scheme.name));
        let at_4_mb = run(scheme, 4 * MB as usize, buffers)?;
        let (mut means, mut medians) = (Vec::new(), Vec::new());
        for &bytes in &sizes {
            let run = run(scheme, bytes, buffers)?;
            means.push((bytes as f64, run.mean_us()));
            medians.push((bytes as f64, run.median_us()));
        }
        row(&mut sheet, scheme.name.into(), &at_4_mb);
        over.push(over_time(scheme, colour, &at_4_mb));
        by_size.push(Series {
            name: scheme.name.to_owned(),
            kind: SeriesKind::Ours,
            colour,
            points: means.clone(),
        });
        found.push(SchemeSweep {
            means,
            medians,
            at_4_mb,
        });
    }
    part.sheets.push(sheet);
    let name = format!("foresight-figure-{figure}");
    let title = format!("figure {figure}, mean time of a message");
    part.sheets
        .push(Sheet::of_series(&name, title, "bytes", "us", &by_size));
    let medians: Vec<Series> = (by_size.iter().zip(&found))
        .map(|(series, swept)| Series {
            points: swept.medians.clone(),
            ..series.clone()
        })
        .collect();
    let title = format!("figure {figure}, median time of a message");
    part.sheets.push(Sheet::of_series(
        format!("{name}-medians"),
        title,
        "bytes",
        "us",
        &medians,
    ));
    // Curves that coincide hide each other, so the default is drawn last, dashed.
    over.rotate_left(1);
    let latency = Panel::Curves {
        title: "(b) mean time of a message by its size".to_owned(),
        x: plot::Axis {
            label: "size of a message, bytes",
            scale: plot::Scale::Twos,
            words: units::bytes,
        },
        y: plot::Axis {
            label: "µs",
            scale: plot::Scale::Tens,
            words: units::plain,
        },
        series: by_size,
        marks: Vec::new(),
    };
    picture(part, &name, vec![over_time_panel(over), latency]);
    Ok(found)
}

fn row(sheet: &mut Sheet, name: Cell, run: &MessageRun) {
    let mb = |bytes: f64| Cell::from(bytes / MB as f64);
    let all: Duration = run.times.iter().sum();
    sheet.row([
        name,
        run.mean_us().into(),
        (micros(all) / 1e3).into(),
        mb(run.peak()),
        mb(run.mean()),
    ]);
}

fn over_time(scheme: Scheme, colour: usize, run: &MessageRun) -> Series {
    let seconds = |(ms, bytes): (f64, f64)| (ms / 1e3, bytes);
    Series {
        name: scheme.name.to_owned(),
        kind: if scheme.strategy == DEFAULT.strategy {
            SeriesKind::Reference
        } else {
            SeriesKind::Line
        },
        colour,
        points: in_mib(staircase(&run.series, run.took).into_iter().map(seconds)),
    }
}

fn over_time_panel(series: Vec<Series>) -> Panel {
    Panel::Curves {
        title: "(a) memory registered by the sender".to_owned(),
        x: plot::Axis {
            label: "seconds",
            scale: plot::Scale::Plain,
            words: units::plain,
        },
        y: REGISTERED,
        series,
        marks: Vec::new(),
    }
}

fn picture(part: &mut Part, name: &str, panels: Vec<Panel>) {
    part.pictures.push(Picture {
        name: name.to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: format!("sim:{MACHINE}"),
            panels,
        },
    });
}
