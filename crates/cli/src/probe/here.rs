//! The resources of this host that a job over several hosts depends on.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

use hydrant::Settings;
use hydrant_report::machine::{Fact, Machine};
use serde::{Deserialize, Serialize};

/// The facts about one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostFacts {
    /// The version of hydrant.
    pub(crate) version: String,
    /// The path of hydrant.
    pub(crate) path: String,
    /// A hash of that file, which tells builds of one version apart.
    pub(crate) build: u64,
    /// The host's name for itself.
    pub(crate) node: String,
    /// The place in which ranks share memory.
    pub(crate) site: String,
    /// Processor, cores, kernel.
    pub(crate) machine: String,
    /// The version of libfabric, or why it cannot be used.
    pub(crate) libfabric: Result<String, String>,
    /// The endpoints of libfabric, best first, or why there is none.
    pub(crate) endpoints: Result<Vec<FabricEndpoint>, String>,
    /// The version of libibverbs, if it was opened.
    pub(crate) libibverbs: Option<String>,
    /// The active RDMA ports, or why there is none.
    pub(crate) ports: Result<Vec<String>, String>,
    /// Network interfaces that are down.
    pub(crate) down: Vec<String>,
    /// The bytes that may be registered (`ulimit -l`); none: without limit.
    pub(crate) memlock: Option<u64>,
    /// The files that may be open (`ulimit -n`); none: without limit.
    pub(crate) files: Option<u64>,
    /// The bytes of `/dev/shm`, if it is there.
    pub(crate) shm: Option<u64>,
    /// The bytes of memory.
    pub(crate) memory: Option<u64>,
    /// The limit of the control group on memory, if there is one.
    pub(crate) cgroup: Option<u64>,
    /// The conduit and the network between hosts that the settings name.
    pub(crate) conduit: String,
    pub(crate) inter_node: String,
    /// A setting that no rank would accept.
    pub(crate) refused: Option<String>,
}

/// An endpoint of libfabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FabricEndpoint {
    pub(crate) provider: String,
    pub(crate) interface: String,
    pub(crate) address: String,
}

impl fmt::Display for FabricEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.provider, self.interface)?;
        if !self.address.is_empty() {
            write!(f, ", {}", self.address)?;
        }
        Ok(())
    }
}

impl FabricEndpoint {
    /// Returns the part that ranks must have in common: the provider, and the family of addresses.
    pub(crate) fn kind(&self) -> (&str, &'static str) {
        let family = match self.address.as_str() {
            "" => "",
            address if address.contains(':') => " over IPv6",
            _ => " over IPv4",
        };
        (&self.provider, family)
    }

    /// Returns true if the endpoint reaches its own host alone.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.starts_with("127.") || self.address == "::1"
    }
}

impl HostFacts {
    /// Gathers the facts about this host.
    pub(crate) fn gather() -> HostFacts {
        let settings = Settings::of_env();
        let machine = Machine::here();
        let own = std::env::current_exe().unwrap_or_default();
        let options = hydrant_ofi::OfiOptions {
            provider: settings.ofi_provider.clone(),
            interface: settings.ofi_interface.clone(),
            ..hydrant_ofi::OfiOptions::default()
        };
        let endpoints = hydrant_ofi::endpoints(&options);
        let ports = hydrant::settings::rdma_ports(&settings);
        let facts = [machine.facts(), machine.limits()].concat();
        HostFacts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: hash(&own),
            path: own.to_string_lossy().into_owned(),
            node: (rustix::system::uname().nodename().to_string_lossy()).into_owned(),
            site: match settings.host_id.as_str() {
                "" => hydrant_launch::host_id(),
                named => named.to_owned(),
            },
            machine: machine.line(),
            libfabric: hydrant_ofi::version()
                .map(|(major, minor)| format!("{major}.{minor}"))
                .map_err(str::to_owned),
            endpoints: endpoints.map(|all| {
                let own = |it: hydrant_ofi::OfferedEndpoint| FabricEndpoint {
                    provider: it.provider,
                    interface: it.interface,
                    address: it.address,
                };
                all.into_iter().map(own).collect()
            }),
            ports,
            libibverbs: mapped_version("libibverbs.so."),
            down: links_down(Path::new("/sys/class/net")),
            memlock: figure(&facts, "memlock (ulimit -l)", "bytes"),
            files: figure(&facts, "open files (ulimit -n)", "files"),
            shm: rustix::fs::statvfs("/dev/shm")
                .ok()
                .map(|shm| shm.f_blocks * shm.f_frsize),
            memory: figure(&facts, "memory", "total_bytes"),
            cgroup: figure(&facts, "memory limit of the cgroup", "bytes"),
            conduit: settings.conduit.to_string(),
            inter_node: settings.inter_node.to_string(),
            refused: (settings.refusals().next()).map(|error| error.to_string()),
        }
    }
}

/// Returns a number of the fact with this name.
fn figure(facts: &[Fact], name: &str, unit: &str) -> Option<u64> {
    let fact = facts.iter().find(|fact| fact.name == name)?;
    fact.figures.get(unit)?.as_u64()
}

/// Returns a hash of the file's bytes, or 0 if it cannot be read.
fn hash(file: &Path) -> u64 {
    let Ok(bytes) = fs::read(file) else {
        return 0;
    };
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    hasher.finish()
}

/// Returns the version in the name of the mapped file that begins with `name`, as `1.14.44.0`.
fn mapped_version(name: &str) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let file = maps.lines().find_map(|line| {
        let (_, file) = line.rsplit_once('/')?;
        file.strip_prefix(name)
    })?;
    Some(file.to_owned())
}

/// Returns the interfaces that are down, of those that the folder lists, without the loopback.
fn links_down(folder: &Path) -> Vec<String> {
    let Ok(links) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut down: Vec<String> = (links.flatten())
        .map(|link| link.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "lo" && is_down(&folder.join(name)))
        .collect();
    down.sort();
    down
}

fn is_down(link: &Path) -> bool {
    let read = |file| fs::read_to_string(link.join(file)).unwrap_or_default();
    let state = read("operstate");
    matches!(state.trim(), "down" | "lowerlayerdown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_back() {
        let facts = HostFacts::gather();
        assert!(facts.build != 0 && !facts.node.is_empty());
        let text = serde_json::to_string(&facts).unwrap();
        let read: HostFacts = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{facts:?}"));
    }

    #[test]
    fn the_family_of_addresses_belongs_to_the_kind() {
        let kind = |address: &str| {
            let endpoint = FabricEndpoint {
                provider: "tcp".to_owned(),
                interface: "eth0".to_owned(),
                address: address.to_owned(),
            };
            endpoint.kind().1
        };
        let kinds = ["10.0.0.1", "fd00::1", ""].map(kind);
        assert_eq!(kinds, [" over IPv4", " over IPv6", ""]);
    }
}
