//! The networks that join the ranks.

use std::{fmt, str::FromStr};

use super::forms::{ValueForm, listed, with_near};

/// The conduit that joins the ranks of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConduitKind {
    /// The fastest network that reaches every rank.
    #[default]
    Auto,
    /// Shared memory, between ranks of one host.
    Smp,
    /// Shared memory between ranks of one host, with played NICs: messages go by shared memory.
    /// Peers reach memory only where it is registered, and registration really pins it.
    Pinned,
    /// RDMA NICs between any ranks, those of one host included.
    Verbs,
    /// A provider of libfabric between any ranks, those of one host included: TCP, or a fabric.
    Ofi,
    /// A network in virtual time, with this profile: a name or a file. The ranks are threads of one
    /// process.
    #[cfg(feature = "sim")]
    Sim(String),
}

impl ConduitKind {
    /// Returns whether time is virtual: computing and sending advance it, not the clock.
    #[cfg(feature = "sim")]
    pub fn is_virtual(&self) -> bool {
        matches!(self, Self::Sim(_))
    }

    /// Without the feature `sim`, time is real.
    #[cfg(not(feature = "sim"))]
    pub(crate) fn is_virtual(&self) -> bool {
        false
    }
}

/// The prefix of the conduits in virtual time.
const SIMULATED: &str = "sim:";

/// The form of [`ConduitKind`].
pub(super) struct Conduits;

impl Conduits {
    const WORDS: [&str; 6] = ["auto", "smp", "smp+pin", "verbs", "ofi", "sim:PROFILE"];

    /// Returns the simulated network of this profile.
    #[cfg(feature = "sim")]
    fn simulated(&self, profile: &str) -> Result<ConduitKind, String> {
        match profile {
            "" => Err(self.values()),
            profile => Ok(ConduitKind::Sim(profile.to_owned())),
        }
    }

    #[cfg(not(feature = "sim"))]
    fn simulated(&self, _profile: &str) -> Result<ConduitKind, String> {
        Err(format!(
            "{}; `sim` needs {}",
            self.values(),
            crate::settings::built_without("sim")
        ))
    }
}

impl ValueForm<ConduitKind> for Conduits {
    fn read(&self, text: &str) -> Result<ConduitKind, String> {
        match text {
            "auto" => Ok(ConduitKind::Auto),
            "smp" => Ok(ConduitKind::Smp),
            "smp+pin" => Ok(ConduitKind::Pinned),
            "verbs" => Ok(ConduitKind::Verbs),
            "ofi" => Ok(ConduitKind::Ofi),
            _ => match text.strip_prefix(SIMULATED) {
                Some(profile) => self.simulated(profile),
                None => Err(with_near(self.values(), text, Self::WORDS.into_iter())),
            },
        }
    }

    fn show(&self, value: &ConduitKind) -> String {
        value.to_string()
    }

    fn values(&self) -> String {
        if cfg!(feature = "sim") {
            format!("{}, such as sim:myrinet-gm", listed(&Self::WORDS))
        } else {
            listed(&Self::WORDS[..5])
        }
    }
}

impl FromStr for ConduitKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Conduits.read(text)
    }
}

impl fmt::Display for ConduitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Smp => f.pad("smp"),
            Self::Pinned => f.pad("smp+pin"),
            Self::Verbs => f.pad("verbs"),
            Self::Ofi => f.pad("ofi"),
            #[cfg(feature = "sim")]
            Self::Sim(profile) => f.pad(&format!("{SIMULATED}{profile}")),
        }
    }
}

/// The network that joins ranks of different hosts, in jobs on several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InterNodeKind {
    /// RDMA NICs if each rank has a port of one, else libfabric.
    #[default]
    Auto,
    /// RDMA NICs.
    Verbs,
    /// A provider of libfabric: TCP, or a fabric.
    Ofi,
    /// Played NICs, between pretended hosts.
    Pinned,
}

super::forms::words!(InterNodeKind {
    Auto => "auto",
    Verbs => "verbs",
    Ofi => "ofi",
    Pinned => "smp+pin",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conduits_are_parsed_and_formatted() {
        for text in ["auto", "smp", "smp+pin", "verbs", "ofi"] {
            assert_eq!(text.parse::<ConduitKind>().unwrap().to_string(), text);
        }
        for bad in [
            "", "sim", "sim:", "SMP", "smp+", "pin", "tcp:host", "verbs ",
        ] {
            let expected = bad.parse::<ConduitKind>().unwrap_err();
            assert!(expected.contains("auto, smp, smp+pin"), "{bad}: {expected}");
        }
        let why = "vebs".parse::<ConduitKind>().unwrap_err();
        assert!(why.ends_with("did you mean verbs?"), "{why}");
    }

    #[cfg(feature = "sim")]
    #[test]
    fn simulated_networks_have_a_profile() {
        for text in ["sim:ideal", "sim:a/b.toml", "sim:sim:"] {
            assert_eq!(text.parse::<ConduitKind>().unwrap().to_string(), text);
        }
        assert!("sim:ideal".parse::<ConduitKind>().unwrap().is_virtual());
    }

    #[cfg(not(feature = "sim"))]
    #[test]
    fn a_network_that_is_not_built_in_names_its_feature() {
        let why = "sim:ideal".parse::<ConduitKind>().unwrap_err();
        assert!(why.contains("feature `sim`"), "{why}");
    }
}
