//! The report of a rank, for people and for programs.

use std::{process::ExitCode, time::Duration};

use hydrant::{Error, Job, Result};
use serde::Serialize;
use serde_json::json;

use super::{
    Arguments,
    log::{HammerTally, Loss, RankLog, kind},
};
use crate::{kernel, options::SummaryFormat};

/// One case that was tried.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TargetCase {
    pub(crate) name: &'static str,
    /// The kind of error, or `Ok`.
    pub(crate) got: String,
    pub(crate) waited: f64,
    /// True if the result was as expected, and nothing else had changed.
    pub(crate) right: bool,
}

/// The report of one rank.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HammerReport {
    program: &'static str,
    rank: u32,
    ranks: u32,
    seed: u64,
    #[serde(flatten)]
    tally: HammerTally,
    /// Failures by kind.
    errors: Vec<(String, u64)>,
    lost: Vec<Loss>,
    /// The time of the longest operation, in seconds.
    longest: f64,
    /// Cases that are tried separately.
    pub(crate) cases: Vec<TargetCase>,
    /// Moves sent, and registrations tried.
    moves: u64,
    registrations: u64,
    /// Registrations that the system refused.
    refused: u64,
    /// Bytes registered by Hydrant's own count, at most and at the end.
    registered_most: u64,
    registered: u64,
    /// Kilobytes pinned: the most seen, at the end of the work, and after the job.
    pinned_most: u64,
    pinned: u64,
    pinned_after: u64,
    /// The reason why the job ended early.
    failure: Option<String>,
}

impl HammerReport {
    pub(crate) fn new(job: &Job, arguments: &Arguments) -> Self {
        Self {
            program: "hammer",
            rank: job.rank().0,
            ranks: job.size(),
            seed: arguments.seed,
            tally: HammerTally::default(),
            errors: Vec::new(),
            lost: Vec::new(),
            longest: 0.0,
            cases: Vec::new(),
            moves: 0,
            registrations: 0,
            refused: 0,
            registered_most: 0,
            registered: 0,
            pinned_most: 0,
            pinned: 0,
            pinned_after: 0,
            failure: None,
        }
    }

    /// Takes the counts of the log.
    pub(crate) fn take(&mut self, log: RankLog) {
        self.longest = log.longest.as_secs_f64();
        self.pinned_most = log.pinned_most;
        self.errors = log.errors.into_iter().collect();
        self.lost = log.losses;
        self.tally = log.tally;
    }

    /// Records the end of the work, before the end of the job.
    pub(crate) fn note_end(&mut self, job: &Job, outcome: &Result<()>) {
        self.pinned = kernel::pinned();
        self.pinned_most = self.pinned_most.max(self.pinned);
        self.registrations = job.counters().registrations;
        if let Some(stats) = job.registration() {
            let bucket = job.settings().bucket.unwrap_or(4096) as u64;
            self.moves = stats.moves;
            self.refused = stats.local.failed;
            self.registered_most = stats.local.peak * bucket;
            self.registered = stats.local.registered * bucket;
        }
        if let Err(cause) = outcome {
            self.note_failure(cause);
        }
    }

    /// Records the end of the job.
    pub(crate) fn note_after(&mut self) {
        self.pinned_after = kernel::pinned();
    }

    pub(crate) fn note_failure(&mut self, cause: &Error) {
        self.failure.get_or_insert_with(|| kind(cause));
    }

    fn is_wrong(&self) -> bool {
        self.tally.wrong > 0 || self.cases.iter().any(|case| !case.right)
    }

    /// The exit status, if the job ended in good order.
    pub(crate) fn status(&self) -> ExitCode {
        match (self.is_wrong(), self.errors.is_empty()) {
            (true, _) => ExitCode::FAILURE,
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::from(BROKEN),
        }
    }

    /// The exit status otherwise.
    pub(crate) fn status_of_loss(&self) -> ExitCode {
        if self.is_wrong() || self.lost.is_empty() {
            ExitCode::FAILURE
        } else {
            ExitCode::from(BROKEN)
        }
    }

    pub(crate) fn text(&self, format: SummaryFormat) -> String {
        match format {
            SummaryFormat::Json => format!("{}\n", json!(self)),
            SummaryFormat::Table => self.table(),
        }
    }

    fn table(&self) -> String {
        let tally = &self.tally;
        let mut rows = vec![
            ("puts", tally.puts.to_string()),
            ("gets", tally.gets.to_string()),
            ("messages", tally.requests.to_string()),
            ("checks", tally.verified.to_string()),
            ("wrong", tally.wrong.to_string()),
            ("longest wait", format!("{:.3} s", self.longest)),
            ("moves", self.moves.to_string()),
            ("registrations", self.registrations.to_string()),
            ("  refused", self.refused.to_string()),
            ("pinned", format!("{} KiB at most", self.pinned_most)),
            ("  afterwards", format!("{} KiB", self.pinned_after)),
        ];
        let what = |what: &Option<String>| what.clone().unwrap_or_default();
        rows.push(("first wrong", what(&tally.first_wrong)));
        rows.push(("failure", what(&self.failure)));
        for (error, times) in &self.errors {
            rows.push(("error", format!("{error}, {times} times")));
        }
        for loss in &self.lost {
            let (rank, after) = (loss.rank, loss.operations_after);
            let text = format!("rank {rank}; {after} operations went well after that");
            rows.push(("lost", text));
        }
        for case in &self.cases {
            let right = if case.right { "" } else { ", which is wrong" };
            rows.push((case.name, format!("{}{right}", case.got)));
        }
        let mut text = format!("hammer, rank {} of {}\n", self.rank, self.ranks);
        for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
            text += &format!("  {name:<28}{value}\n");
        }
        text
    }
}

/// The status after a fault that may happen.
const BROKEN: u8 = 3;

/// The report of a process that did not get into its job.
pub(crate) fn not_begun(cause: &Error, waited: Duration) -> serde_json::Value {
    json!({
        "program": "hammer",
        "failure": kind(cause),
        "why": cause.to_string(),
        "waited": waited.as_secs_f64(),
        "pinned_after": kernel::pinned(),
    })
}
