//! The things to mend, each with its remedy.

use std::env;

use hydrant_launch::launcher::DEFAULT_SHELL;
use hydrant_report::remote::RemoteArgs;
use hydrant_report::units;

use super::{HostState, PairState, network};
use crate::probe::{FabricEndpoint, HostFacts, PairsReport};

/// The open files below which a rank may lack some for its connections.
const FEW_FILES: u64 = 1024;

/// The least bytes that are worth registering.
const FEW_BYTES: u64 = 64 << 20;

/// Something to mend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Defect {
    /// The host, the pair, or all.
    pub(super) about: String,
    /// The defect, in a sentence.
    pub(super) what: String,
    /// The command or the file that mends it.
    pub(super) remedy: String,
    /// True if no job runs with it, or some jobs fail.
    pub(super) stops_jobs: bool,
}

/// Returns the defects, those that stop jobs first.
pub(super) fn defects(
    remote: &RemoteArgs,
    hosts: &[HostState],
    pairs: &[PairState],
    whole: Option<&Result<PairsReport, String>>,
) -> Vec<Defect> {
    let works = matches!(whole, Some(Ok(_)));
    let mut defects: Vec<Defect> = Vec::new();
    for host in hosts {
        match &host.facts {
            Err(why) => defects.push(unreached(remote, &host.name, why)),
            Ok(facts) => defects.extend(of_host(&host.name, facts, hosts, works)),
        }
    }
    defects.extend(differing_builds(hosts));
    for state in pairs {
        let [one, other] = state.pair.map(|host| hosts[host].name.clone());
        let why = match &state.outcome {
            Err(why) => why,
            Ok(joined) => {
                let ways = [state.pair, [state.pair[1], state.pair[0]]];
                let blocked = (ways.into_iter().zip(&joined.blocked))
                    .filter_map(|(way, why)| Some(one_way(hosts, way, why.as_deref()?)));
                defects.extend(blocked);
                continue;
            }
        };
        let explained = (defects.iter())
            .any(|defect| defect.stops_jobs && (defect.about == one || defect.about == other));
        if !explained {
            defects.push(unconnected(hosts, state.pair, why));
        }
    }
    if let Some(Err(why)) = whole
        && !defects.iter().any(|defect| defect.stops_jobs)
    {
        defects.push(Defect {
            about: "all".to_owned(),
            what: format!("the job on all hosts failed, though each pair alone works: {why}"),
            remedy: "hydrant run --hosts … with fewer hosts narrows it down".to_owned(),
            stops_jobs: true,
        });
    }
    defects.sort_by_key(|defect| !defect.stops_jobs);
    defects
}

/// The defect of a host that gave no facts.
fn unreached(remote: &RemoteArgs, host: &str, why: &str) -> Defect {
    let there = remote.hydrant();
    let there = there.display();
    let own = env::current_exe().unwrap_or_default();
    let own = own.display();
    let shell = remote.clone().reach().shell;
    let shell = shell.to_string_lossy();
    let remedy = if why.contains("is hydrant there under the same path")
        || why.contains("same version")
        || why.contains("same build")
    {
        format!("scp {own} {host}:{there}; or name its path on all hosts: --remote-hydrant PATH")
    } else if why.contains("working directory") {
        let here = env::current_dir().unwrap_or_default();
        format!(
            "on {host}: mkdir -p {}; or start in a directory that all hosts have",
            here.display()
        )
    } else if shell == DEFAULT_SHELL {
        format!(
            "`{shell} {host} true` must succeed without a question: check the name and the host, then ssh-copy-id {host}; \
             another remote shell is named by --rsh or HYDRANT_RSH"
        )
    } else {
        format!(
            "`{shell} {host} 'exit 0'` must succeed without a question: the remote shell takes a host and a line for sh \
             (--rsh, HYDRANT_RSH; docs/clusters.md)"
        )
    };
    Defect {
        about: host.to_owned(),
        what: why.to_owned(),
        remedy,
        stops_jobs: true,
    }
}

