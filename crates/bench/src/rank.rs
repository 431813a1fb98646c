//! The ranks' side: the hidden command that `hydrant bench` starts its jobs with.

use clap::{Args, ValueEnum};
use hydrant::Job;

use crate::args::BenchArgs;
use crate::cases;
use crate::ensemble::{Ensemble, Setup};
use crate::measure::Plan;
use crate::suite::Suite;

/// The first argument of the ranks that a measurement starts.
pub(crate) const RANK: &str = "rank";

/// What the ranks are told; written by `hydrant bench`, not by people.
#[derive(Debug, Args)]
pub(crate) struct RankArgs {
    /// What to measure.
    #[arg(value_enum)]
    suite: Suite,
    /// Where to report to.
    #[arg(long, default_value = "/dev/null")]
    report: String,
    /// Cores the job may use.
    #[arg(long, default_value_t = 1)]
    cores: u32,
    /// How many repetitions.
    #[arg(long)]
    reps: Option<u32>,
    /// Fewer sizes.
    #[arg(long)]
    quick: bool,
}

impl RankArgs {
    /// The words of the command line that have ranks measure `suite` and report.
    pub(crate) fn measure(
        suite: Suite,
        report: &str,
        cores: u32,
        bench: &BenchArgs,
    ) -> Vec<String> {
        let mut words = Self::words(suite);
        words.extend([format!("--report={report}"), format!("--cores={cores}")]);
        words.extend(bench.repetitions().map(|reps| format!("--reps={reps}")));
        words.extend(bench.quick.then(|| "--quick".to_owned()));
        words
    }

    /// The words that have ranks do nothing.
    pub(crate) fn nothing() -> Vec<String> {
        Self::words(Suite::Nothing)
    }

    fn words(suite: Suite) -> Vec<String> {
        let name = suite
            .to_possible_value()
            .map(|value| value.get_name().to_owned());
        [RANK.to_owned()].into_iter().chain(name).collect()
    }
}

/// One rank, from start to end.
pub(crate) fn run(args: &RankArgs) -> hydrant::Result<()> {
    let before = match args.suite {
        Suite::Memory => cases::cost::memory()?,
        _ => 0,
    };
    match args.suite {
        Suite::Registration => {
            let costs = cases::registration::Costs::new(args.quick);
            let builder = Job::builder()?.through(costs.layer());
            builder.run_spmd(|job| cases::registration::run(&ensemble(job, args)?, &costs))
        }
        _ => hydrant::run_spmd(|job| measure(job, args, before)),
    }
}

fn measure(job: &Job, args: &RankArgs, before: u64) -> hydrant::Result<()> {
    if args.suite == Suite::Nothing {
        return job.barrier();
    }
    let ensemble = ensemble(job, args)?;
    match args.suite {
        Suite::Rma if ensemble.registered => cases::registered::run(&ensemble),
        Suite::Rma => cases::rma::run(&ensemble),
        Suite::Am => cases::am::run(&ensemble),
        Suite::Messages => cases::messages::run(&ensemble),
        Suite::Crowd => cases::am::crowd(&ensemble),
        Suite::Atomics if ensemble.registered => cases::atomics::unmapped(&ensemble),
        Suite::Atomics => cases::atomics::run(&ensemble),
        Suite::Barrier => cases::barrier::run(&ensemble),
        Suite::Collectives => cases::collectives::run(&ensemble),
        Suite::Armci => cases::armci::run(&ensemble),
        Suite::ArmciCrowd => cases::armci::crowd(&ensemble),
        Suite::Memory => cases::cost::job_memory(&ensemble, before),
        Suite::Idle => cases::cost::idle(&ensemble),
        Suite::Scattered => cases::scattered::run(&ensemble),
        Suite::Strategies => cases::strategies::run(&ensemble),
        // Measured around a job, and before one.
        Suite::Nothing | Suite::Registration => Ok(()),
    }
}

fn ensemble<'j>(job: &'j Job, args: &RankArgs) -> hydrant::Result<Ensemble<'j>> {
    let repetitions = args.reps.map(|reps| reps as usize);
    let plan = match job.conduit().registration {
        Some(_) => Plan::of_a_network(repetitions, args.quick),
        None => Plan::new(repetitions, args.quick),
    };
    let setup = Setup {
        report: &args.report,
        cores: args.cores,
        plan,
        quick: args.quick,
    };
    Ensemble::new(job, &setup)
}
