//! The networks that join the ranks.

use std::{fmt, str::FromStr};

/// The conduit that joins the ranks of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConduitKind {
    /// The fastest network that reaches every rank.
    #[default]
    Auto,
    /// Shared memory, between ranks of one host.
    Smp,
    /// Shared memory between ranks of one host, with simulated NICs: messages go by shared memory.
    /// Peers reach memory only where it is registered, and registration really pins it.
    Pinned,
    /// RDMA NICs between any ranks, those of one host included.
    Verbs,
    /// A network in virtual time, with this profile: a name or a file. The ranks are threads of one
    /// process.
    Sim(String),
}

impl ConduitKind {
    /// Returns whether time is virtual: computing and sending advance it, not the clock.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Self::Sim(_))
    }
}

/// Returns the ports of RDMA devices that a job could use here, for display.
///
/// # Errors
/// A sentence with the reason why there is none.
pub fn rdma_ports(settings: &super::VerbsSettings) -> Result<Vec<String>, String> {
    let ports = hydrant_verbs::ports(&settings.devices, settings.gid_index)?;
    Ok(ports.iter().map(ToString::to_string).collect())
}

/// The possible values, for the error of a bad one.
pub(super) const EXPECTED: &str =
    "auto, smp, smp+pin, verbs or sim:PROFILE, such as sim:myrinet-gm";

impl FromStr for ConduitKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "smp" => Ok(Self::Smp),
            "smp+pin" => Ok(Self::Pinned),
            "verbs" => Ok(Self::Verbs),
            _ => match text.strip_prefix("sim:") {
                Some(profile) if !profile.is_empty() => Ok(Self::Sim(profile.to_owned())),
                _ => Err(EXPECTED.to_owned()),
            },
        }
    }
}

impl fmt::Display for ConduitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Smp => f.pad("smp"),
            Self::Pinned => f.pad("smp+pin"),
            Self::Verbs => f.pad("verbs"),
            Self::Sim(profile) => f.pad(&format!("sim:{profile}")),
        }
    }
}

/// The network that joins ranks of different hosts, in jobs on several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InterNodeKind {
    /// RDMA NICs.
    #[default]
    Verbs,
    /// Simulated NICs, between pretended hosts.
    Pinned,
}

impl FromStr for InterNodeKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "verbs" => Ok(Self::Verbs),
            "smp+pin" => Ok(Self::Pinned),
            _ => Err("verbs or smp+pin".to_owned()),
        }
    }
}

impl fmt::Display for InterNodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Verbs => "verbs",
            Self::Pinned => "smp+pin",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conduits_are_parsed_and_formatted() {
        for text in [
            "auto",
            "smp",
            "smp+pin",
            "verbs",
            "sim:ideal",
            "sim:a/b.toml",
            "sim:sim:",
        ] {
            assert_eq!(text.parse::<ConduitKind>().unwrap().to_string(), text);
        }
        assert!("sim:ideal".parse::<ConduitKind>().unwrap().is_virtual());
        for bad in [
            "", "sim", "sim:", "SMP", "smp+", "pin", "tcp:host", "verbs ",
        ] {
            let expected = bad.parse::<ConduitKind>().unwrap_err();
            assert!(expected.contains("sim:PROFILE"), "{bad}: {expected}");
        }
    }
}
