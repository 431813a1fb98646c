//! The ranks' side: the hidden command that the jobs of `hydrant bench` run.

use clap::{Args, ValueEnum};
use hydrant::Job;

use crate::args::BenchArgs;
use crate::cases;
use crate::ensemble::{Ensemble, EnsembleSetup};
use crate::measure::MeasurementPlan;
use crate::suite::Suite;

/// The first argument of the ranks that a measurement starts.
pub(crate) const RANK: &str = "rank";

/// The arguments of the ranks; `hydrant bench` writes them, not people.
#[derive(Debug, Args)]
pub(crate) struct RankArgs {
    /// The suite to measure.
    #[arg(value_enum)]
    suite: Suite,
    /// The path of the pipe for reports.
    #[arg(long, default_value = "/dev/null")]
    report: String,
    /// Cores the job may use.
    #[arg(long, default_value_t = 1)]
    cores: u32,
    /// The number of repetitions.
    #[arg(long)]
    reps: Option<u32>,
    /// The bytes to register at once.
    #[arg(long)]
    bytes: Option<u64>,
    /// Fewer sizes.
    #[arg(long)]
    quick: bool,
    /// The user named hosts.
    #[arg(long)]
    on_hosts: bool,
}

impl RankArgs {
    /// The words of the command line with which ranks measure `suite` and report.
    pub(crate) fn measure(
        suite: Suite,
        report: &str,
        cores: u32,
        bench: &BenchArgs,
    ) -> Vec<String> {
        let mut words = Self::words(suite);
        words.extend([format!("--report={report}"), format!("--cores={cores}")]);
        words.extend(bench.repetitions().map(|reps| format!("--reps={reps}")));
        words.extend(bench.bytes.map(|bytes| format!("--bytes={bytes}")));
        words.extend(bench.is_on_hosts().then(|| "--on-hosts".to_owned()));
        words.extend(bench.quick.then(|| "--quick".to_owned()));
        words
    }

    /// The words with which ranks do nothing.
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

/// Runs one rank, from start to end.
pub(crate) fn run(args: &RankArgs) -> hydrant::Result<()> {
    let before = match args.suite {
        Suite::Memory => cases::cost::memory()?,
        _ => 0,
    };
    match args.suite {
        Suite::Registration => {
            let costs = cases::registration::RegistrationCosts::new(args.quick);
            let builder = Job::builder()?.through(costs.layer());
            builder.run_spmd(|job| cases::registration::run(&ensemble(job, args)?, &costs))
        }
        Suite::Heap => {
            let builder = Job::builder()?.anywhere(true);
            builder.run_spmd(|job| measure(job, args, before))
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
        Suite::Heap => cases::heap::run(&ensemble),
        Suite::Armci => cases::armci::run(&ensemble),
        Suite::ArmciCrowd => cases::armci::crowd(&ensemble),
        Suite::Memory => cases::cost::job_memory(&ensemble, before),
        Suite::Idle => cases::cost::idle(&ensemble),
        Suite::AtOnce => {
            let repetitions = args.reps.map(|reps| reps as usize);
            cases::at_once::run(&ensemble, args.bytes.unwrap_or(0) as usize, repetitions)
        }
        Suite::Scattered => cases::scattered::run(&ensemble),
        Suite::Strategies => cases::strategies::run(&ensemble),
        // Start-up is measured around a job, registration before one.
        Suite::Nothing | Suite::Registration => Ok(()),
    }
}

fn ensemble<'j>(job: &'j Job, args: &RankArgs) -> hydrant::Result<Ensemble<'j>> {
    let repetitions = args.reps.map(|reps| reps as usize);
    let plan = match job.conduit().registration {
        Some(_) => MeasurementPlan::of_a_network(repetitions, args.quick),
        None => MeasurementPlan::new(repetitions, args.quick),
    };
    let setup = EnsembleSetup {
        report: &args.report,
        cores: args.cores,
        plan,
        quick: args.quick,
        on_hosts: args.on_hosts,
        with_bare: args.suite != Suite::Memory,
    };
    Ensemble::new(job, &setup)
}
