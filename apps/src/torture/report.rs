//! The report of a rank, for people and for programs.

use std::process::ExitCode;

use hydrant::{Error, Job, Result};
use serde::Serialize;
use serde_json::json;

use super::{Arguments, hand::TortureTally};
use crate::{hammer::log::kind, kernel, options::SummaryFormat};

/// A rank was lost.
const LOST: u8 = 3;

/// The report of one rank.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TortureReport {
    program: &'static str,
    pub(crate) rank: u32,
    ranks: u32,
    seed: u64,
    /// True if handles and guards were leaked.
    leaked: bool,
    /// The number of operations, by name and in all.
    counts: Vec<(String, u64)>,
    operations: u64,
    checks: u64,
    wrong: u64,
    /// The first faults.
    sentences: Vec<String>,
    /// The time of the longest operation, in seconds of the job's clock.
    longest: f64,
    longest_what: String,
    lost: Option<u32>,
    /// Registrations, and those that the system refused.
    registrations: u64,
    refused: u64,
    /// The most bytes registered, and the limit if one was set.
    registered_most: u64,
    registered_limit: Option<u64>,
    /// Kilobytes pinned: the most seen, and after the job.
    pinned_most: u64,
    pinned_after: u64,
    /// A hash of all operations and results, and the time of the end. They are meaningful only in
    /// virtual time.
    trace: u64,
    nanoseconds: u64,
    /// The reason why the job ended early.
    failure: Option<String>,
}

/// Returns the rank whose loss this error reports.
fn lost_rank(cause: &Error) -> Option<u32> {
    match cause {
        Error::PeerLost(rank) => Some(rank.0),
        _ => None,
    }
}

impl TortureReport {
    pub(crate) fn new(
        job: &Job,
        arguments: &Arguments,
        tally: TortureTally,
        outcome: &Result<()>,
    ) -> Self {
        let stats = job.registration();
        let settings = job.settings();
        let bucket = settings.bucket.unwrap_or(4096) as u64;
        let mut report = Self {
            program: "torture",
            rank: job.rank().0,
            ranks: job.size(),
            seed: arguments.seed,
            leaked: arguments.leak,
            operations: tally.operations.values().sum(),
            counts: tally.operations.into_iter().collect(),
            checks: tally.checks,
            wrong: tally.wrong,
            sentences: tally.sentences,
            longest: tally.longest.as_secs_f64(),
            longest_what: tally.longest_what,
            lost: outcome.as_ref().err().and_then(lost_rank),
            registrations: job.counters().registrations,
            refused: stats.map_or(0, |stats| stats.local.failed),
            registered_most: stats.map_or(0, |stats| stats.local.peak * bucket),
            registered_limit: settings.m.zip(settings.maxvictim).map(|(m, v)| m + v),
            pinned_most: tally.pinned_most,
            pinned_after: 0,
            trace: tally.trace,
            nanoseconds: u64::try_from(job.now().as_nanos()).unwrap_or(u64::MAX),
            failure: (outcome.as_ref().err()).map(|cause| format!("{}: {cause}", kind(cause))),
        };
        if super::hand::is_simulated(job) {
            // No figure of the real machine may appear, because two runs must print the same.
            report.pinned_most = 0;
        } else {
            (report.trace, report.nanoseconds) = (0, 0);
        }
        report
    }

    /// Records a check that failed after the job.
    pub(crate) fn note_wrong(&mut self, sentence: String) {
        self.wrong += 1;
        self.sentences.push(sentence);
    }

    /// Records the end of the job.
    pub(crate) fn note_after(&mut self, ended: Option<&Error>) {
        self.pinned_after = kernel::pinned();
        if let Some(cause) = ended {
            // A rank may be lost when the others come to their end.
            self.lost = self.lost.or_else(|| lost_rank(cause));
            let failure = || format!("{}: {cause}", kind(cause));
            self.failure.get_or_insert_with(failure);
        }
    }

    pub(crate) fn status(&self) -> ExitCode {
        let is_right = self.wrong == 0 && (self.leaked || self.pinned_after == 0);
        match (is_right, self.lost.is_some(), self.failure.is_some()) {
            (true, false, false) => ExitCode::SUCCESS,
            (true, true, _) => ExitCode::from(LOST),
            _ => ExitCode::FAILURE,
        }
    }

    pub(crate) fn text(&self, arguments: &Arguments) -> String {
        match arguments.format {
            SummaryFormat::Json => format!("{}\n", json!(self)),
            SummaryFormat::Table => self.table(),
        }
    }

    fn table(&self) -> String {
        let mut rows = vec![
            ("seed", self.seed.to_string()),
            ("operations", self.operations.to_string()),
            ("checks", self.checks.to_string()),
            ("wrong", self.wrong.to_string()),
            (
                "longest wait",
                format!("{:.3} s, {}", self.longest, self.longest_what),
            ),
            ("registrations", self.registrations.to_string()),
            ("  refused", self.refused.to_string()),
            ("pinned", format!("{} KiB at most", self.pinned_most)),
            ("  afterwards", format!("{} KiB", self.pinned_after)),
        ];
        rows.extend(self.lost.map(|rank| ("lost", format!("rank {rank}"))));
        rows.extend(self.failure.clone().map(|cause| ("failure", cause)));
        rows.extend(self.sentences.iter().map(|it| ("wrong", it.clone())));
        let mut text = format!("torture, rank {} of {}\n", self.rank, self.ranks);
        for (name, value) in rows {
            text += &format!("  {name:<28}{value}\n");
        }
        text
    }
}
