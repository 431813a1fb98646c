//! The choice of provider and interface.
//!
//! Each rank lists what it could use, best first. All ranks then use the first entry of rank 0 that all have. Versions
//! of the library may differ, but the provider and its protocol may not: a rank of native `tcp` and one of `tcp;ofi_rxm`
//! connect, and lose messages (libfabric 2.5.1).

use std::fmt;

use crate::{
    OfiOptions,
    fabric::{AddressFamily, Offer, offers},
    interfaces::InterfaceList,
    library,
};

/// The providers that are used without being named, best first. Others were never tried.
const TRIED: [&str; 2] = ["tcp", "tcp;ofi_rxm"];

/// Native `tcp`, which has reliable datagrams, appeared in this version.
const NATIVE_TCP: (u32, u32) = (1, 18);

/// A provider, protocol and address family, which ranks must have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) provider: String,
    pub(crate) protocol: (u32, u32),
    pub(crate) family: AddressFamily,
}

/// An endpoint that this host offers, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedEndpoint {
    /// The provider, as `tcp`.
    pub provider: String,
    /// The interface or device, as `eth0`.
    pub interface: String,
    /// The address, for providers with IP addresses.
    pub address: String,
}

impl OfferedEndpoint {
    pub(crate) fn of(offer: &Offer) -> Self {
        Self {
            provider: offer.provider(),
            interface: offer.domain_name(),
            address: offer.ip().map_or_else(String::new, |ip| ip.to_string()),
        }
    }
}

impl fmt::Display for OfferedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.provider, self.interface)?;
        if !self.address.is_empty() {
            write!(f, ", {}", self.address)?;
        }
        Ok(())
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            AddressFamily::V4 => " over IPv4",
            AddressFamily::V6 => " over IPv6",
            AddressFamily::Native => "",
        };
        let (protocol, version) = self.protocol;
        write!(
            f,
            "{}{family} (protocol {protocol}.{version})",
            self.provider
        )
    }
}

impl Candidate {
    fn of(offer: &Offer) -> Self {
        Self {
            provider: offer.provider(),
            protocol: offer.protocol(),
            family: offer.family(),
        }
    }

    /// Writes the candidate as one line.
    pub(crate) fn to_line(&self) -> String {
        let family = match self.family {
            AddressFamily::V4 => 4,
            AddressFamily::V6 => 6,
            AddressFamily::Native => 0,
        };
        let (protocol, version) = self.protocol;
        format!("{} {protocol} {version} {family}", self.provider)
    }

    /// Reads a line of [`to_line`](Self::to_line).
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let provider = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        let protocol = (number()?, number()?);
        let family = match number()? {
            4 => AddressFamily::V4,
            6 => AddressFamily::V6,
            0 => AddressFamily::Native,
            _ => return None,
        };
        Some(Self {
            provider,
            protocol,
            family,
        })
    }
}

