//! Looks at all ranks of this host, and compares each look with the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hydrant::top::{self, NoAnswer, RankAddress, RankAnswer, RegisteredMemory};
use serde::Serialize;

use super::process::{self, ProcessStatus};

/// How long ranks have to answer. Those that run take far less than a millisecond.
const PATIENCE: Duration = Duration::from_millis(500);

/// CountsByName of events, by the name of the counter.
pub(super) type CountsByName = BTreeMap<String, u64>;

/// The ranks to look at.
#[derive(Clone, Debug, Default)]
pub(super) struct Chosen {
    /// The first digits of the number of the job.
    pub(super) job: Option<String>,
    /// A process of the job.
    pub(super) pid: Option<u32>,
}

/// All ranks at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Look {
    /// The time of the look, in seconds since 1970.
    time: f64,
    pub(super) host: String,
    /// The time since the look before, in seconds, of which rates are.
    seconds: Option<f64>,
    pub(super) ranks: Vec<SeenRank>,
    #[serde(skip)]
    begun: Instant,
}

/// The state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SeenState {
    /// The rank answered.
    Running,
    /// A signal or a debugger has stopped its process.
    Stopped,
    /// It does not answer.
    Silent,
    /// Its answer cannot be read.
    Unreadable,
    /// It has ended, after an earlier look.
    Ended,
}

impl SeenState {
    pub(super) fn name(self) -> &'static str {
        match self {
            SeenState::Running => "running",
            SeenState::Stopped => "stopped",
            SeenState::Silent => "silent",
            SeenState::Unreadable => "unreadable",
            SeenState::Ended => "ended",
        }
    }
}

/// A rank in a look.
#[derive(Debug, Serialize)]
pub(super) struct SeenRank {
    /// The number of the job, in hexadecimal digits.
    pub(super) job: String,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) pid: Option<u32>,
    pub(super) state: SeenState,
    /// The reason, if its answer cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    pub(super) process: Option<ProcessStatus>,
    /// The network of the job, if the rank answered.
    pub(super) conduit: Option<String>,
    /// The registered memory, if the rank answered and its network needs that.
    pub(super) memory: Option<RegisteredMemory>,
    /// The events since the start of the job, if the rank answered.
    pub(super) counters: Option<CountsByName>,
    /// The events of each counter a second, if it has answered twice.
    pub(super) rates: Option<BTreeMap<String, f64>>,
}

/// Looks at ranks again and again.
pub(super) struct Looker {
    chosen: Chosen,
    host: String,
    /// The last answer of each rank that is known, with its time.
    before: BTreeMap<RankAddress, Option<(Instant, CountsByName)>>,
    last: Option<Instant>,
    /// The jobs of the chosen process, which may end before them.
    jobs: BTreeSet<u64>,
}

impl Looker {
    pub(super) fn new(chosen: Chosen) -> Self {
        let host = rustix::system::uname();
        Self {
            chosen,
            host: host.nodename().to_string_lossy().into_owned(),
            before: BTreeMap::new(),
            last: None,
            jobs: BTreeSet::new(),
        }
    }

