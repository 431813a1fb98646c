//! The interfaces that a user allows, as names, addresses and networks: `eth0,10.9.0.0/24`. And whether one is up.

use std::{fs, io, net::IpAddr};

/// The list of `HYDRANT_OFI_INTERFACE`. An empty list allows every interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceList(Vec<InterfacePattern>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum InterfacePattern {
    Name(String),
    Address(IpAddr),
    /// The addresses that share this many leading bits with this one.
    Network(IpAddr, u32),
}

impl InterfaceList {
    /// Reads a list with commas between its patterns. What is neither an address nor a network is a name.
    pub(crate) fn new(text: &str) -> Self {
        let words = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        Self(words.map(InterfacePattern::new).collect())
    }

    /// Returns true if the list allows every interface.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first word that is meant as a network and is none. No interface has a slash in its name.
    pub(crate) fn malformed(&self) -> Option<&str> {
        self.0.iter().find_map(|pattern| match pattern {
            InterfacePattern::Name(name) if name.contains('/') => Some(name.as_str()),
            _ => None,
        })
    }

    /// Returns true if the list allows the interface `name` with this address.
    pub(crate) fn allows(&self, name: &str, address: Option<IpAddr>) -> bool {
        self.is_empty() || self.0.iter().any(|pattern| pattern.matches(name, address))
    }
}

impl InterfacePattern {
    fn new(word: &str) -> Self {
        if let Ok(address) = word.parse() {
            return Self::Address(address);
        }
        let network = word.split_once('/').and_then(|(address, bits)| {
            let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
            (bits <= width(address)).then_some(Self::Network(address, bits))
        });
        network.unwrap_or_else(|| Self::Name(word.to_owned()))
    }

    fn matches(&self, name: &str, address: Option<IpAddr>) -> bool {
        match (self, address) {
            (Self::Name(own), _) => own == name,
            (Self::Address(own), Some(address)) => *own == address,
            (Self::Network(network, bits), Some(address)) => {
                width(*network) == width(address)
                    && leading(*network, *bits) == leading(address, *bits)
            }
            (_, None) => false,
        }
    }
}

/// Returns what keeps an interface of this host from sending, as the end of a sentence, if the kernel knows.
pub(crate) fn link_defect(name: &str) -> Option<String> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let carrier = fs::read_to_string(format!("/sys/class/net/{name}/carrier"));
    link_defect_of(name, carrier)
}

fn link_defect_of(name: &str, carrier: io::Result<String>) -> Option<String> {
    match carrier {
        Ok(carrier) => (carrier.trim() == "0")
            .then(|| format!("{name} of this host has no carrier: its cable or its switch is off")),
        // The kernel refuses to read the carrier of an interface that is switched off.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Some(format!(
            "{name} of this host is down: ip link set {name} up"
        )),
        Err(_) => None,
    }
}

/// Returns the bits of an address of this family.
fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the leading `bits` of an address.
fn leading(address: IpAddr, bits: u32) -> u128 {
    let all = match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    };
    all.checked_shr(width(address) - bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(list: &str, name: &str, address: &str) -> bool {
        InterfaceList::new(list).allows(name, address.parse().ok())
    }

    #[test]
    fn links_that_are_down_are_named() {
        let read = |text: &str| link_defect_of("eth0", Ok(text.to_owned()));
        assert_eq!(read("1\n"), None);
        assert!(read("0\n").is_some_and(|why| why.contains("no carrier")));
        let refused = |kind: io::ErrorKind| link_defect_of("eth0", Err(kind.into()));
        let down = refused(io::ErrorKind::InvalidInput);
        assert!(down.is_some_and(|why| why.contains("is down")));
        assert_eq!(refused(io::ErrorKind::NotFound), None);
        assert_eq!(link_defect("lo"), None);
        assert_eq!(link_defect("../lo"), None);
    }

    #[test]
    fn malformed_networks_are_found() {
        let malformed = |list: &str| InterfaceList::new(list).malformed().map(str::to_owned);
        for good in ["", "eth0,10.9.0.1", "10.9.0.0/24,::/0"] {
            assert_eq!(malformed(good), None, "{good}");
        }
        for bad in ["10.9.0.0/33", "10.9/16", "fd00::/129", "eth0/24"] {
            assert_eq!(malformed(&format!("eth0,{bad}")).as_deref(), Some(bad));
        }
    }

    #[test]
    fn names_addresses_and_networks_are_told_apart() {
        assert!(allows("", "eth0", "10.9.0.1"));
        assert!(allows(" , ", "eth0", "10.9.0.1"));
        assert!(allows("ib0, eth0", "eth0", ""));
        assert!(!allows("ib0", "eth0", "10.9.0.1"));
        assert!(allows("10.9.0.1", "eth0", "10.9.0.1"));
        assert!(allows("fd00:0::1", "eth0", "fd00::1"));
        assert!(!allows("10.9.0.1", "eth0", ""));
        for (network, inside) in [
            ("10.9.0.0/24", "10.9.0.255"),
            ("10.9.0.7/24", "10.9.0.1"),
            ("0.0.0.0/0", "255.0.0.1"),
            ("::/0", "fd00::1"),
            ("fd00::/8", "fdff::1"),
            ("10.9.0.1/32", "10.9.0.1"),
        ] {
            assert!(allows(network, "eth0", inside), "{network}");
        }
        for (network, outside) in [
            ("10.9.0.0/24", "10.9.1.0"),
            ("0.0.0.0/0", "fd00::1"),
            ("10.9.0.0/33", "10.9.0.1"),
            ("10.9.0.0/", "10.9.0.1"),
        ] {
            assert!(!allows(network, "eth0", outside), "{network}");
        }
    }
}
