//! The providers and addresses that a rank announces before the ranks choose one, and the choice among its interfaces.
//!
//! A host may have interfaces that lead nowhere, such as the bridge of Docker, whose address is the same on every host.
//! So a rank asks its kernel by which of its addresses it would reach each address of the other hosts, and takes the one
//! that serves most hosts. Nothing is sent for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
};

use crate::choice::Candidate;

/// Most addresses of other hosts that the kernel is asked about.
const MOST_ASKED: usize = 1024;
/// A port to ask about; the route does not depend on it.
const ANY_PORT: u16 = 9;

/// The candidates of a rank, best first, and its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Announcement {
    pub(crate) candidates: Vec<Candidate>,
    /// The host's identity.
    pub(crate) host: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Announcement {
    pub(crate) fn to_text(&self) -> String {
        let mut lines = vec![self.host.clone()];
        let addresses = self.addresses.iter().map(IpAddr::to_string);
        lines.push(addresses.collect::<Vec<_>>().join(" "));
        lines.extend(self.candidates.iter().map(Candidate::to_line));
        lines.join("\n")
    }

    /// Reads a text of [`to_text`](Self::to_text).
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let host = lines.next()?.to_owned();
        let addresses = lines.next()?.split_whitespace();
        let addresses: Result<Vec<IpAddr>, _> = addresses.map(str::parse).collect();
        let candidates: Option<Vec<Candidate>> = lines.map(Candidate::from_line).collect();
        Some(Self {
            candidates: candidates?,
            host,
            addresses: addresses.ok()?,
        })
    }
}

/// Returns the index of the own address that leads to most of the other hosts, the first of several such.
pub(crate) fn best_address(own: &[Option<IpAddr>], rank: usize, all: &[Announcement]) -> usize {
    best_by(own, rank, all, source_towards)
}

fn best_by(
    own: &[Option<IpAddr>],
    rank: usize,
    all: &[Announcement],
    source: impl Fn(IpAddr) -> Option<IpAddr>,
) -> usize {
    let here = &all[rank];
    let mut hosts: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    for other in all.iter().filter(|other| other.host != here.host) {
        // An address that this host has, too, leads to itself.
        let theirs = other.addresses.iter().filter(|it| !it.is_loopback());
        let theirs = theirs.filter(|it| !here.addresses.contains(it));
        hosts.entry(&other.host).or_default().extend(theirs);
    }
    let mut served = vec![0_u32; own.len()];
    let mut asked = 0;
    for addresses in hosts.values() {
        asked += addresses.len();
        if asked > MOST_ASKED {
            break;
        }
        let sources: BTreeSet<IpAddr> = addresses.iter().filter_map(|it| source(*it)).collect();
        for (count, address) in served.iter_mut().zip(own) {
            *count += u32::from(address.is_some_and(|it| sources.contains(&it)));
        }
    }
    let most = served.iter().max().copied().unwrap_or(0);
    served.iter().position(|it| *it == most).unwrap_or(0)
}

/// Returns the own address that the kernel would send from to reach `to`.
pub(crate) fn source_towards(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // A datagram socket that connects only chooses its route.
    socket.connect((to, ANY_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str, addresses: &[&str]) -> Announcement {
        Announcement {
            candidates: vec![Candidate::from_line("tcp 1 2 4").expect("a candidate")],
            host: host.to_owned(),
            addresses: addresses
                .iter()
                .map(|it| it.parse().expect("an address"))
                .collect(),
        }
    }

    #[test]
    fn announcements_survive_the_exchange() {
        for it in [of("a 1", &["10.0.0.1", "fd00::1"]), of("b", &[])] {
            assert_eq!(Announcement::from_text(&it.to_text()), Some(it));
        }
        assert_eq!(Announcement::from_text("host\n\nno candidate"), None);
        assert_eq!(Announcement::from_text("tcp 1 2 4"), None);
    }

    /// The routes of a host with a bridge, 172.17.0.0/16, and a network, 10.0.0.0/8, which has the default route.
    fn source(to: IpAddr) -> Option<IpAddr> {
        let text = to.to_string();
        let from = if text.starts_with("172.17.") {
            "172.17.0.1"
        } else {
            "10.0.0.1"
        };
        from.parse().ok()
    }

    fn best(all: &[Announcement]) -> usize {
        let own: Vec<_> = all[0].addresses.iter().copied().map(Some).collect();
        best_by(&own, 0, all, source)
    }

    #[test]
    fn a_bridge_that_leads_nowhere_is_not_chosen() {
        let here = of("a", &["172.17.0.1", "10.0.0.1"]);
        let same = of("b", &["172.17.0.1", "10.0.0.2"]);
        assert_eq!(best(&[here.clone(), same]), 1);
        // Only this host has one, or the other host's has another network.
        assert_eq!(best(&[here.clone(), of("b", &["10.0.0.2"])]), 1);
        assert_eq!(best(&[here, of("b", &["172.18.0.1", "10.0.0.2"])]), 1);
    }

    #[test]
    fn the_first_of_equal_interfaces_is_chosen() {
        let here = of("a", &["172.17.0.1", "10.0.0.1"]);
        assert_eq!(
            best(&[here.clone(), of("b", &["172.17.0.2", "10.0.0.2"])]),
            0
        );
        // Ranks of the same host need no route.
        assert_eq!(best(&[here.clone(), here.clone()]), 0);
        assert_eq!(
            best_by(&[None], 0, &[here.clone(), of("b", &[])], source),
            0
        );
    }

    #[test]
    fn the_kernel_knows_the_route() {
        let loopback: IpAddr = [127, 0, 0, 2].into();
        assert_eq!(source_towards(loopback), Some([127, 0, 0, 1].into()));
    }
}