/// Returns the endpoints that this rank could use, best first.
///
/// # Errors
/// A sentence that says why there is none.
pub(crate) fn usable(options: &OfiOptions) -> Result<Vec<(Candidate, Offer)>, String> {
    let library = library::library()?;
    let version = library::version()?;
    let named = [options.provider.as_str()];
    let providers = if options.provider.is_empty() {
        &TRIED[..]
    } else {
        &named
    };
    let allowed = InterfaceList::new(&options.interface);
    if let Some(word) = allowed.malformed() {
        return Err(format!(
            "`{word}` in HYDRANT_OFI_INTERFACE is no network: an address and its leading bits, such as 10.9.0.0/24"
        ));
    }
    let (mut found, mut elsewhere, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    for provider in providers {
        if *provider == "tcp" && version < NATIVE_TCP {
            let (major, minor) = version;
            reasons.push(format!("tcp wants libfabric 1.18, this is {major}.{minor}"));
            continue;
        }
        let over_ip = provider.starts_with("tcp") || provider.starts_with("verbs");
        let families: &[AddressFamily] = if over_ip {
            &[AddressFamily::V4, AddressFamily::V6]
        } else {
            &[AddressFamily::Native]
        };
        for family in families {
            match offers(library, provider, *family) {
                Err(cause) => reasons.push(format!("{provider}: {cause}")),
                Ok(all) => {
                    let all = suitable(all, provider, &allowed, &mut reasons);
                    let (here, others): (Vec<_>, Vec<_>) = (all.into_iter())
                        .partition(|offer| allowed.allows(&offer.domain_name(), offer.ip()));
                    found.extend(here.into_iter().map(|it| (Candidate::of(&it), it)));
                    elsewhere.extend(others.iter().map(interface_of));
                }
            }
        }
    }
    if found.is_empty() && !elsewhere.is_empty() {
        elsewhere.sort();
        elsewhere.dedup();
        return Err(format!(
            "no endpoint of libfabric matches HYDRANT_OFI_INTERFACE={}; this host has {}",
            options.interface,
            elsewhere.join(", ")
        ));
    }
    if found.is_empty() {
        let (major, minor) = version;
        let named = match options.provider.as_str() {
            "" => String::new(),
            name => format!(" of HYDRANT_OFI_PROVIDER={name}"),
        };
        let mut text = format!("libfabric {major}.{minor} has no endpoint to use{named}");
        reasons.dedup();
        for reason in reasons {
            text += "; ";
            text += &reason;
        }
        if !named.is_empty() {
            text += "; `fi_info -l` lists the providers, and without the setting tcp or tcp;ofi_rxm is used";
        }
        return Err(text);
    }
    // The loopback interface reaches this host alone, so it comes last.
    found.sort_by_key(|(_, offer)| {
        let at = providers
            .iter()
            .position(|provider| *provider == offer.provider());
        (is_loopback(offer), at, offer.family() == AddressFamily::V6)
    });
    Ok(found)
}

/// Keeps the offers of this provider that the crate can use, and adds the defects of the others to `reasons`.
fn suitable(
    mut all: Vec<Offer>,
    provider: &str,
    allowed: &InterfaceList,
    reasons: &mut Vec<String>,
) -> Vec<Offer> {
    all.retain(|offer| {
        // libfabric also returns layered providers of the same name.
        if offer.provider() != provider {
            return false;
        }
        if let Some(defect) = offer.defect() {
            reasons.push(format!("{provider} at {}: {defect}", offer.domain_name()));
            return false;
        }
        let link_local =
            matches!(offer.ip(), Some(std::net::IpAddr::V6(ip)) if ip.is_unicast_link_local());
        !link_local || !allowed.is_empty()
    });
    all
}

/// Returns the name of an offer's interface and its address, for people.
pub(crate) fn interface_of(offer: &Offer) -> String {
    match offer.ip() {
        Some(ip) => format!("{} ({ip})", offer.domain_name()),
        None => offer.domain_name(),
    }
}

fn is_loopback(offer: &Offer) -> bool {
    offer.ip().is_some_and(|ip| ip.is_loopback())
}

/// Returns the endpoints of libfabric that a rank on this host may use, best first.
///
/// # Errors
/// A sentence that says why there is none.
pub fn endpoints(options: &OfiOptions) -> Result<Vec<OfferedEndpoint>, String> {
    let mut endpoints: Vec<OfferedEndpoint> = Vec::new();
    for (_, offer) in usable(options)? {
        // libfabric offers an interface once for each set of capabilities.
        let endpoint = OfferedEndpoint::of(&offer);
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    Ok(endpoints)
}

/// Returns the first candidate of the first list that all lists have, or a sentence that names a rank without.
pub(crate) fn common(lists: &[&[Candidate]]) -> Result<Candidate, String> {
    let first = lists.first().copied().unwrap_or_default();
    let shared = (first.iter()).find(|candidate| lists.iter().all(|list| list.contains(candidate)));
    if let Some(candidate) = shared {
        return Ok(candidate.clone());
    }
    let (rank, other) = (lists.iter().enumerate())
        .find(|(_, list)| !first.iter().any(|candidate| list.contains(candidate)))
        .unwrap_or((0, &lists[0]));
    let names = |list: &[Candidate]| {
        let mut names: Vec<String> = list.iter().map(Candidate::to_string).collect();
        names.dedup();
        names.join(", ")
    };
    Err(format!(
        "the ranks have no provider of libfabric in common: rank 0 has {}; rank {rank} has {}; \
         install the same libfabric on all hosts, or name a provider (HYDRANT_OFI_PROVIDER)",
        names(first),
        names(other),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(provider: &str, version: u32, family: AddressFamily) -> Candidate {
        Candidate {
            provider: provider.to_owned(),
            protocol: (25, version),
            family,
        }
    }

    #[test]
    fn an_endpoint_is_offered_once() {
        // Without libfabric there is nothing to list.
        let endpoints = endpoints(&OfiOptions::default()).unwrap_or_default();
        for (at, endpoint) in endpoints.iter().enumerate() {
            assert!(!endpoints[..at].contains(endpoint), "{endpoints:?}");
        }
    }

    #[test]
    fn a_setting_without_an_endpoint_is_named() {
        if library::library().is_err() {
            return;
        }
        let refused = |provider: &str, interface: &str| {
            let options = OfiOptions {
                provider: provider.to_owned(),
                interface: interface.to_owned(),
                ..OfiOptions::default()
            };
            endpoints(&options).expect_err("no endpoint")
        };
        let why = refused("nonesuch", "");
        assert!(why.contains("HYDRANT_OFI_PROVIDER=nonesuch;"), "{why}");
        assert!(why.contains("without the setting"), "{why}");
        let why = refused("", "10.9.0.0/33");
        assert!(
            why.contains("`10.9.0.0/33` in HYDRANT_OFI_INTERFACE is no network"),
            "{why}"
        );
        let why = refused("", "nonesuch");
        assert!(
            why.contains("HYDRANT_OFI_INTERFACE=nonesuch; this host has "),
            "{why}"
        );
    }

    #[test]
    fn a_line_is_read_back() {
        for family in [AddressFamily::V4, AddressFamily::V6, AddressFamily::Native] {
            let it = candidate("tcp;ofi_rxm", 7, family);
            assert_eq!(Candidate::from_line(&it.to_line()), Some(it));
        }
        assert_eq!(Candidate::from_line("tcp 1 2"), None);
        assert_eq!(Candidate::from_line("tcp 1 2 5"), None);
    }

    #[test]
    fn all_ranks_use_what_all_have() {
        let (native, layered) = (
            candidate("tcp", 1, AddressFamily::V4),
            candidate("tcp;ofi_rxm", 1, AddressFamily::V4),
        );
        let both = vec![native.clone(), layered.clone()];
        assert_eq!(common(&[&both, &both]), Ok(native.clone()));
        assert_eq!(
            common(&[&both, std::slice::from_ref(&layered)]),
            Ok(layered.clone())
        );
        let why = common(&[&[native], &both, &[layered]]).expect_err("nothing in common");
        assert!(why.contains("rank 0 has tcp over IPv4"), "{why}");
        assert!(why.contains("rank 2 has tcp;ofi_rxm over IPv4"), "{why}");
    }
}
