//! The jobs of each bench.

use clap::ValueEnum;

use hydrant::{MessageProtocol, Strategy};

use crate::args::{Bench, Network};

/// The measurements of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// One-sided operations.
    Rma,
    /// Messages between two ranks.
    Am,
    /// Two-sided messages between two ranks, by one protocol.
    Messages,
    /// Remote calls of all ranks at once.
    Crowd,
    /// Atomics.
    Atomics,
    /// Barriers.
    Barrier,
    /// The other collectives.
    Collectives,
    /// Memory of the allocator beside symmetric memory.
    Heap,
    /// The cost of registering.
    Registration,
    /// The rate of registering much memory at once.
    AtOnce,
    /// Puts scattered over a working set.
    Scattered,
    /// Puts and gets at every point, by one strategy.
    Strategies,
    /// ARMCI's operations on a peer's memory.
    Armci,
    /// ARMCI's operations of many processes at once.
    ArmciCrowd,
    /// The memory of the ranks.
    Memory,
    /// The CPU time of waiting ranks.
    Idle,
    /// Nothing: the job starts and ends.
    Nothing,
}

/// One step of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchStep {
    /// A job whose ranks measure.
    Measure(Suite, u32),
    /// A job whose ranks scatter puts, with a strategy.
    Scatter(Strategy, u32),
    /// A job whose rank 0 registers much memory, by so many threads.
    AtOnce(u32, u32),
    /// A job whose ranks put and get at every point, with a strategy.
    Try(Strategy, u32),
    /// A job whose ranks send and receive, by a protocol.
    Send(MessageProtocol, u32),
    /// Jobs that do nothing, timed from outside.
    StartUp(u32),
    /// Two processes without a job.
    Endpoints,
}

/// The steps of `bench` on several hosts. Benches about a pair of ranks have a rank on each of the first two, the others
/// `n` ranks on all.
pub(crate) fn steps_on_hosts(bench: Bench, n: u32) -> Vec<BenchStep> {
    match bench {
        Bench::Barrier => vec![BenchStep::Measure(Suite::Barrier, n)],
        Bench::Collectives => vec![BenchStep::Measure(Suite::Collectives, n)],
        Bench::All => [
            Bench::Rma,
            Bench::Am,
            Bench::Messages,
            Bench::Atomics,
            Bench::Barrier,
            Bench::Collectives,
        ]
        .into_iter()
        .flat_map(|bench| steps_on_hosts(bench, n))
        .collect(),
        bench => steps(bench, Network::Registered, 2),
    }
}

/// True if the job has its ranks on a pair of hosts, whatever the list.
pub(crate) fn is_of_a_pair(step: BenchStep) -> bool {
    !matches!(
        step,
        BenchStep::Measure(Suite::Barrier | Suite::Collectives, _)
    )
}

/// The numbers of threads that register much memory.
const THREADS: [u32; 3] = [1, 2, 4];

/// The steps that register much memory at once, with `n` ranks.
pub(crate) fn steps_at_once(n: u32) -> Vec<BenchStep> {
    THREADS
        .map(|threads| BenchStep::AtOnce(threads, n))
        .to_vec()
}