    /// Looks at the chosen ranks of this user.
    ///
    /// # Errors
    /// The system's, if it does not list the sockets.
    pub(super) fn look(&mut self) -> io::Result<Look> {
        let begun = Instant::now();
        let mut addresses = top::addresses()?;
        if let Some(job) = &self.chosen.job {
            addresses.retain(|it| job_name(it.job).starts_with(job.as_str()));
        }
        let mut answers = top::ask(&addresses, PATIENCE);
        answers.retain(|it| it.outcome != Err(NoAnswer::OtherUser));
        if let Some(pid) = self.chosen.pid {
            let is_of =
                |it: &&RankAnswer| it.pid.is_some_and(|own| process::descends_from(own, pid));
            self.jobs
                .extend(answers.iter().filter(is_of).map(|it| it.address.job));
            answers.retain(|it| self.jobs.contains(&it.address.job));
        }
        let mut ranks: Vec<SeenRank> = answers
            .into_iter()
            .filter_map(|answer| self.seen(answer, begun))
            .collect();
        self.add_ended(&mut ranks);
        let seconds = self.last.map(|last| (begun - last).as_secs_f64());
        self.last = Some(begun);
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Look {
            time: time.unwrap_or_default().as_secs_f64(),
            host: self.host.clone(),
            seconds,
            ranks,
            begun,
        })
    }

    /// Returns the rank of an answer, unless it has ended.
    fn seen(&mut self, answer: RankAnswer, now: Instant) -> Option<SeenRank> {
        let process = answer.pid.and_then(ProcessStatus::of);
        // A child of a rank that was killed may hold its socket open.
        let has_ended = process.as_ref().map(ProcessStatus::has_ended);
        let has_ended = has_ended.unwrap_or(answer.pid.is_some());
        let is_stopped = process.as_ref().is_some_and(ProcessStatus::is_stopped);
        let (state, why, snapshot) = match answer.outcome {
            _ if has_ended => return None,
            Ok(snapshot) => (SeenState::Running, None, Some(snapshot)),
            Err(NoAnswer::Silent) if is_stopped => (SeenState::Stopped, None, None),
            Err(NoAnswer::Silent) => (SeenState::Silent, None, None),
            Err(NoAnswer::Ended | NoAnswer::OtherUser) => return None,
            Err(why) => (SeenState::Unreadable, Some(why.to_string()), None),
        };
        let before = self.before.entry(answer.address).or_default();
        let (conduit, memory, counters) = match snapshot {
            Some(it) => (Some(it.conduit), it.memory, Some(it.counters)),
            None => (None, None, None),
        };
        let rates = match (&before, &counters) {
            (Some((then, before)), Some(after)) => Some(rates(before, after, now - *then)),
            _ => None,
        };
        if let Some(counters) = &counters {
            *before = Some((now, counters.clone()));
        }
        Some(SeenRank {
            state,
            why,
            process,
            conduit,
            memory,
            counters,
            rates,
            ..SeenRank::at(answer.address, answer.pid)
        })
    }

    /// Adds the ranks that have ended while others of their job have not, and forgets other jobs.
    fn add_ended(&mut self, ranks: &mut Vec<SeenRank>) {
        let jobs: Vec<String> = ranks.iter().map(|it| it.job.clone()).collect();
        self.before
            .retain(|address, _| jobs.contains(&job_name(address.job)));
        for address in self.before.keys() {
            let job = job_name(address.job);
            if !(ranks.iter()).any(|it| it.job == job && it.rank == address.rank) {
                ranks.push(SeenRank::at(*address, None));
            }
        }
        ranks.sort_by(|a, b| (&a.job, a.rank).cmp(&(&b.job, b.rank)));
    }
}

impl SeenRank {
    /// The name of the program, without letters that a terminal takes as commands.
    pub(super) fn program(&self) -> String {
        let name = self.process.as_ref().map_or("", |it| it.program.as_str());
        name.chars().filter(|it| !it.is_control()).collect()
    }

    /// A rank that has ended.
    fn at(address: RankAddress, pid: Option<u32>) -> Self {
        Self {
            job: job_name(address.job),
            rank: address.rank,
            ranks: address.ranks,
            pid,
            state: SeenState::Ended,
            why: None,
            process: None,
            conduit: None,
            memory: None,
            counters: None,
            rates: None,
        }
    }
}

impl Look {
    /// Returns the time since the look.
    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns whether it is the first of its looker, so that there are no rates.
    pub(super) fn is_first(&self) -> bool {
        self.seconds.is_none()
    }
}

fn job_name(job: u64) -> String {
    format!("{job:016x}")
}

/// Returns the events of each counter a second.
fn rates(before: &CountsByName, after: &CountsByName, time: Duration) -> BTreeMap<String, f64> {
    let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
    let rate = |name: &String, count: u64| {
        let before = before.get(name).copied().unwrap_or(0);
        (name.clone(), count.saturating_sub(before) as f64 / seconds)
    };
    (after.iter())
        // Bytes in use are no events.
        .filter(|(name, _)| !is_level(name))
        .map(|(name, count)| rate(name, *count))
        .collect()
}

/// Returns whether a counter is a level, which falls as well as rises, or the highest of one.
pub(super) fn is_level(name: &str) -> bool {
    matches!(name, "heap_bytes" | "heap_peak")
}
