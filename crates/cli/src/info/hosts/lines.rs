//! The lines to print.

use hydrant_report::units;

use super::mend::Defect;
use super::{HostState, Joined, PairState, network};
use crate::info::InfoLine;
use crate::probe::{HostFacts, PairsReport};

/// The sections about single hosts.
pub(super) fn single_hosts(hosts: &[HostState]) -> Vec<InfoLine> {
    let answered =
        || (hosts.iter()).filter_map(|host| Some((host.name.as_str(), host.facts.as_ref().ok()?)));
    let mut lines: Vec<InfoLine> = hosts.iter().map(host).collect();
    lines.extend(answered().map(|(name, facts)| libfabric(name, facts)));
    lines.extend(answered().map(|(name, facts)| rdma(name, facts)));
    lines.extend(answered().map(|(name, facts)| limits(name, facts)));
    lines
}

fn host(host: &HostState) -> InfoLine {
    let Ok(facts) = &host.facts else {
        let value = "did not answer".to_owned();
        return line("hosts", &host.name, value, "the list below says why").with("reached", false);
    };
    let value = format!("hydrant {}, {}", facts.version, facts.machine);
    let place = format!("{} on {}", facts.path, facts.node);
    line("hosts", &host.name, value, &place)
        .with("reached", true)
        .with("version", facts.version.as_str())
        .with("path", facts.path.as_str())
}

fn libfabric(name: &str, facts: &HostFacts) -> InfoLine {
    let value = match (&facts.libfabric, &facts.endpoints) {
        (Ok(version), Ok(endpoints)) => {
            let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
            format!("{version}: {}", endpoints.join("; "))
        }
        (Err(why), _) | (_, Err(why)) => format!("absent: {why}"),
    };
    let down = match facts.down.as_slice() {
        [] => String::new(),
        down => format!("down: {}", down.join(", ")),
    };
    let version = facts.libfabric.as_deref().ok();
    line("libfabric", name, value, &down).with("version", version)
}

fn rdma(name: &str, facts: &HostFacts) -> InfoLine {
    let version = facts.libibverbs.as_deref();
    let library = version.map_or_else(String::new, |version| format!("libibverbs.so.{version}: "));
    let value = match &facts.ports {
        Ok(ports) => format!("{library}{}", ports.join(", ")),
        Err(why) => format!("{library}absent: {why}"),
    };
    line("RDMA", name, value, "").with("version", version)
}

fn limits(name: &str, facts: &HostFacts) -> InfoLine {
    let bytes = |bytes: Option<u64>, without: &str| {
        bytes.map_or_else(|| without.to_owned(), |bytes| units::bytes(bytes as f64))
    };
    let files = facts.files;
    let value = format!(
        "ulimit -l {}, ulimit -n {}, memory {}, of the cgroup {}, /dev/shm {}",
        bytes(facts.memlock, "unlimited"),
        files.map_or_else(|| "unlimited".to_owned(), |files| files.to_string()),
        bytes(facts.memory, "unknown"),
        bytes(facts.cgroup, "unlimited"),
        bytes(facts.shm, "absent"),
    );
    line("limits", name, value, "")
        .with("memlock_bytes", facts.memlock)
        .with("files", facts.files)
        .with("memory_bytes", facts.memory)
        .with("cgroup_bytes", facts.cgroup)
        .with("shm_bytes", facts.shm)
}

/// A pair, and the network between the two.
pub(super) fn pair(hosts: &[HostState], state: &PairState) -> InfoLine {
    let [one, other] = state.pair.map(|host| hosts[host].name.as_str());
    let name = format!("{one}, {other}");
    let (network, why) = match network::choice(hosts, state.pair) {
        Ok(why) => (true, why),
        Err(why) => (false, format!("no network: {why}")),
    };
    match &state.outcome {
        Ok(Joined { by, times, .. }) => {
            let [[put, get], [put_back, get_back]] = times;
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

/// The job on all hosts that answered.
pub(super) fn job(
    hosts: &[HostState],
    reached: &[usize],
    whole: Option<&Result<PairsReport, String>>,
    is_explained: bool,
) -> Option<InfoLine> {
    let missing = match hosts.len() - reached.len() {
        0 => String::new(),
        some if reached.len() == 1 => {
            format!(", without {some} that did not answer, so nothing between hosts was tried")
        }
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

/// The defects.
pub(super) fn to_mend(defects: &[Defect]) -> Vec<InfoLine> {
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
