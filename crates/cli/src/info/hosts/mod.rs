//! `hydrant info --hosts`: the state of several hosts, the connections between them, and the things to mend.
//!
//! Each question is a job of `hydrant run --hosts` ([`ask`]), so hosts are reached here as any job reaches them. First
//! each host is asked alone for its [facts](HostFacts). Then one job on all hosts that answered puts and gets
//! between all pairs. If it fails, a job for each pair finds out which pairs are the cause.

mod ask;
mod mend;
mod network;

use std::thread;

use hydrant_report::remote::RemoteArgs;
use hydrant_report::units;

use super::InfoLine;
use crate::probe::{HostFacts, PairsReport, Question};
use mend::Defect;

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
    outcome: Result<(String, Times), String>,
}

/// The outcome of the check.
pub(super) struct HostsCheck {
    /// The lines to print.
    pub(super) lines: Vec<InfoLine>,
    /// True if a job can run on all hosts.
    pub(super) can_run: bool,
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
                outcome: Ok((joined_by(report, one, other), times(report, one, other))),
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
                    Ok((joined_by(&report, 0, 1), times(&report, 0, 1)))
                }),
            })
        }
    };
    let defects = mend::defects(remote, &hosts, &pairs, whole.as_ref());
    let can_run = matches!(whole, Some(Ok(_))) && reached.len() == hosts.len();
    let mut lines = host_lines(&hosts);
    lines.extend(pairs.iter().map(|pair| pair_line(&hosts, pair)));
    let is_explained = pairs.iter().any(|pair| pair.outcome.is_err());
    lines.extend(job_line(&hosts, &reached, whole.as_ref(), is_explained));
    lines.extend(mend_lines(&defects));
    HostsCheck { lines, can_run }
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

/// Returns the conduit and the ports of two ranks, for people.
fn joined_by(report: &PairsReport, one: usize, other: usize) -> String {
    let ports = [one, other].map(|rank| report.ports[rank].as_str());
    match ports {
        ["", ""] => report.conduit.clone(),
        [one, other] => format!("{}: {one} and {other}", report.conduit),
    }
}

fn times(report: &PairsReport, one: usize, other: usize) -> Times {
    [report.times[one][other], report.times[other][one]]
}

/// The sections about single hosts.
fn host_lines(hosts: &[HostState]) -> Vec<InfoLine> {
    let mut lines = Vec::new();
    for host in hosts {
        let line = match &host.facts {
            Ok(facts) => line(
                "hosts",
                &host.name,
                format!("hydrant {}, {}", facts.version, facts.machine),
                &format!("{} on {}", facts.path, facts.node),
            )
            .with("reached", true)
            .with("version", facts.version.as_str())
            .with("path", facts.path.as_str()),
            Err(_) => line(
                "hosts",
                &host.name,
                "did not answer".to_owned(),
                "the list below says why",
            )
            .with("reached", false),
        };
        lines.push(line);
    }
    let answered =
        || (hosts.iter()).filter_map(|host| Some((host.name.as_str(), host.facts.as_ref().ok()?)));
    for (name, facts) in answered() {
        let value = match (&facts.libfabric, &facts.endpoints) {
            (Ok(version), Ok(endpoints)) => {
                let endpoints: Vec<String> = (endpoints.iter())
                    .map(|it| format!("{} at {}, {}", it.provider, it.interface, it.address))
                    .collect();
                format!("{version}: {}", endpoints.join("; "))
            }
            (Err(why), _) | (_, Err(why)) => format!("absent: {why}"),
        };
        let down = match facts.down.as_slice() {
            [] => String::new(),
            down => format!("down: {}", down.join(", ")),
        };
        lines.push(
            line("libfabric", name, value, &down)
                .with("version", facts.libfabric.as_ref().ok().map(String::as_str)),
        );
    }
    for (name, facts) in answered() {
        let library = facts
            .libibverbs
            .as_deref()
            .map_or_else(String::new, |version| format!("libibverbs.so.{version}: "));
        let value = match &facts.ports {
            Ok(ports) => format!("{library}{}", ports.join(", ")),
            Err(why) => format!("{library}absent: {why}"),
        };
        lines.push(line("RDMA", name, value, "").with("version", facts.libibverbs.as_deref()));
    }
    for (name, facts) in answered() {
        let bytes = |limit: Option<u64>| {
            limit.map_or_else(
                || "unlimited".to_owned(),
                |bytes| units::bytes(bytes as f64),
            )
        };
        let files = facts
            .files
            .map_or_else(|| "unlimited".to_owned(), |files| files.to_string());
        let known = |bytes: Option<u64>, else_: &str| {
            bytes.map_or_else(|| else_.to_owned(), |bytes| units::bytes(bytes as f64))
        };
        let value = format!(
            "ulimit -l {}, ulimit -n {files}, memory {}, of the cgroup {}, /dev/shm {}",
            bytes(facts.memlock),
            known(facts.memory, "unknown"),
            known(facts.cgroup, "unlimited"),
            known(facts.shm, "absent"),
        );
        lines.push(
            line("limits", name, value, "")
                .with("memlock_bytes", facts.memlock)
                .with("files", facts.files)
                .with("memory_bytes", facts.memory)
                .with("cgroup_bytes", facts.cgroup)
                .with("shm_bytes", facts.shm),
        );
    }
    lines
}

