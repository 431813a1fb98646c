//! Which network joins the ranks.

use std::{fmt, str::FromStr};

/// Which conduit joins the ranks of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConduitKind {
    /// The fastest that reaches every rank.
    #[default]
    Auto,
    /// Shared memory, between ranks of one host.
    Smp,
    /// Shared memory for messages, between ranks of one host that reach each other's memory as
    /// by a NIC: only where it is registered, which really pins it.
    Pinned,
    /// RDMA NICs, between any ranks, those of one host included.
    Verbs,
    /// A network in virtual time, of this profile: a name or a file. The ranks are threads of
    /// one process.
    Sim(String),
}

impl ConduitKind {
    /// Whether time passes by what is computed and sent, not by the clock on the wall.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Self::Sim(_))
    }
}

/// The ports of RDMA devices that a job here could use, for people.
///
/// # Errors
/// A sentence that says why there is none.
pub fn rdma_ports(settings: &super::VerbsSettings) -> Result<Vec<String>, String> {
    let ports = hydrant_verbs::ports(&settings.devices, settings.gid_index)?;
    Ok(ports.iter().map(ToString::to_string).collect())
}

/// What can be said, for who said something else.
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

/// Which network joins ranks of different hosts, where several are to be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InterNodeKind {
    /// RDMA NICs.
    #[default]
    Verbs,
    /// Played NICs, between hosts that are pretended.
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
    fn conduits_are_read_and_written() {
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
