//! Chooses the conduit of a job.

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;

#[cfg(feature = "sim")]
use super::simulated;
use super::{JobBuilder, conduits, hosts, joining};
use crate::{ConduitKind, Result};

/// The network to which the ranks of this process attach.
pub(super) enum JobNetwork {
    /// The fastest network that reaches every rank, found through their bootstrap.
    Auto,
    /// Shared memory.
    Smp,
    /// Shared memory and played NICs.
    Pinned,
    /// RDMA NICs.
    Verbs,
    /// A provider of libfabric.
    Ofi,
    /// A simulated machine in virtual time, inside this process.
    #[cfg(feature = "sim")]
    Sim(simulated::SimulatedNetwork),
}

impl JobNetwork {
    /// Returns the network of ranks that are processes.
    pub(super) fn of_processes(builder: &JobBuilder) -> Self {
        match builder.settings.conduit {
            ConduitKind::Auto => Self::Auto,
            ConduitKind::Smp => Self::Smp,
            ConduitKind::Verbs => Self::Verbs,
            ConduitKind::Ofi => Self::Ofi,
            ConduitKind::Pinned => Self::Pinned,
            #[cfg(feature = "sim")]
            ConduitKind::Sim(_) => Self::Auto,
        }
    }

    /// Returns the network of `ranks` ranks that are threads of this process.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) for a profile that does not exist or is invalid.
    #[cfg_attr(
        not(feature = "sim"),
        expect(unused_variables, reason = "no world is made")
    )]
    pub(super) fn here(builder: &JobBuilder, ranks: u32) -> Result<Self> {
        #[cfg(feature = "sim")]
        if let ConduitKind::Sim(profile) = &builder.settings.conduit {
            return simulated::SimulatedNetwork::new(&builder.settings, profile, ranks)
                .map(Self::Sim);
        }
        Ok(Self::of_processes(builder))
    }

    /// Attaches the rank of this bootstrap. Returns its conduit.
    pub(super) fn attach(
        &self,
        builder: &JobBuilder,
        bootstrap: &mut dyn Bootstrap,
    ) -> Result<Box<dyn Conduit>> {
        if !builder.settings.conduit.is_virtual() {
            joining::compare(builder, bootstrap)?;
        }
        let segment = conduits::segment(builder);
        let conduit: Box<dyn Conduit> = match self {
            Self::Auto => hosts::attach(builder, bootstrap)?,
            Self::Smp => conduits::smp(builder, bootstrap)?,
            Self::Verbs => conduits::verbs(builder, bootstrap, segment)?,
            Self::Ofi => conduits::ofi(builder, bootstrap, segment)?,
            Self::Pinned => conduits::pinned(builder, bootstrap, segment)?,
            #[cfg(feature = "sim")]
            Self::Sim(machine) => machine.attach(bootstrap),
        };
        Ok(match &builder.through {
            Some(layer) => layer(conduit),
            None => conduit,
        })
    }
}