fn pair_line(hosts: &[HostState], state: &PairState) -> InfoLine {
    let [one, other] = state.pair.map(|host| hosts[host].name.as_str());
    let name = format!("{one}, {other}");
    let (network, why) = match network::choice(hosts, state.pair) {
        Ok(why) => (true, why),
        Err(why) => (false, format!("no network: {why}")),
    };
    match &state.outcome {
        Ok((by, [[put, get], [put_back, get_back]])) => {
            let [put_in_words, get_in_words] = [(put, put_back), (get, get_back)]
                .map(|(there, back)| units::nanos((*there).max(*back) as f64));
            let value = format!("put {put_in_words}, get {get_in_words} of 8 B by {by}");
            line("pairs", &name, value, &why)
                .with("connected", true)
                .with("put_nanoseconds", *put)
                .with("get_nanoseconds", *get)
                .with("put_back_nanoseconds", *put_back)
                .with("get_back_nanoseconds", *get_back)
        }
        // The error of the ranks says the same in more words.
        Err(_) if !network => {
            line("pairs", &name, "not connected".to_owned(), &why).with("connected", false)
        }
        Err(cause) => {
            line("pairs", &name, format!("not connected: {cause}"), &why).with("connected", false)
        }
    }
}

fn job_line(
    hosts: &[HostState],
    reached: &[usize],
    whole: Option<&Result<PairsReport, String>>,
    is_explained: bool,
) -> Option<InfoLine> {
    let missing = match hosts.len() - reached.len() {
        0 => String::new(),
        some => format!(", without {some} that did not answer"),
    };
    let ranks = format!("a rank on each host{missing}");
    Some(match whole? {
        Ok(report) => line(
            "job",
            "ran",
            format!("over {}, with {ranks}", report.conduit),
            "",
        ),
        // The error is then that of a pair.
        Err(_) if is_explained => line("job", "failed", format!("with {ranks}"), ""),
        Err(why) => line("job", "failed", format!("with {ranks}: {why}"), ""),
    })
}

fn mend_lines(defects: &[Defect]) -> Vec<InfoLine> {
    if defects.is_empty() {
        return vec![line(
            "to mend",
            "nothing",
            "a job can run on these hosts".to_owned(),
            "",
        )];
    }
    (defects.iter())
        .map(|defect| {
            line(
                "to mend",
                &defect.about,
                defect.what.clone(),
                &defect.remedy,
            )
            .with("stops_jobs", defect.stops_jobs)
        })
        .collect()
}

fn line(section: &'static str, name: &str, value: String, meaning: &str) -> InfoLine {
    InfoLine {
        section,
        name: name.to_owned(),
        value,
        origin: None,
        figures: serde_json::Map::new(),
        meaning: meaning.to_owned(),
    }
}

impl InfoLine {
    /// Adds a figure for programs.
    fn with(mut self, key: &str, figure: impl Into<serde_json::Value>) -> Self {
        self.figures.insert(key.to_owned(), figure.into());
        self
    }
}
