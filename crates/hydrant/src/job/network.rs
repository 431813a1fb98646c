//! Which conduit a job runs on.

use std::sync::Arc;

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;
use hydrant_sim::{Profile, World};

use super::JobBuilder;
use crate::{ConduitKind, Error, Rank, Result, memory::SYSTEM};

/// What the ranks of this process attach to.
pub(super) enum Network {
    /// Shared memory, which they find by their bootstrap.
    Smp,
    /// RDMA NICs, likewise.
    Verbs,
    /// A machine in virtual time, inside this process.
    Sim(Arc<World>),
}

impl Network {
    /// The network of `ranks` ranks that are threads of this process.
    ///
    /// # Errors
    /// [`Error::Setting`] for a profile that is not there or not right.
    pub(super) fn here(builder: &JobBuilder, ranks: u32) -> Result<Self> {
        let settings = &builder.settings;
        let profile = match &settings.conduit {
            ConduitKind::Auto | ConduitKind::Smp => return Ok(Self::Smp),
            ConduitKind::Verbs => return Ok(Self::Verbs),
            ConduitKind::Sim(profile) => profile,
        };
        let profile = Profile::named(profile).map_err(|cause| Error::Setting {
            name: "HYDRANT_CONDUIT",
            value: settings.conduit.to_string(),
            expected: format!("a profile ({cause})"),
        })?;
        let options = hydrant_sim::Options {
            segment: SYSTEM + settings.heap,
            seed: settings.sim_seed,
            ..hydrant_sim::Options::default()
        };
        Ok(Self::Sim(World::new(profile, ranks, options)?))
    }

    /// The conduit of the rank whose bootstrap this is.
    pub(super) fn attach(
        &self,
        builder: &JobBuilder,
        bootstrap: &mut dyn Bootstrap,
    ) -> Result<Box<dyn Conduit>> {
        let conduit: Box<dyn Conduit> = match self {
            Self::Smp => Box::new(hydrant_smp::attach(bootstrap, &smp_options(builder))?),
            Self::Verbs => Box::new(hydrant_verbs::attach(bootstrap, &verbs_options(builder))?),
            Self::Sim(world) => Box::new(world.conduit(Rank(bootstrap.rank()))),
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

fn verbs_options(builder: &JobBuilder) -> hydrant_verbs::Options {
    let settings = &builder.settings;
    hydrant_verbs::Options {
        segment: SYSTEM + settings.heap,
        devices: settings.verbs.devices.clone(),
        gid_index: settings.verbs.gid_index,
        ack_timeout: settings.verbs.ack_timeout,
        peer_timeout: (!settings.peer_timeout.is_zero()).then_some(settings.peer_timeout),
        ..hydrant_verbs::Options::default()
    }
}
