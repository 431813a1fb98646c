//! `hydrant info --hosts`: the state of several hosts, the connections between them, and the things to mend.
//!
//! Each question is a job of `hydrant run --hosts` ([`ask`]), so hosts are reached here as any job reaches them. First
//! each host is asked alone for its [facts](HostFacts). Then one job on all hosts that answered puts and gets
//! between all pairs. If it fails, a job for each pair finds out which pairs are the cause.

mod ask;
mod lines;
mod mend;
mod network;

use std::thread;

use hydrant_report::remote::RemoteArgs;

use super::InfoLine;
use crate::probe::{HostFacts, PairsReport, Question};

/// The jobs that run at the same time.
const AT_ONCE: usize = 8;

/// A host of the list, and its facts or why it did not give them.
struct HostState {
    name: String,
    facts: Result<HostFacts, String>,
}

/// The times of puts and gets from the first rank to the second, and back.
type Times = [[u64; 2]; 2];

/// Two hosts, by their indices, and the outcome of their puts and gets.
struct PairState {
    pair: [usize; 2],
    outcome: Result<Joined, String>,
}

/// Two hosts whose ranks put and got.
struct Joined {
    /// The conduit and the ports, for people.
    by: String,
    times: Times,
    /// The reason why the first makes no connection to the second, and the other way round.
    blocked: [Option<String>; 2],
}

/// The jobs that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PossibleJobs {
    All,
    /// A job ran, but others may fail.
    Some,
    None,
}

/// The outcome of the check.
pub(super) struct HostsCheck {
    /// The lines to print.
    pub(super) lines: Vec<InfoLine>,
    /// The jobs that can run on all hosts.
    pub(super) jobs: PossibleJobs,
}

/// Asks all hosts.
pub(super) fn check(remote: &RemoteArgs) -> HostsCheck {
    let hosts = ask_each(remote);
    let reached: Vec<usize> = (0..hosts.len())
        .filter(|host| hosts[*host].facts.is_ok())
        .collect();
    let names =
        |of: &[usize]| -> Vec<String> { of.iter().map(|host| hosts[*host].name.clone()).collect() };
    let whole = match reached.len() {
        0 => None,
        _ => Some(ask_pairs(remote, &names(&reached))),
    };
    let all_pairs =
        (0..reached.len()).flat_map(|one| (one + 1..reached.len()).map(move |other| [one, other]));
    let pairs: Vec<PairState> = match &whole {
        Some(Ok(report)) => all_pairs
            .map(|[one, other]| PairState {
                pair: [reached[one], reached[other]],
                outcome: Ok(joined(report, one, other)),
            })
            .collect(),
        // A job of two hosts was that of their only pair.
        Some(Err(why)) if reached.len() == 2 => vec![PairState {
            pair: [reached[0], reached[1]],
            outcome: Err(why.clone()),
        }],
        _ => {
            let pairs: Vec<[usize; 2]> = all_pairs
                .map(|[one, other]| [reached[one], reached[other]])
                .collect();
            in_parallel(&pairs, |pair| PairState {
                pair: *pair,
                outcome: network::choice(&hosts, *pair).and_then(|_| {
                    let report = ask_pairs(remote, &names(pair))?;
                    Ok(joined(&report, 0, 1))
                }),
            })
        }
    };
    let defects = mend::defects(remote, &hosts, &pairs, whole.as_ref());
    let ran = matches!(whole, Some(Ok(_))) && reached.len() == hosts.len();
    let jobs = match defects.iter().any(|defect| defect.stops_jobs) {
        _ if !ran => PossibleJobs::None,
        true => PossibleJobs::Some,
        false => PossibleJobs::All,
    };
    let mut lines = lines::single_hosts(&hosts);
    lines.extend(pairs.iter().map(|pair| lines::pair(&hosts, pair)));
    let is_explained = pairs.iter().any(|pair| pair.outcome.is_err());
    lines.extend(lines::job(&hosts, &reached, whole.as_ref(), is_explained));
    lines.extend(lines::to_mend(&defects));
    HostsCheck { lines, jobs }
}

/// Asks each host for its facts.
fn ask_each(remote: &RemoteArgs) -> Vec<HostState> {
    let names: Vec<String> = remote.hosts.iter().map(|host| host.name.clone()).collect();
    in_parallel(&names, |name| {
        let answer = ask::hosts(remote, std::slice::from_ref(name), Question::Here);
        HostState {
            name: name.clone(),
            facts: answer,
        }
    })
}

/// Runs a job with a rank on each host. Its ranks put and get.
fn ask_pairs(remote: &RemoteArgs, names: &[String]) -> Result<PairsReport, String> {
    ask::hosts(remote, names, Question::Pairs)
}

/// Calls `work` with each item, some at the same time. Returns the results in the order of the items.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut results = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|item| scope.spawn(|| work(item))).collect();
            let ended = threads.into_iter().filter_map(|thread| thread.join().ok());
            results.extend(ended);
        });
    }
    results
}

/// Returns the part of the report that is about two ranks.
fn joined(report: &PairsReport, one: usize, other: usize) -> Joined {
    let ports = [one, other].map(|rank| report.ports[rank].as_str());
    let by = match ports {
        ["", ""] => report.conduit.clone(),
        [one, other] => format!("{}: {one} and {other}", report.conduit),
    };
    let ways = [(one, other), (other, one)];
    Joined {
        by,
        times: ways.map(|(from, to)| report.times[from][to]),
        blocked: ways.map(|(from, to)| report.blocked[from][to].clone()),
    }
}
