//! Chooses the conduit of a job.

use std::sync::Arc;

use hydrant_conduit::Conduit;
use hydrant_launch::Bootstrap;
use hydrant_sim::{Profile, World};

use super::{JobBuilder, hosts};
use crate::{ConduitKind, Error, Rank, Result, segment::SYSTEM};

/// The network to which the ranks of this process attach.
pub(super) enum JobNetwork {
    /// The fastest network that reaches every rank, found through their bootstrap.
    Auto,
    /// Shared memory.
    Smp,
    /// Shared memory and simulated NICs.
    Pinned,
    /// RDMA NICs.
    Verbs,
    /// A simulated machine in virtual time, inside this process.
    Sim(Arc<World>),
}

impl JobNetwork {
    /// Returns the network of ranks that are processes.
    pub(super) fn of_processes(builder: &JobBuilder) -> Self {
        match builder.settings.conduit {
            ConduitKind::Smp => Self::Smp,
            ConduitKind::Verbs => Self::Verbs,
            ConduitKind::Auto | ConduitKind::Sim(_) => Self::Auto,
            ConduitKind::Pinned => Self::Pinned,
        }
    }

    /// Returns the network of `ranks` ranks that are threads of this process.
    ///
    /// # Errors
    /// [`Error::Setting`] for a profile that does not exist or is invalid.
    pub(super) fn here(builder: &JobBuilder, ranks: u32) -> Result<Self> {
        let settings = &builder.settings;
        let ConduitKind::Sim(profile) = &settings.conduit else {
            return Ok(Self::of_processes(builder));
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

    /// Attaches the rank of this bootstrap. Returns its conduit.
    pub(super) fn attach(
        &self,
        builder: &JobBuilder,
        bootstrap: &mut dyn Bootstrap,
    ) -> Result<Box<dyn Conduit>> {
        let conduit: Box<dyn Conduit> = match self {
            Self::Auto => hosts::attach(builder, bootstrap)?,
            Self::Smp => smp(builder, bootstrap)?,
            Self::Verbs => verbs(builder, bootstrap, segment(builder))?,
            Self::Pinned => pinned(builder, bootstrap, segment(builder))?,
            Self::Sim(world) => Box::new(world.conduit(Rank(bootstrap.rank()))),
        };
        Ok(match &builder.through {
            Some(layer) => layer(conduit),
            None => conduit,
        })
    }
}

/// Attaches the ranks of `bootstrap`, all of one host, by shared memory.
pub(super) fn smp(builder: &JobBuilder, bootstrap: &mut dyn Bootstrap) -> Result<Box<dyn Conduit>> {
    let options = smp_options(builder, segment(builder), hydrant_smp::DEFAULT_EXTENTS);
    Ok(Box::new(hydrant_smp::attach(bootstrap, &options)?))
}

/// Attaches the ranks of `bootstrap` by shared memory and simulated NICs, with segments of
/// `segment` bytes.
pub(super) fn pinned(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
    segment: usize,
) -> Result<Box<dyn Conduit>> {
    let options = smp_options(builder, segment, hydrant_pin::MOST_EXTENTS);
    Ok(Box::new(hydrant_pin::attach(bootstrap, &options)?))
}

/// Attaches the ranks of `bootstrap` by RDMA NICs, with segments of `segment` bytes.
pub(super) fn verbs(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
    segment: usize,
) -> Result<Box<dyn Conduit>> {
    let options = verbs_options(builder, segment);
    Ok(Box::new(hydrant_verbs::attach(bootstrap, &options)?))
}

/// Returns the bytes of the segment of a rank.
pub(super) fn segment(builder: &JobBuilder) -> usize {
    SYSTEM + builder.settings.heap
}

fn smp_options(builder: &JobBuilder, segment: usize, extents: usize) -> hydrant_smp::Options {
    let settings = &builder.settings;
    hydrant_smp::Options {
        segment,
        slots: settings.ring_slots,
        payload: settings.ring_payload,
        extents: settings.extents.unwrap_or(extents),
        foreign: settings.foreign,
        timeout: settings.join_timeout,
    }
}

fn verbs_options(builder: &JobBuilder, segment: usize) -> hydrant_verbs::Options {
    let settings = &builder.settings;
    let usual = hydrant_verbs::Options::default();
    hydrant_verbs::Options {
        segment,
        extents: settings.extents.unwrap_or(usual.extents),
        devices: settings.verbs.devices.clone(),
        gid_index: settings.verbs.gid_index,
        ack_timeout: settings.verbs.ack_timeout,
        window: settings.verbs.window,
        peer_timeout: (!settings.peer_timeout.is_zero()).then_some(settings.peer_timeout),
        ..usual
    }
}
