//! A trace made ready to be replayed, and its replays.

use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
};

use hydrant::{ConduitKind, Job, JobBuilder};
use hydrant_foresight::trace::Trace;

use super::{
    ReplayError, memory, order,
    order::Stuck,
    rank::{self, Options, Played},
    schedule::{self, Step},
};

/// Most bytes of a message that is sent at once (Li §2), if the network takes so many.
pub(crate) const EAGER: usize = 16 << 10;

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub(crate) struct How {
    /// Whether the data of each message is looked at.
    pub(crate) checks: bool,
    /// How many times as long as in the trace each computation takes.
    pub(crate) slowdown: f64,
    /// The host of each rank; messages between ranks of one are copied. Empty: each rank has its own.
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

/// What each rank of a trace does, and that it can be done.
pub(crate) struct Script {
    /// By rank.
    schedules: Vec<Vec<Step>>,
    /// Messages of which fewer bytes than a stamp can be told from others.
    short: HashMap<u64, usize>,
    /// Most bytes of a message whose sender does not wait until it is asked for.
    at_once: u64,
}

impl Script {
    /// The steps of a trace's ranks, if these can be done again on such a network.
    ///
    /// # Errors
    /// What cannot be replayed, ranks that wait for ever, messages without memory.
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
                // The messages of a collective have one number.
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

    /// Replays it in such a job, with as many ranks as the trace has; what each rank did. `done` is told of steps as
    /// they are done.
    ///
    /// # Errors
    /// Why the job failed.
    pub(crate) fn play(
        &self,
        builder: JobBuilder,
        how: &How,
        done: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Played>, String> {
        let options = Options {
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
        // Who lost a peer that failed has not the cause to tell.
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

/// Most bytes of a message that the network takes before anybody asks for it.
///
/// # Errors
/// Why no job can be had on it.
fn at_once(conduit: &ConduitKind) -> Result<u64, String> {
    let builder = Job::builder().map_err(|why| why.to_string())?;
    let builder = builder.conduit(conduit.clone());
    let ends = builder.run_local(1, |job| Ok(job.limits().max_medium));
    let most = ends.into_iter().next().unwrap_or(Ok(0));
    Ok(most.map_err(|why| why.to_string())?.min(EAGER) as u64)
}

fn waits_for_ever(
    trace: &Trace,
    schedules: &[Vec<Step>],
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
