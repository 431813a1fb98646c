//! Threads of an application and their helper in virtual time, with the queue, the cache and the plan that
//! ship. Nothing here is timed by a clock: each step says what it takes.

mod application;
mod helper;
mod nic;

use hydrant_foresight::cache::Cache;
use hydrant_foresight::evaluation::{Clock, communications};
use hydrant_foresight::plan::{Config, Plan, Stats};
use hydrant_foresight::trace::RankTrace;
use hydrant_foresight::{Communication, Time, queue};

pub(crate) use application::{Application, Step, Times};
pub(crate) use helper::Helper;
use nic::Nic;

/// What a run came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// When the last thread ended.
    pub(crate) end: Time,
    /// What the application's threads did in all.
    pub(crate) times: Times,
    /// The most bytes that were registered at a time.
    pub(crate) peak_bytes: u64,
    /// The mean of the bytes registered, over time.
    pub(crate) mean_bytes: f64,
    pub(crate) stats: Stats,
    /// Records that the helper never saw.
    pub(crate) overwritten: u64,
}

/// How a run is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) plan: Config,
    /// Records of each queue.
    pub(crate) records: usize,
    /// Which registrations of the helper's fail: each so manieth; 0 is none.
    pub(crate) failing: u64,
    /// The helper does nothing at all: it could not be started, or gets no time.
    pub(crate) is_starved: bool,
}

impl Setup {
    pub(crate) fn new(plan: Config) -> Self {
        Self {
            plan,
            records: queue::DEFAULT_RECORDS,
            failing: 0,
            is_starved: false,
        }
    }
}

/// Runs one program for each thread to its end.
pub(crate) fn run(setup: &Setup, programs: Vec<Vec<Step>>) -> Outcome {
    let costs = setup.plan.costs;
    let mut plan = Plan::new(setup.plan).unwrap();
    let cache = Cache::new(256, setup.plan.limit_bytes);
    let mut nic = Nic::new(setup.plan.limit_bytes);
    let mut readers = Vec::new();
    let mut threads = Vec::new();
    for program in programs {
        let (writer, reader) = queue::queue(setup.records);
        readers.push((plan.add_thread(), reader));
        threads.push(Application::new(
            program,
            writer,
            costs,
            setup.plan.page_bytes,
        ));
    }
    let mut helper = Helper::new(plan, readers, costs, setup.failing);
    loop {
        let thread = threads
            .iter_mut()
            .filter(|it| !it.is_over())
            .min_by_key(|it| it.next());
        let Some(thread) = thread else {
            break;
        };
        // The helper first: what it ends at this moment, a thread may wait for.
        match helper
            .next()
            .filter(|at| !setup.is_starved && *at <= thread.next())
        {
            Some(_) => helper.step(&cache, &mut nic),
            None => {
                let now = thread.next();
                thread.step(&cache, &mut nic);
                helper.wake(now);
            }
        }
        nic.check(
            &cache,
            threads
                .iter()
                .map(Application::now)
                .chain([helper.now()])
                .max()
                .unwrap(),
        );
    }
    while !setup.is_starved && helper.has_records() {
        helper.step(&cache, &mut nic);
    }
    let end = threads
        .iter()
        .map(Application::now)
        .max()
        .unwrap_or_default();
    let mut times = Times::default();
    threads.iter().for_each(|it| times.join(&it.times));
    Outcome {
        end,
        times,
        peak_bytes: nic.peak_bytes,
        mean_bytes: nic.mean_bytes(end),
        stats: helper.plan.stats(),
        overwritten: helper.overwritten(),
    }
}

/// What a rank of a trace communicated, with its computing between, at 10 bytes a nanosecond.
pub(crate) fn program(rank: &RankTrace, clock: Clock) -> Vec<Step> {
    let mut last = Time::default();
    let step = |it: &Communication| {
        let compute_ns = it.begun.since(last);
        last = it.begun;
        Step {
            compute_ns,
            site: it.stack[0],
            addr: it.addr,
            bytes: it.bytes,
            transfer_ns: 2000 + it.bytes / 10,
        }
    };
    communications(rank, clock).iter().map(step).collect()
}