/// The steps of `bench` with `n` ranks. Steps about a crowd, or about a growing job, have their own
/// numbers of ranks.
pub(crate) fn steps(bench: Bench, network: Network, n: u32) -> Vec<BenchStep> {
    use BenchStep::{Measure, Scatter, Send, StartUp, Try};
    match bench {
        Bench::Am if network == Network::Registered => vec![Measure(Suite::Am, n)],
        Bench::Registration => {
            // A NIC with on-demand paging shows no cost here.
            let scattered = (Strategy::ALL.into_iter())
                .filter(|strategy| *strategy != Strategy::Paging)
                .map(|strategy| Scatter(strategy, n));
            [Measure(Suite::Registration, n)]
                .into_iter()
                .chain(scattered)
                .collect()
        }
        // A NIC with on-demand paging shows no cost here. Strategies that register at the
        // allocation cannot register more than M.
        Bench::Strategies => (Strategy::ALL.into_iter())
            .filter(|strategy| !matches!(strategy, Strategy::Paging | Strategy::PinEverything))
            .map(|strategy| Try(strategy, n))
            .collect(),
        Bench::Rma => vec![Measure(Suite::Rma, n)],
        Bench::Heap => vec![Measure(Suite::Heap, n)],
        Bench::Am => vec![
            Measure(Suite::Am, n),
            Measure(Suite::Crowd, 4),
            Measure(Suite::Crowd, 8),
        ],
        Bench::Messages => (MessageProtocol::ALL.into_iter())
            .map(|protocol| Send(protocol, n))
            .collect(),
        Bench::Atomics => vec![Measure(Suite::Atomics, n)],
        Bench::Armci => {
            // As many ranks as in the paper's figures; on a network, the given number.
            let mut crowds = match network {
                Network::Mapped => vec![n, 4, 8],
                Network::Registered => vec![n],
            };
            crowds.sort_unstable();
            crowds.dedup();
            let crowds = crowds.into_iter();
            let crowds = crowds.map(|ranks| Measure(Suite::ArmciCrowd, ranks));
            [Measure(Suite::Armci, n)]
                .into_iter()
                .chain(crowds)
                .collect()
        }
        Bench::Barrier => {
            let mut sizes = vec![n, 4, 8];
            sizes.sort_unstable();
            sizes.dedup();
            sizes
                .into_iter()
                .map(|ranks| Measure(Suite::Barrier, ranks))
                .collect()
        }
        Bench::Collectives => vec![Measure(Suite::Collectives, n)],
        Bench::Endpoint => vec![BenchStep::Endpoints],
        Bench::Cost => {
            // A network may keep memory for each peer.
            let jobs: &[u32] = match network {
                Network::Mapped => &[2, 8],
                Network::Registered => &[2, 4, 8, 16],
            };
            let memory = jobs.iter().map(|ranks| Measure(Suite::Memory, *ranks));
            let others = [StartUp(2), StartUp(8), StartUp(64), Measure(Suite::Idle, 2)];
            memory.chain(others).collect()
        }
        Bench::All => [
            Bench::Registration,
            Bench::Rma,
            Bench::Am,
            Bench::Messages,
            Bench::Atomics,
            Bench::Barrier,
            Bench::Collectives,
            Bench::Armci,
            Bench::Heap,
            Bench::Endpoint,
            Bench::Cost,
        ]
        .into_iter()
        .filter(|bench| *bench != Bench::Registration || network == Network::Registered)
        .flat_map(|bench| steps(bench, network, n))
        .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_every_bench_and_no_job_is_measured_twice() {
        let all = steps(Bench::All, Network::Mapped, 2);
        for bench in [
            Bench::Rma,
            Bench::Am,
            Bench::Atomics,
            Bench::Barrier,
            Bench::Collectives,
            Bench::Armci,
            Bench::Cost,
        ] {
            assert!(
                steps(bench, Network::Mapped, 2)
                    .iter()
                    .all(|step| all.contains(step)),
                "{bench:?}"
            );
        }
        for (at, step) in all.iter().enumerate() {
            assert!(!all[..at].contains(step), "{step:?}");
        }
        assert_eq!(steps(Bench::Barrier, Network::Mapped, 4).len(), 2);
    }

    #[test]
    fn every_strategy_is_tried_where_memory_is_registered() {
        let scatters = |steps: &[BenchStep]| {
            (steps.iter())
                .filter(|step| matches!(step, BenchStep::Scatter(..)))
                .count()
        };
        let registered = steps(Bench::All, Network::Registered, 2);
        assert_eq!(scatters(&registered), Strategy::ALL.len() - 1);
        assert_eq!(scatters(&steps(Bench::All, Network::Mapped, 2)), 0);
        assert_eq!(steps(Bench::Am, Network::Registered, 2).len(), 1);
    }
}
