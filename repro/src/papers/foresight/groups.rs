//! Figure 12 and table 3: several ranks on a host, grouped in two ways.

use std::time::Duration;

use hydrant::Strategy;
use hydrant_base::Random;

use super::{MACHINE, REGISTERED, in_mib, percent_above, percent_saved};
use crate::papers::derive::{Scaling, derive};
use crate::papers::job::{MB, shuffled};
use crate::papers::part::{Part, Picture, Sheet};
use crate::papers::published::value;
use crate::papers::replays::{Replay, Replayed, script, together};
use crate::papers::{ExperimentInputs, PaperResult};
use crate::replay::{mean, staircase};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

/// Ranks of a host.
const PER_HOST: u32 = 4;
const LEAVE: Strategy = Strategy::OnDemand { leave_pinned: true };

/// The memory that the ranks of a host have registered together.
struct HostMemory {
    series: Vec<(Duration, u64)>,
}

impl HostMemory {
    fn peak(&self) -> u64 {
        self.series.iter().map(|it| it.1).max().unwrap_or(0)
    }
}

/// Figure 12 and table 3.
pub(in crate::papers) fn figure_12(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-12",
        "Foresight, figure 12 and table 3: four ranks on each host",
    );
    let Some(recorded) = inputs.traces.of_program("ft", inputs.quick) else {
        part.note("There is no trace of FT.");
        return Ok(part);
    };
    let ranks = inputs.pick(16, 8);
    let trace = derive(&recorded.trace, ranks, Scaling::Strong)?;
    let script = script(&trace, MACHINE)?;
    part.note(format!(
        "FT on {ranks} ranks, {PER_HOST} to a host, in the order of the ranks and at random. The trace is derived from \
         {}: its arrays and its computing are divided among more ranks. Messages between ranks of one host are copied \
         and need no registration. The paper's layout is 2 × 8, so that its grouping decides how much leaves a host; \
         ours is of one dimension, in which each rank sends as much to each, and no grouping is better than another.",
        recorded.name
    ));
    let in_order: Vec<u32> = (0..ranks).map(|rank| rank / PER_HOST).collect();
    let mut at_random = vec![0; ranks as usize];
    let order = shuffled(&mut Random::new(12), 0, ranks as usize);
    for (place, rank) in order.into_iter().enumerate() {
        at_random[rank] = place as u32 / PER_HOST;
    }
    let mut sheet = Sheet::new(
        "foresight-table-3",
        "A host's registered memory, and the time",
        &[
            "test",
            "strategy",
            "host_peak_mb",
            "host_mean_mb",
            "saved_pct",
            "time_s",
            "paper_saved_pct",
            "paper_time_s",
        ],
    );
    let mut panels = Vec::new();
    let (mut saved, mut slower) = (Vec::new(), Vec::new());
    for (test, hosts) in [("1", in_order), ("2", at_random)] {
        let run = |strategy| {
            let mut replay = Replay::new(MACHINE, strategy);
            replay.how.hosts = hosts.clone();
            let name = format!("{} on {ranks} ranks, test {test}", recorded.name);
            let replayed = replay.run(inputs, &name, &script)?;
            let host = largest(&replayed, &hosts);
            Ok::<_, crate::papers::ReproduceError>((replayed, host))
        };
        let leave = run(LEAVE)?;
        let helper = run(Strategy::Foresight)?;
        let less = percent_saved(helper.1.peak() as f64, leave.1.peak() as f64);
        let key = format!("test_{test}");
        for ((replayed, host), name, what) in [
            (&leave, "leave pinned", "pinned"),
            (&helper, "helper thread", "helper"),
        ] {
            let mb = |bytes: u64| bytes as f64 / MB as f64;
            let is_helper = what == "helper";
            let paper_saved = value("foresight", &format!("{key}_saved"))?;
            sheet.row([
                test.into(),
                name.into(),
                mb(host.peak()).into(),
                mb(mean(
                    &host.series,
                    Duration::from_nanos(replayed.all.run_ns),
                ))
                .into(),
                is_helper.then_some(less).into(),
                replayed.seconds().into(),
                is_helper.then_some(paper_saved).into(),
                value("foresight", &format!("{key}_{what}_time"))?.into(),
            ]);
        }
        saved.push(less);
        slower.push(percent_above(helper.0.seconds(), leave.0.seconds()));
        panels.push(panel(test, &leave, &helper));
    }
    for (at, test) in ["1", "2"].into_iter().enumerate() {
        let paper = value("foresight", &format!("test_{test}_saved"))?;
        part.expect(
            format!("test {test}: a host's peak falls"),
            format!("{paper} %"),
            format!("{:.1} %", saved[at]),
            saved[at] >= paper,
            "",
        );
    }
    let worst = slower.iter().fold(0.0_f64, |worst, it| worst.max(it.abs()));
    part.expect(
        "the time is within 1.5 % of leaving pinned, as the paper's is",
        "0.7 and 1.4 % shorter",
        format!("{:+.2} % and {:+.2} %", slower[0], slower[1]),
        worst <= 1.5,
        "FT has six iterations, of which the first two teach the helper",
    );
    part.sheets.push(sheet);
    part.pictures.push(Picture {
        name: "foresight-figure-12".to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: format!("sim:{MACHINE}; the host that registers most at a time"),
            panels,
        },
    });
    Ok(part)
}

/// The host with the largest peak of registered memory.
fn largest(replayed: &Replayed, hosts: &[u32]) -> HostMemory {
    let host = |host: u32| {
        let ranks = replayed.ranks.iter().zip(hosts);
        let own = ranks.filter(move |it| *it.1 == host);
        HostMemory {
            series: together(own.map(|it| &it.0.series[..])),
        }
    };
    let all = (0..hosts.len() as u32 / PER_HOST).rev().map(host);
    let none = HostMemory { series: Vec::new() };
    all.max_by_key(HostMemory::peak).unwrap_or(none)
}

fn panel(test: &str, leave: &(Replayed, HostMemory), helper: &(Replayed, HostMemory)) -> Panel {
    let of = |name: &str, kind, colour, it: &(Replayed, HostMemory)| Series {
        name: name.to_owned(),
        kind,
        colour,
        points: in_mib(staircase(
            &it.1.series,
            Duration::from_nanos(it.0.all.run_ns),
        )),
    };
    Panel::Curves {
        title: format!("test {test}"),
        x: plot::Axis {
            label: "milliseconds",
            scale: plot::Scale::Plain,
            words: units::plain,
        },
        y: REGISTERED,
        series: vec![
            of("leave pinned", SeriesKind::Reference, 1, leave),
            of("helper thread", SeriesKind::Line, 0, helper),
        ],
        marks: Vec::new(),
    }
}
