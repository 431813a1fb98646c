//! The network that a job takes between two hosts, by their facts.

use hydrant::{ConduitKind, InterNodeKind};

use super::HostState;
use crate::probe::{FabricEndpoint, HostFacts};

/// Returns the network that a job of two hosts would take and why, or why there is none.
pub(super) fn choice(hosts: &[HostState], pair: [usize; 2]) -> Result<String, String> {
    let [one, other] = pair.map(|host| &hosts[host]);
    let both = [one, other].map(|host| {
        let facts = host.facts.as_ref();
        facts
            .map(|facts| (host.name.as_str(), facts))
            .map_err(|_| format!("{} did not answer", host.name))
    });
    let [one, other] = both;
    between([one?, other?])
}

fn between(hosts: [(&str, &HostFacts); 2]) -> Result<String, String> {
    let [(_, one), (_, other)] = hosts;
    if one.conduit != ConduitKind::Auto.to_string() {
        return Ok(format!("{}: HYDRANT_CONDUIT names it", one.conduit));
    }
    if one.site == other.site {
        return Ok("shared memory: both names are of one host".to_owned());
    }
    let without = hosts.iter().find(|(_, facts)| facts.ports.is_err());
    let named = |kind: InterNodeKind| one.inter_node == kind.to_string();
    if named(InterNodeKind::Pinned) {
        return Ok(format!("{}: HYDRANT_INTER_NODE names it", one.inter_node));
    }
    match without {
        None if named(InterNodeKind::Auto) => Ok("RDMA: each host has a port".to_owned()),
        None if named(InterNodeKind::Verbs) => Ok("RDMA: HYDRANT_INTER_NODE names it".to_owned()),
        Some((name, facts)) if named(InterNodeKind::Verbs) => Err(format!(
            "HYDRANT_INTER_NODE names RDMA, and {name} has no port: {}",
            facts.ports.as_ref().err().map_or("", String::as_str)
        )),
        Some((name, _)) if named(InterNodeKind::Auto) => {
            let common = libfabric(hosts)?;
            Ok(format!("{common}, because {name} has no RDMA port"))
        }
        _ => Ok(format!(
            "{}: HYDRANT_INTER_NODE names it",
            libfabric(hosts)?
        )),
    }
}

/// Returns the provider that both hosts have, as ranks choose it: the best of the first host's.
fn libfabric(hosts: [(&str, &HostFacts); 2]) -> Result<String, String> {
    let [one, other] = hosts.map(|(name, facts)| {
        let endpoints = facts.endpoints.as_ref();
        endpoints
            .map_err(|_| format!("{name} has neither an RDMA port nor an endpoint of libfabric"))
    });
    let (one, other) = (one?, other?);
    let common = (one.iter()).find_map(|mine| {
        let theirs = other.iter().find(|theirs| theirs.kind() == mine.kind())?;
        Some([mine, theirs])
    });
    if let Some(common) = common {
        let (provider, family) = common[0].kind();
        let kind = format!("libfabric, {provider}{family}");
        // The loopback of one host does not lead to the other.
        let alone = common.map(FabricEndpoint::is_loopback);
        return match (alone[0] != alone[1]).then_some(usize::from(alone[1])) {
            Some(host) => Err(format!(
                "{kind} is what they share, and {} has only the loopback for it",
                hosts[host].0
            )),
            None => Ok(kind),
        };
    }
    let kinds = |all: &[FabricEndpoint]| {
        let mut kinds: Vec<String> = all
            .iter()
            .map(|it| [it.kind().0, it.kind().1].concat())
            .collect();
        kinds.dedup();
        kinds.join(", ")
    };
    let [(one_name, _), (other_name, _)] = hosts;
    Err(format!(
        "libfabric has no provider in common: {one_name} has {}, {other_name} has {}",
        kinds(one),
        kinds(other)
    ))
}
