//! The place of a job on several hosts, which its rows name.

use hydrant_launch::launcher::Host;
use hydrant_report::machine::Machine;
use serde::{Deserialize, Serialize};

/// A rank's account of its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankPlace {
    /// Processor, cores, kernel.
    pub(crate) machine: String,
    /// The port of the network: an RDMA device, or a provider of libfabric with interface and address.
    pub(crate) port: String,
}

impl RankPlace {
    /// The longest account in bytes.
    pub(crate) const BYTES: usize = 512;

    /// The account of this process, whose job uses `port`.
    pub(crate) fn here(port: String) -> Self {
        let mut machine = Machine::here();
        // The launcher may have bound the rank to some of the cores of its host.
        let cores = std::env::var(hydrant_launch::HOST_CPUS).ok();
        if let Some(cores) = cores.filter(|cores| !cores.is_empty()) {
            machine.cores_allowed = cores.split(',').count();
        }
        RankPlace {
            machine: machine.line(),
            port,
        }
    }

    /// Encodes the account in [`BYTES`](Self::BYTES) bytes. A longer text is cut.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{}\n{}", self.port, self.machine).into_bytes();
        bytes.resize(Self::BYTES, 0);
        bytes
    }

    /// Decodes the bytes of [`encode`](Self::encode).
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (port, machine) = text.split_once('\n').unwrap_or(("", &text));
        RankPlace {
            machine: machine.trim_end_matches('\0').to_owned(),
            port: port.to_owned(),
        }
    }
}

/// The place of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobPlace {
    /// The version of Hydrant.
    pub(crate) version: String,
    /// The conduit, as `ofi`.
    pub(crate) conduit: String,
    /// The number of ranks.
    pub(crate) ranks: u32,
    /// The machine of rank 0.
    pub(crate) machine: String,
    /// The hosts with ranks, in their order.
    pub(crate) hosts: Vec<HostPlace>,
}

/// A host of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostPlace {
    /// The name in the list of hosts.
    pub(crate) host: String,
    /// The number of ranks there.
    pub(crate) ranks: u32,
    pub(crate) machine: String,
    /// The port of the host's first rank.
    pub(crate) port: String,
}

impl JobPlace {
    /// Puts the accounts of ranks together, which stand in blocks on `hosts`.
    pub(crate) fn new(
        conduit: String,
        hosts: &[Host],
        counts: &[u32],
        ranks: &[RankPlace],
    ) -> Self {
        let mut first = 0;
        let mut places = Vec::new();
        for (host, count) in hosts.iter().zip(counts) {
            if let (Some(place), true) = (ranks.get(first), *count > 0) {
                places.push(HostPlace {
                    host: host.name.clone(),
                    ranks: *count,
                    machine: place.machine.clone(),
                    port: place.port.clone(),
                });
            }
            first += *count as usize;
        }
        JobPlace {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            conduit,
            ranks: ranks.len() as u32,
            machine: ranks
                .first()
                .map_or_else(String::new, |place| place.machine.clone()),
            hosts: places,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_the_account_of_their_first_rank() {
        let ranks: Vec<RankPlace> = (0..3)
            .map(|rank| RankPlace {
                machine: format!("machine {rank}"),
                port: format!("eth{rank}"),
            })
            .map(|place| RankPlace::decode(&place.encode()))
            .collect();
        let hosts = ["a", "b", "c"].map(|name| name.parse().unwrap());
        let place = JobPlace::new("ofi".to_owned(), &hosts, &[2, 0, 1], &ranks);
        let of: Vec<_> = place
            .hosts
            .iter()
            .map(|it| (it.host.as_str(), it.port.as_str(), it.ranks))
            .collect();
        assert_eq!(of, [("a", "eth0", 2), ("c", "eth2", 1)]);
        assert_eq!((place.machine.as_str(), place.ranks), ("machine 0", 3));
    }
}
