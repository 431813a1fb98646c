//! The conduit of a job that may run on several hosts. Ranks of one host use shared memory. If each
//! rank is alone on its host, a network joins all. If several hosts have several ranks, both are
//! used.
//!
//! Rank 0 collects which ranks share a host and tells all, so that the cost of a start stays
//! linear. Under `mixed`, segments belong to the intra-node conduit, whose ranks [`Subset`]
//! renumbers.

use hydrant_conduit::{self as conduit, Conduit};
use hydrant_launch::{Bootstrap, Subset};

use super::{JobBuilder, conduits};
use crate::{Error, InterNodeKind, Rank, Result};

/// The bytes of the network's segment where ranks have their segments in shared memory.
const NO_SEGMENT: usize = 4096;

/// Attaches the fastest conduit that reaches every rank. Collective.
pub(super) fn attach(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
) -> Result<Box<dyn Conduit>> {
    let hosts = hosts(builder, bootstrap)?;
    if hosts.iter().all(|host| *host == 0) {
        return conduits::smp(builder, bootstrap);
    }
    let kind = inter_node(builder, bootstrap)?;
    if (0..).zip(&hosts).all(|(rank, host)| rank == *host) {
        return inter(builder, bootstrap, kind, &hosts, conduits::segment(builder));
    }
    let here = hosts[bootstrap.rank() as usize];
    let mates = (0..).zip(&hosts).filter(|(_, host)| **host == here);
    let mates: Vec<u32> = mates.map(|(rank, _)| rank).collect();
    let mut subset = Subset::new(bootstrap, mates.clone(), "intra.")?;
    let intra = conduits::smp(builder, &mut subset).map_err(|error| match error {
        // The ranks of a host count themselves from 0.
        Error::PeerLost(mate) => Error::PeerLost(Rank(mates[mate.index()])),
        other => other,
    })?;
    let inter = inter(builder, bootstrap, kind, &hosts, NO_SEGMENT)?;
    let name = match kind {
        InterNodeKind::Verbs => "smp/verbs",
        InterNodeKind::Auto | InterNodeKind::Ofi => "smp/ofi",
        InterNodeKind::Pinned => "smp/smp+pin",
    };
    conduits::joined(bootstrap, &hosts, name, [intra, inter])
}

/// Returns the host of each rank, real or pretended.
fn hosts(builder: &JobBuilder, bootstrap: &mut dyn Bootstrap) -> Result<Vec<u32>> {
    let mut id = match builder.settings.host_id.as_str() {
        "" => hydrant_launch::host_id(),
        named => named.to_owned(),
    };
    let pretended = u64::from(builder.settings.pretend_hosts);
    if pretended > 1 {
        let (rank, size) = (u64::from(bootstrap.rank()), u64::from(bootstrap.size()));
        id = format!("{} of {id}", rank * pretended / size);
    }
    Ok(hydrant_launch::hosts(bootstrap, &id)?)
}

/// Returns the network between hosts that all ranks use. Collective if the setting leaves the choice.
fn inter_node(builder: &JobBuilder, bootstrap: &mut dyn Bootstrap) -> Result<InterNodeKind> {
    const KEY: &str = "rdma";
    const CHOICE: &str = "inter-node";
    if builder.settings.inter_node != InterNodeKind::Auto {
        return Ok(builder.settings.inter_node);
    }
    bootstrap.put(KEY, &[conduits::has_rdma(builder).into()])?;
    bootstrap.fence()?;
    if bootstrap.rank() == 0 {
        let mut all = true;
        for rank in 0..bootstrap.size() {
            all &= bootstrap.get(rank, KEY)? == [1];
        }
        bootstrap.put(CHOICE, &[all.into()])?;
    }
    bootstrap.fence()?;
    let all = bootstrap.get(0, CHOICE)? == [1];
    Ok(if all {
        InterNodeKind::Verbs
    } else {
        InterNodeKind::Ofi
    })
}

/// Attaches the network between hosts, with segments of `segment` bytes.
fn inter(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
    kind: InterNodeKind,
    hosts: &[u32],
    segment: usize,
) -> Result<Box<dyn Conduit>> {
    let attached = match kind {
        InterNodeKind::Pinned => {
            #[cfg(feature = "pin")]
            if bootstrap.rank() == 0 {
                (builder.settings).warn_unused("HYDRANT_PEER_TIMEOUT", NOBODY_ASKS);
            }
            conduits::pinned(builder, bootstrap, segment)
        }
        InterNodeKind::Verbs => conduits::verbs(builder, bootstrap, segment),
        InterNodeKind::Auto | InterNodeKind::Ofi => conduits::ofi(builder, bootstrap, segment),
    };
    attached.map_err(|error| match error {
        Error::Conduit(conduit::Error::Unreachable(cause)) => {
            let needed = match kind {
                InterNodeKind::Pinned => PRETENDED,
                InterNodeKind::Verbs => NEEDED,
                _ if builder.settings.inter_node == InterNodeKind::Ofi => BY_LIBFABRIC,
                InterNodeKind::Auto | InterNodeKind::Ofi => WITHOUT_RDMA,
            };
            let placement = hydrant_launch::placement(bootstrap, hosts);
            // Launchers cut long reasons, so what happened comes first.
            let cause = format!("{cause} ({placement}: {needed})");
            Error::Conduit(conduit::Error::Unreachable(cause))
        }
        other => other,
    })
}

/// Explains why the conduit between hosts cannot be attached; the beginning of a sentence.
const NEEDED: &str = "ranks of different hosts are joined by RDMA (HYDRANT_INTER_NODE=verbs), which is \
                      not there; HYDRANT_INTER_NODE=ofi joins them over TCP";

/// The same where the ranks use libfabric.
const BY_LIBFABRIC: &str = "libfabric joins ranks of different hosts (HYDRANT_INTER_NODE=ofi)";

/// The same where libfabric was chosen because RDMA cannot join the ranks.
const WITHOUT_RDMA: &str = "not every host has a port for RDMA, so libfabric joins them";

/// The same where the setting names the conduit between pretended hosts.
const PRETENDED: &str = "HYDRANT_INTER_NODE=smp+pin joins hosts that are only pretended \
                         (HYDRANT_PRETEND_HOSTS) and not these; between them there must be RDMA \
                         or libfabric (HYDRANT_INTER_NODE=auto)";

/// Explains why no rank is lost for its silence between pretended hosts. A stopped process there
/// can still touch the mapped memory when it continues, so it must not count as lost before.
#[cfg(feature = "pin")]
const NOBODY_ASKS: &str = "ranks of pretended hosts share a kernel, which says at once whose process \
                           ended; one that is only stopped is waited for";
