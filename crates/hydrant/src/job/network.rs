//! Which conduit a job runs on.

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;

use super::JobBuilder;
use crate::{ConduitKind, Error, Result, memory::SYSTEM};

/// What the ranks of this process attach to.
pub(super) enum Network {
    /// Shared memory, which they find by their bootstrap.
    Smp,
}

impl Network {
    /// The network of ranks that are threads of this process.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is no such network.
    pub(super) fn here(builder: &JobBuilder) -> Result<Self> {
        match &builder.settings.conduit {
            ConduitKind::Auto | ConduitKind::Smp => Ok(Self::Smp),
            ConduitKind::Sim(_) => Err(Error::Setting {
                name: "HYDRANT_CONDUIT",
                value: builder.settings.conduit.to_string(),
                expected: "auto or smp: sim is not built yet".to_owned(),
            }),
        }
    }

    /// The conduit of the rank whose bootstrap this is.
    pub(super) fn attach(
        &self,
        builder: &JobBuilder,
        bootstrap: &mut dyn Bootstrap,
    ) -> Result<Box<dyn Conduit>> {
        let conduit: Box<dyn Conduit> = match self {
            Self::Smp => Box::new(hydrant_smp::attach(bootstrap, &smp_options(builder))?),
        };
        Ok(match &builder.through {
            Some(layer) => layer(conduit),
            None => conduit,
        })
    }
}

fn smp_options(builder: &JobBuilder) -> hydrant_smp::Options {
    let settings = &builder.settings;
    hydrant_smp::Options {
        segment: SYSTEM + settings.heap,
        slots: settings.ring_slots,
        payload: settings.ring_payload,
        extents: settings.extents,
        foreign: settings.foreign,
        timeout: settings.join_timeout,
    }
}
