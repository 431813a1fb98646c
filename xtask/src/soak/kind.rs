//! The conduits that are tried, and the strategies for each.

use clap::ValueEnum;

use crate::tool::Tool;

/// A conduit, or two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SoakedConduit {
    /// Shared memory.
    Smp,
    /// Shared memory behind played NICs.
    #[value(name = "smp+pin")]
    Pinned,
    /// Two pretended hosts.
    Mixed,
    /// A network in virtual time.
    Sim,
    /// TCP by libfabric, on one host.
    Ofi,
    /// The same between two pretended hosts.
    #[value(name = "mixed+ofi")]
    MixedOfi,
    /// Soft-RoCE, in a virtual machine.
    Verbs,
}

/// The strategies of every NIC. `paging` is for NICs with on-demand paging, which are simulated.
const STRATEGIES: [&str; 12] = [
    "auto",
    "firehose",
    "bounce",
    "rendezvous-unpin",
    "rendezvous-no-unpin",
    "on-demand",
    "on-demand-leave-pinned",
    "pipeline",
    "pipeline-leave-pinned",
    "pin-down",
    "pin-everything",
    "foresight",
];
const PAGING: &str = "paging";

/// The machines that are simulated.
pub(super) const PROFILES: [&str; 4] = ["ideal", "myrinet-gm", "clan-via", "connectx"];

impl SoakedConduit {
    pub(super) fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    /// The conduits that this machine can try.
    pub(super) fn without_machine() -> Vec<Self> {
        let has_libfabric = Tool::Libfabric.is_here();
        Self::all()
            .into_iter()
            .filter(|kind| match kind {
                Self::Ofi | Self::MixedOfi => has_libfabric,
                kind => *kind != Self::Verbs,
            })
            .collect()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Smp => "smp",
            Self::Pinned => "smp+pin",
            Self::Mixed => "mixed",
            Self::Sim => "sim",
            Self::Ofi => "ofi",
            Self::MixedOfi => "mixed+ofi",
            Self::Verbs => "verbs",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|kind| kind.name() == name)
    }

    /// The variables that make a job use it. The seed chooses where there are several routes.
    pub(super) fn settings(self, seed: u64) -> Vec<(&'static str, String)> {
        match self {
            Self::Smp => {
                // The ranks' own buffers are reached by two routes.
                let foreign = ["process-vm", "messages"][seed as usize % 2];
                vec![
                    ("HYDRANT_CONDUIT", "smp".to_owned()),
                    ("HYDRANT_SMP_FOREIGN", foreign.to_owned()),
                ]
            }
            Self::Pinned | Self::Ofi | Self::Verbs => {
                vec![("HYDRANT_CONDUIT", self.name().to_owned())]
            }
            Self::Mixed | Self::MixedOfi => {
                let between = if self == Self::Mixed {
                    Self::Pinned
                } else {
                    Self::Ofi
                };
                vec![
                    ("HYDRANT_CONDUIT", "auto".to_owned()),
                    ("HYDRANT_PRETEND_HOSTS", "2".to_owned()),
                    ("HYDRANT_INTER_NODE", between.name().to_owned()),
                ]
            }
            Self::Sim => {
                let profile = PROFILES[seed as usize / self.strategies().len() % PROFILES.len()];
                vec![("HYDRANT_CONDUIT", format!("sim:{profile}"))]
            }
        }
    }

    /// The strategies to try in turn.
    pub(super) fn strategies(self) -> Vec<&'static str> {
        match self {
            // Shared memory registers nothing.
            Self::Smp => vec!["firehose"],
            Self::Sim => STRATEGIES.into_iter().chain([PAGING]).collect(),
            _ => STRATEGIES.to_vec(),
        }
    }
}
