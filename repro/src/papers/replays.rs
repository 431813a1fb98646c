//! Replays of traces on the papers' machines.

use std::time::Duration;

use hydrant::{ConduitKind, JobBuilder, MessageProtocol, Settings, Strategy};

use super::{ExperimentInputs, ReproduceError};
use crate::replay::{self, EAGER, How, Played, ReplayError, ReplayRow, Script};
use hydrant_traces::trace::Trace;

/// The settings of a replay.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    /// The machine: a shipped profile, or a file.
    pub(super) machine: String,
    /// The registration strategy.
    pub(super) strategy: Strategy,
    /// The protocol of two-sided messages.
    pub(super) messages: MessageProtocol,
    /// The most bytes of an eager message; if not given, it follows from the network's costs.
    pub(super) eager: Option<usize>,
    /// The most bytes that a rank may have registered, half of them for its own operations.
    pub(super) limit: Option<u64>,
    /// True if a registration widens over adjacent free memory, as ours do and the older papers' do
    /// not.
    pub(super) widening: bool,
    /// The other settings.
    pub(super) how: How,
}

impl Replay {
    /// The settings of `hydrant-repro replay`.
    pub(super) fn new(machine: &str, strategy: Strategy) -> Self {
        Self {
            machine: machine.to_owned(),
            strategy,
            messages: MessageProtocol::Rendezvous,
            eager: Some(EAGER),
            limit: None,
            widening: true,
            how: How::default(),
        }
    }

    /// Runs the replay.
    pub(super) fn run(
        &self,
        inputs: &ExperimentInputs<'_>,
        name: &str,
        script: &Script,
    ) -> Result<Replayed, ReproduceError> {
        inputs.doing(format!("{name}: {}", self.strategy));
        let mut settings = Settings::new();
        settings.messages_eager = self.eager;
        let builder = JobBuilder::with(settings)
            .conduit(ConduitKind::Sim(self.machine.clone()))
            .registration(self.strategy)
            // The paper's helper deregisters every buffer that it does not expect soon.
            .foresight_steps_back(false)
            .messages(self.messages)
            .widen(self.widening)
            .bucket(4096);
        let builder = replay::limited(builder, self.limit);
        let played = script.play(builder, &self.how, &|_| {});
        let ranks = played.map_err(|why| ReproduceError::Job {
            profile: self.machine.clone(),
            what: format!("{name}, {}", self.strategy),
            why,
        })?;
        let rows: Vec<ReplayRow> = (0..)
            .zip(&ranks)
            .map(|(rank, it)| ReplayRow::of(rank, it))
            .collect();
        Ok(Replayed {
            all: ReplayRow::together(&rows),
            ranks,
        })
    }
}

/// A trace, prepared for a replay on a machine.
///
/// # Errors
/// If the trace cannot be replayed there.
pub(super) fn script(trace: &Trace, machine: &str) -> Result<Script, ReplayError> {
    Script::of(trace, &ConduitKind::Sim(machine.to_owned()))
}

/// The results of a replay.
pub(super) struct Replayed {
    /// The results of all ranks together.
    pub(super) all: ReplayRow,
    /// The results of each rank.
    pub(super) ranks: Vec<Played>,
}

impl Replayed {
    /// The run time.
    pub(super) fn seconds(&self) -> f64 {
        self.all.run_ns as f64 / 1e9
    }

    /// The rank with the largest peak of registered memory.
    pub(super) fn largest(&self) -> usize {
        let peak = |it: &Played| it.series.iter().map(|point| point.1).max();
        let ranks = self.ranks.iter().enumerate();
        // Of equal ranks, the first.
        ranks.rev().max_by_key(|it| peak(it.1)).map_or(0, |it| it.0)
    }
}

/// The registered memory of several ranks together, over time.
pub(super) fn together<'a>(
    series: impl IntoIterator<Item = &'a [(Duration, u64)]>,
) -> Vec<(Duration, u64)> {
    let mut changes: Vec<(Duration, i128)> = Vec::new();
    for series in series {
        let mut before = 0;
        for (at, bytes) in series {
            changes.push((*at, i128::from(*bytes) - before));
            before = i128::from(*bytes);
        }
    }
    changes.sort_by_key(|it| it.0);
    let mut sum = 0;
    let mut all: Vec<(Duration, u64)> = Vec::new();
    for at_once in changes.chunk_by(|a, b| a.0 == b.0) {
        sum += at_once.iter().map(|it| it.1).sum::<i128>();
        all.push((at_once[0].0, u64::try_from(sum).unwrap_or(0)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_add_up() {
        let at = Duration::from_micros;
        let one = [(at(1), 10), (at(3), 0)];
        let other = [(at(2), 5), (at(3), 7)];
        let sum = together([&one[..], &other[..]]);
        assert_eq!(sum, [(at(1), 10), (at(2), 15), (at(3), 7)]);
        assert_eq!(together([]), []);
    }
}