/// The defects of a host that answered, in a job that works or not.
fn of_host(name: &str, facts: &HostFacts, hosts: &[HostState], works: bool) -> Vec<Defect> {
    let mut defects = Vec::new();
    let mut add = |what: String, remedy: String, stops_jobs: bool| {
        defects.push(Defect {
            about: name.to_owned(),
            what,
            remedy,
            stops_jobs,
        });
    };
    if let Some(refused) = &facts.refused {
        let remedy = "correct the variable in the shell of that host, or here".to_owned();
        add(refused.clone(), remedy, !works);
    }
    let has_rdma = facts.ports.is_ok();
    let alone = hosts.len() == 1;
    if let (false, Err(why)) = (has_rdma || alone, &facts.endpoints) {
        let remedy = match &facts.libfabric {
            Err(_) => format!(
                "on {name}: apt install libfabric1 (1.17 or newer), or set HYDRANT_OFI_LIBRARY to its path"
            ),
            Ok(_) => format!(
                "correct or unset HYDRANT_OFI_PROVIDER or HYDRANT_OFI_INTERFACE; on {name}: `fi_info` lists the endpoints"
            ),
        };
        add(format!("libfabric cannot be used: {why}"), remedy, !works);
    }
    let only_loopback =
        (facts.endpoints.as_ref()).is_ok_and(|all| all.iter().all(FabricEndpoint::is_loopback));
    if only_loopback && !has_rdma && !alone {
        let (what, remedy) = match facts.down.first() {
            Some(down) => (
                format!(
                    "no interface but the loopback can be used; down: {}",
                    facts.down.join(", ")
                ),
                format!(
                    "on {name}: ip link set {down} up; its cable and its switch port, if it stays down"
                ),
            ),
            None => (
                "no interface but the loopback has an address".to_owned(),
                format!(
                    "on {name}: ip address; give an interface an address that the other hosts reach"
                ),
            ),
        };
        add(what, remedy, !works);
    }
    if facts.files.is_some_and(|files| files < FEW_FILES) {
        let files = facts.files.unwrap_or(0);
        let what = format!(
            "{files} files may be open, and each connection of a rank takes one (ulimit -n)"
        );
        add(
            what,
            format!("on {name}: /etc/security/limits.conf: * hard nofile 1048576"),
            false,
        );
    }
    if has_rdma && facts.memlock.is_some_and(|bytes| bytes < FEW_BYTES) {
        let bytes = units::bytes(facts.memlock.unwrap_or(0) as f64);
        let what = format!("RDMA registers memory, and the limit is {bytes} (ulimit -l)");
        let remedy = format!(
            "on {name}: /etc/security/limits.conf: * hard memlock unlimited, and the same for soft; for sshd a new login"
        );
        add(what, remedy, false);
    }
    defects
}

/// Names hosts whose hydrant is another file than this one, of the same version.
fn differing_builds(hosts: &[HostState]) -> Option<Defect> {
    let answered = || {
        hosts
            .iter()
            .filter_map(|host| Some((&host.name, host.facts.as_ref().ok()?)))
    };
    let (first, facts) = answered().next()?;
    let others: Vec<&str> = answered()
        .filter(|(_, other)| other.build != facts.build)
        .map(|(name, _)| name.as_str())
        .collect();
    (!others.is_empty()).then(|| Defect {
        about: others.join(", "),
        what: format!(
            "the file {} is another build of version {} than on {first}",
            facts.path, facts.version
        ),
        remedy: format!(
            "copy the file of {first} there, unless the hosts need builds of their own"
        ),
        stops_jobs: false,
    })
}

/// The remedy for a firewall between two hosts.
fn let_pass(one: &str, other: &str) -> String {
    format!(
        "let TCP pass between {one} and {other} on all ports (nft list ruleset; iptables -I INPUT -s ADDRESS -p tcp -j \
         ACCEPT), or name an interface that does: HYDRANT_OFI_INTERFACE"
    )
}

/// The defect of a pair that was joined by connections of one direction only.
fn one_way(hosts: &[HostState], [from, to]: [usize; 2], why: &str) -> Defect {
    let [from, to] = [from, to].map(|host| hosts[host].name.as_str());
    Defect {
        about: format!("{from}, {to}"),
        what: format!(
            "{from} makes no connection to {to}: {why}. Those from {to} joined them here; a job with more ranks may fail"
        ),
        remedy: let_pass(from, to),
        stops_jobs: true,
    }
}

/// The defect of two hosts that answered and do not reach each other.
fn unconnected(hosts: &[HostState], pair: [usize; 2], why: &str) -> Defect {
    let [one, other] = pair.map(|host| hosts[host].name.as_str());
    let remedy = if network::choice(hosts, pair).is_err() {
        "the same libfabric on both (apt install libfabric1), or an RDMA port on each".to_owned()
    } else if why.contains("HYDRANT_OFI_PROVIDER names") {
        "unset HYDRANT_OFI_PROVIDER, or name another provider (docs/ofi.md)".to_owned()
    } else if why.contains("no route") {
        format!(
            "`ip route get ADDRESS` and ping between {one} and {other}; if they find a way: {}",
            let_pass(one, other)
        )
    } else if why.contains("firewall") {
        let_pass(one, other)
    } else {
        format!("ping between {one} and {other}, and the sentence above")
    };
    Defect {
        about: format!("{one}, {other}"),
        what: format!("the hosts do not reach each other: {why}"),
        remedy,
        stops_jobs: true,
    }
}
