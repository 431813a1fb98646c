//! Threads of an application and their helper in virtual time, with the queue and the plan that ship. No clock is
//! read: each step has a given duration.

mod application;
mod helper;
mod nic;
mod registrations;

use hydrant_foresight::plan::{Plan, PlanConfig, Stats};
use hydrant_foresight::{Communication, Time, queue};
use hydrant_traces::{
    evaluation::{TraceClock, communications},
    trace::RankTrace,
};

pub(crate) use application::{Application, ProgramStep, ThreadTimes};
pub(crate) use helper::SimulatedHelper;
use nic::NaiveNic;
use registrations::Registrations;

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunOutcome {
    /// The time at which the last thread ended.
    pub(crate) end: Time,
    /// The sums over the application's threads.
    pub(crate) times: ThreadTimes,
    /// The most bytes registered at a time.
    pub(crate) peak_bytes: u64,
    /// The mean of the bytes registered, over time.
    pub(crate) mean_bytes: f64,
    pub(crate) stats: Stats,
    /// Records that the helper never read.
    pub(crate) overwritten: u64,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunSetup {
    pub(crate) plan: PlanConfig,
    /// The records of each queue.
    pub(crate) records: usize,
    /// Every n-th registration of the helper fails; 0 means none.
    pub(crate) failing: u64,
    /// The helper does nothing, as if it could not be started or got no time.
    pub(crate) is_starved: bool,
}

impl RunSetup {
    pub(crate) fn new(plan: PlanConfig) -> Self {
        Self {
            plan,
            records: queue::DEFAULT_RECORDS,
            failing: 0,
            is_starved: false,
        }
    }
}

/// Runs one program for each thread to its end.
pub(crate) fn run(setup: &RunSetup, programs: Vec<Vec<ProgramStep>>) -> RunOutcome {
    let costs = setup.plan.costs;
    let mut plan = Plan::new(setup.plan).unwrap();
    let registrations = Registrations::new(setup.plan.limit_bytes);
    let mut nic = NaiveNic::new(setup.plan.limit_bytes);
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
    let mut helper = SimulatedHelper::new(plan, readers, costs, setup.failing);
    loop {
        let thread = threads
            .iter_mut()
            .filter(|it| !it.is_over())
            .min_by_key(|it| it.next());
        let Some(thread) = thread else {
            break;
        };
        // The helper goes first, because a thread may wait for the end of its action.
        match helper
            .next()
            .filter(|at| !setup.is_starved && *at <= thread.next())
        {
            Some(_) => helper.step(&registrations, &mut nic),
            None => {
                let now = thread.next();
                thread.step(&registrations, &mut nic);
                helper.wake(now);
            }
        }
        nic.check(
            &registrations,
            threads
                .iter()
                .map(Application::now)
                .chain([helper.now()])
                .max()
                .unwrap(),
        );
    }
    while !setup.is_starved && helper.has_records() {
        helper.step(&registrations, &mut nic);
    }
    let end = threads
        .iter()
        .map(Application::now)
        .max()
        .unwrap_or_default();
    let mut times = ThreadTimes::default();
    threads.iter().for_each(|it| times.join(&it.times));
    RunOutcome {
        end,
        times,
        peak_bytes: nic.peak_bytes,
        mean_bytes: nic.mean_bytes(end),
        stats: helper.plan.stats(),
        overwritten: helper.overwritten(),
    }
}

/// The communications of a rank of a trace, with its computing between. Transfers run at 10 bytes a nanosecond.
pub(crate) fn program(rank: &RankTrace, clock: TraceClock) -> Vec<ProgramStep> {
    let mut last = Time::default();
    let step = |it: &Communication| {
        let compute_ns = it.begun.since(last);
        last = it.begun;
        ProgramStep {
            compute_ns,
            site: it.stack[0],
            addr: it.addr,
            bytes: it.bytes,
            transfer_ns: 2000 + it.bytes / 10,
        }
    };
    communications(rank, clock).iter().map(step).collect()
}
