//! A look as OpenMetrics text 1.0: families of samples, each sample with the labels of its rank.
//!
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::look::{Look, SeenRank, SeenState, is_level};

/// The type of the text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The kinds of families used here.
#[derive(Clone, Copy)]
enum FamilyType {
    Gauge,
    Counter,
    Info,
}

/// A family of samples under one name.
struct MetricFamily {
    name: String,
    kind: FamilyType,
    help: String,
    /// The labels and the value of each sample.
    samples: Vec<(String, u64)>,
}

impl MetricFamily {
    fn new(name: impl Into<String>, kind: FamilyType, help: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind,
            help: help.into(),
            samples: Vec::new(),
        }
    }

    /// Writes the family, unless it is empty.
    fn write(&self, text: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let Self { name, help, .. } = self;
        let (kind, suffix) = match self.kind {
            FamilyType::Gauge => ("gauge", ""),
            FamilyType::Counter => ("counter", "_total"),
            FamilyType::Info => ("info", "_info"),
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if name.ends_with("_bytes") {
            let _ = writeln!(text, "# UNIT {name} bytes");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for (labels, value) in &self.samples {
            let _ = writeln!(text, "{name}{suffix}{{{labels}}} {value}");
        }
    }
}

/// All ranks of a look.
pub(super) fn text(look: &Look) -> String {
    let ranks: Vec<&SeenRank> = (look.ranks.iter())
        .filter(|it| it.state != SeenState::Ended)
        .collect();
    let mut families = of_ranks(&ranks);
    families.extend(of_memory(&ranks));
    families.extend(of_counters(&ranks));
    let mut text = String::new();
    families.iter().for_each(|family| family.write(&mut text));
    text + "# EOF\n"
}

fn of_ranks(ranks: &[&SeenRank]) -> Vec<MetricFamily> {
    let mut info = MetricFamily::new("hydrant_rank", FamilyType::Info, "A rank of a job.");
    let mut up = MetricFamily::new(
        "hydrant_up",
        FamilyType::Gauge,
        "1 if the rank answered, 0 if it is stopped or silent.",
    );
    let kernel = |name, help| MetricFamily::new(name, FamilyType::Gauge, help);
    let mut of_process = [
        kernel(
            "hydrant_process_pinned_bytes",
            "Memory that the kernel has pinned for the process of the rank (VmPin).",
        ),
        kernel(
            "hydrant_process_locked_bytes",
            "Memory that the process of the rank has locked (VmLck).",
        ),
        kernel(
            "hydrant_process_resident_bytes",
            "Memory that the process of the rank has in use (VmRSS).",
        ),
    ];
    for it in ranks {
        let labels = labels(it);
        let program = it.process.as_ref().map_or("", |it| it.program.as_str());
        let more = [
            ("ranks", it.ranks.to_string()),
            ("pid", it.pid.map(|pid| pid.to_string()).unwrap_or_default()),
            ("program", program.to_owned()),
            ("conduit", it.conduit.clone().unwrap_or_default()),
        ];
        let more: String = (more.iter())
            .map(|(name, value)| format!(",{name}=\"{}\"", escaped(value)))
            .collect();
        info.samples.push((labels.clone() + &more, 1));
        let is_up = it.state == SeenState::Running;
        up.samples.push((labels.clone(), u64::from(is_up)));
        if let Some(process) = &it.process {
            let values = [
                process.pinned_bytes,
                process.locked_bytes,
                process.resident_bytes,
            ];
            for (family, value) in of_process.iter_mut().zip(values) {
                family.samples.extend(value.map(|it| (labels.clone(), it)));
            }
        }
    }
    [info, up].into_iter().chain(of_process).collect()
}

fn of_memory(ranks: &[&SeenRank]) -> Vec<MetricFamily> {
    let gauge = |name, help| MetricFamily::new(name, FamilyType::Gauge, help);
    let mut registered = gauge(
        "hydrant_registered_bytes",
        "Registered memory by its use, which never exceeds M and MAXVICTIM in sum.",
    );
    let mut limit = gauge(
        "hydrant_registered_limit_bytes",
        "The limits: M for peers together, MAXVICTIM beside it.",
    );
    let mut peak = gauge(
        "hydrant_registered_peak_bytes",
        "The most memory ever registered at once.",
    );
    let mut bucket = gauge("hydrant_bucket_bytes", "The unit of registration.");
    let mut firehoses = gauge(
        "hydrant_firehose_bytes",
        "Firehoses by peer: of the rank's memory that the peer holds (here), of the peer's memory that the rank holds \
         (there).",
    );
    for it in ranks {
        let Some(memory) = &it.memory else { continue };
        let labels = labels(it);
        let uses = [
            ("dead", memory.dead_bytes),
            ("permanent", memory.permanent_bytes),
            ("peers", memory.peers_bytes),
            ("in_use", memory.in_use_bytes),
            ("victim", memory.victim_bytes),
            ("changing", memory.changing_bytes),
        ];
        let uses = uses.map(|(name, value)| (format!("{labels},use=\"{name}\""), value));
        registered.samples.extend(uses);
        let limits = [("m", memory.m_bytes), ("maxvictim", memory.maxvictim_bytes)];
        let limits = limits.map(|(name, value)| (format!("{labels},limit=\"{name}\""), value));
        limit.samples.extend(limits);
        peak.samples.push((labels.clone(), memory.peak_bytes));
        bucket.samples.push((labels.clone(), memory.bucket_bytes));
        for of_peer in &memory.firehoses {
            let sides = [
                ("here", of_peer.held_here_bytes),
                ("there", of_peer.held_there_bytes),
            ];
            firehoses.samples.extend(sides.map(|(side, value)| {
                let peer = of_peer.peer;
                (format!("{labels},peer=\"{peer}\",held=\"{side}\""), value)
            }));
        }
    }
    vec![registered, limit, peak, bucket, firehoses]
}

/// A family for each counter of any rank.
fn of_counters(ranks: &[&SeenRank]) -> Vec<MetricFamily> {
    let counters = ranks.iter().filter_map(|it| it.counters.as_ref());
    let names: BTreeSet<&String> = counters.flat_map(|it| it.keys()).collect();
    let family = |name: &String| {
        let samples = (ranks.iter())
            .filter_map(|it| Some((labels(it), *it.counters.as_ref()?.get(name)?)))
            .collect();
        let (name, kind, help) = match name.as_str() {
            "heap_peak" => (
                "hydrant_heap_peak_bytes".to_owned(),
                FamilyType::Gauge,
                "Most bytes of symmetric memory ever in use.".to_owned(),
            ),
            name if is_level(name) => (
                format!("hydrant_{name}"),
                FamilyType::Gauge,
                format!("The level {name} of the rank."),
            ),
            name => (
                format!("hydrant_{name}"),
                FamilyType::Counter,
                format!("The counter {name} of the rank."),
            ),
        };
        MetricFamily {
            samples,
            ..MetricFamily::new(name, kind, help)
        }
    };
    names.into_iter().map(family).collect()
}

/// The labels that name a rank.
fn labels(rank: &SeenRank) -> String {
    format!("job=\"{}\",rank=\"{}\"", rank.job, rank.rank)
}

/// The value of a label, as the format wants it.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for letter in value.chars() {
        match letter {
            '\\' => text += "\\\\",
            '"' => text += "\\\"",
            '\n' => text += "\\n",
            other => text.push(other),
        }
    }
    text
}
