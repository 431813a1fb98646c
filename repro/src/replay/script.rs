//! A trace prepared for replays, and its replays.

use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
};

use hydrant::{ConduitKind, Job, JobBuilder};
use hydrant_traces::trace::Trace;

use super::{
    ReplayError, memory, order,
    order::Stuck,
    rank::{self, Played, ReplayOptions},
    schedule,
    step::ReplayStep,
};

/// The most bytes of an eager message (Li §2), if the network takes as many.
pub(crate) const EAGER: usize = 16 << 10;

/// The settings of a replay.
#[derive(Clone, Debug)]
pub(crate) struct How {
    /// True if the data of each message is checked.
    pub(crate) checks: bool,
    /// The factor on the time of each computation in the trace.
    pub(crate) slowdown: f64,
    /// The host of each rank; messages within a host are copied. Empty if each rank has its own.
    pub(crate) hosts: Vec<u32>,
}

impl Default for How {
    fn default() -> Self {
        Self {
            checks: false,
            slowdown: 1.0,
            hosts: Vec::new(),
        }
    }
}

/// The checked steps of each rank of a trace.
pub(crate) struct Script {
    /// By rank.
    schedules: Vec<Vec<ReplayStep>>,
    /// The messages of which fewer bytes than a stamp are distinguishable.
    short: HashMap<u64, usize>,
    /// The most bytes of an eager message, whose sender does not wait for the receiver.
    at_once: u64,
}

impl Script {
    /// The steps of a trace's ranks, if this network can replay them.
    ///
    /// # Errors
    /// If a call cannot be replayed, ranks wait for ever, or messages have no memory.
    pub(crate) fn of(trace: &Trace, conduit: &ConduitKind) -> Result<Self, ReplayError> {
        let at_once = at_once(conduit).map_err(|why| ReplayError::Network {
            conduit: conduit.to_string(),
            why,
        })?;
        let schedules = schedule::schedules(trace)?;
        if let Some(stuck) = order::stuck(&schedules, at_once) {
            return Err(waits_for_ever(trace, &schedules, stuck, at_once));
        }
        let mut short = HashMap::new();
        for (rank, steps) in schedules.iter().enumerate() {
            let checked = memory::check(steps);
            for (tag, bytes) in checked.map_err(|why| ReplayError::Memory { rank, why })? {
                // The messages of a collective share one number.
                let least = short.entry(tag).or_insert(bytes);
                *least = bytes.min(*least);
            }
        }
        Ok(Self {
            schedules,
            short,
            at_once,
        })
    }

    /// Steps of all ranks.
    pub(crate) fn steps(&self) -> u64 {
        self.schedules.iter().map(|it| it.len() as u64).sum()
    }

    /// Replays the trace in such a job, with as many ranks as the trace has. Returns the results of
    /// each rank. `done` hears of finished steps.
    ///
    /// # Errors
    /// The reason why the job failed.
    pub(crate) fn play(
        &self,
        builder: JobBuilder,
        how: &How,
        done: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Played>, String> {
        let options = ReplayOptions {
            checks: how.checks.then_some(&self.short),
            slowdown: how.slowdown,
            at_once: self.at_once,
            hosts: &how.hosts,
        };
        let body = |job: &Job| match self.schedules.get(job.rank().0 as usize) {
            Some(steps) => rank::play(job, steps, &options, done),
            None => Err(hydrant::Error::other(
                "the job has more ranks than the trace",
            )),
        };
        let ranks = self.schedules.len() as u32;
        let ends = panic::catch_unwind(AssertUnwindSafe(|| builder.run_local(ranks, body)));
        let ends = ends.map_err(|_| "a rank panicked".to_owned())?;
        // A rank that lost a failed peer does not know the cause.
        let cause = ends.iter().find_map(|it| match it {
            Err(hydrant::Error::PeerLost(_)) | Ok(_) => None,
            Err(why) => Some(why.to_string()),
        });
        if let Some(why) = cause {
            return Err(why);
        }
        ends.into_iter()
            .map(|it| it.map_err(|why| why.to_string()))
            .collect()
    }
}

/// The most bytes of a message that the network takes before its receive.
///
/// # Errors
/// The reason why no job can run on the network.
fn at_once(conduit: &ConduitKind) -> Result<u64, String> {
    let builder = Job::builder().map_err(|why| why.to_string())?;
    let builder = builder.conduit(conduit.clone());
    let ends = builder.run_local(1, |job| Ok(job.limits().max_medium));
    let most = ends.into_iter().next().unwrap_or(Ok(0));
    Ok(most.map_err(|why| why.to_string())?.min(EAGER) as u64)
}

fn waits_for_ever(
    trace: &Trace,
    schedules: &[Vec<ReplayStep>],
    stuck: Stuck,
    at_once: u64,
) -> ReplayError {
    let Stuck {
        rank,
        step,
        peer,
        sends,
    } = stuck;
    let what = match sends {
        None => format!("for a message of rank {peer}: no program that ran to its end did that"),
        Some(bytes) => format!(
            "until rank {peer} receives {bytes} bytes, because rank {peer} waits, too; the network takes up to \
             {at_once} bytes before they are asked for, and what the trace was recorded on took more"
        ),
    };
    let place = schedule::position(trace, schedules, rank, step);
    ReplayError::Stuck { place, rank, what }
}
