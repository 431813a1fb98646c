//! The conduits that this crate was built with, and an error that names the feature for each other
//! one. Only this file and `simulated.rs` attach networks.

use hydrant_conduit::{Conduit, Error as ConduitError};
use hydrant_launch::Bootstrap;

use super::JobBuilder;
#[cfg(feature = "verbs")]
use crate::settings::PagingChoice;
use crate::{Error, Result, segment::SYSTEM, settings::built_without};

/// Attaches the ranks of `bootstrap`, all of one host, by shared memory.
pub(super) fn smp(builder: &JobBuilder, bootstrap: &mut dyn Bootstrap) -> Result<Box<dyn Conduit>> {
    let options = smp_options(builder, segment(builder), hydrant_smp::DEFAULT_EXTENTS);
    Ok(Box::new(hydrant_smp::attach(bootstrap, &options)?))
}

/// Attaches the ranks of `bootstrap` by shared memory and played NICs, with segments of
/// `segment` bytes.
#[cfg(feature = "pin")]
pub(super) fn pinned(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
    segment: usize,
) -> Result<Box<dyn Conduit>> {
    let options = smp_options(builder, segment, hydrant_pin::MOST_EXTENTS);
    Ok(Box::new(hydrant_pin::attach(bootstrap, &options)?))
}

/// Attaches the ranks of `bootstrap` by RDMA NICs, with segments of `segment` bytes.
#[cfg(feature = "verbs")]
pub(super) fn verbs(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
    segment: usize,
) -> Result<Box<dyn Conduit>> {
    let choice = crate::settings::paging_choice(&builder.settings);
    let options = hydrant_verbs::VerbsOptions {
        on_demand: !matches!(choice, PagingChoice::Never(_)),
        ..verbs_options(builder, segment)
    };
    let verbs = hydrant_verbs::attach(bootstrap, &options)?;
    let pages = (verbs.caps().registration).is_some_and(|caps| caps.follows_mapping);
    if choice == PagingChoice::Required && !pages {
        let why = hydrant_verbs::on_demand_paging(&options).err();
        let why = why.unwrap_or_else(|| format!("{} has no on-demand paging", verbs.port()));
        return Err(Error::Setting {
            name: "HYDRANT_ODP",
            value: builder.settings.odp.to_string(),
            expected: format!("`auto` or `off`: {why}"),
        });
    }
    Ok(Box::new(verbs))
}

/// Attaches the ranks of `bootstrap` by libfabric, with segments of `segment` bytes.
#[cfg(feature = "ofi")]
pub(super) fn ofi(
    builder: &JobBuilder,
    bootstrap: &mut dyn Bootstrap,
    segment: usize,
) -> Result<Box<dyn Conduit>> {
    let options = ofi_options(builder, segment);
    Ok(Box::new(hydrant_ofi::attach(bootstrap, &options)?))
}

/// Returns true if this rank has a port for RDMA.
#[cfg(feature = "verbs")]
pub(super) fn has_rdma(builder: &JobBuilder) -> bool {
    let settings = &builder.settings;
    hydrant_verbs::ports(&settings.verbs_device, settings.verbs_gid).is_ok()
}

/// Returns false, because RDMA is not built in.
#[cfg(not(feature = "verbs"))]
pub(super) fn has_rdma(_: &JobBuilder) -> bool {
    false
}

/// Joins the conduit within each host with the one between them.
#[cfg(any(feature = "verbs", feature = "ofi", feature = "pin"))]
pub(super) fn joined(
    bootstrap: &mut dyn Bootstrap,
    hosts: &[u32],
    name: &'static str,
    [intra, inter]: [Box<dyn Conduit>; 2],
) -> Result<Box<dyn Conduit>> {
    let mixed = hydrant_mixed::Mixed::join(bootstrap, hosts, name, intra, inter)?;
    Ok(Box::new(mixed))
}

/// Refuses played NICs, which are not built in.
#[cfg(not(feature = "pin"))]
pub(super) fn pinned(_: &JobBuilder, _: &mut dyn Bootstrap, _: usize) -> Result<Box<dyn Conduit>> {
    Err(absent("smp+pin", "pin"))
}

/// Refuses RDMA, which is not built in.
#[cfg(not(feature = "verbs"))]
pub(super) fn verbs(_: &JobBuilder, _: &mut dyn Bootstrap, _: usize) -> Result<Box<dyn Conduit>> {
    Err(absent("verbs", "verbs"))
}

/// Refuses libfabric, which is not built in.
#[cfg(not(feature = "ofi"))]
pub(super) fn ofi(_: &JobBuilder, _: &mut dyn Bootstrap, _: usize) -> Result<Box<dyn Conduit>> {
    Err(absent("ofi", "ofi"))
}

/// Refuses several hosts, because no network between them is built in.
#[cfg(not(any(feature = "verbs", feature = "ofi", feature = "pin")))]
pub(super) fn joined(
    _: &mut dyn Bootstrap,
    _: &[u32],
    name: &'static str,
    _: [Box<dyn Conduit>; 2],
) -> Result<Box<dyn Conduit>> {
    Err(absent(name, "ofi"))
}

/// Returns the bytes of the segment of a rank.
pub(super) fn segment(builder: &JobBuilder) -> usize {
    SYSTEM + builder.settings.heap
}

/// The error of a conduit that is not built in.
#[cfg_attr(
    all(feature = "verbs", feature = "ofi", feature = "pin"),
    expect(dead_code, reason = "every conduit is built in")
)]
fn absent(conduit: &str, feature: &str) -> Error {
    let cause = format!("{conduit} needs {}", built_without(feature));
    Error::Conduit(ConduitError::Unreachable(cause))
}

fn smp_options(builder: &JobBuilder, segment: usize, extents: usize) -> hydrant_smp::SmpOptions {
    let settings = &builder.settings;
    hydrant_smp::SmpOptions {
        segment,
        slots: settings.ring_slots,
        payload: settings.ring_payload,
        extents: settings.extents.unwrap_or(extents),
        foreign: settings.smp_foreign,
        timeout: settings.join_timeout,
    }
}

#[cfg(feature = "verbs")]
fn verbs_options(builder: &JobBuilder, segment: usize) -> hydrant_verbs::VerbsOptions {
    let settings = &builder.settings;
    let usual = hydrant_verbs::VerbsOptions::default();
    hydrant_verbs::VerbsOptions {
        segment,
        extents: settings.extents.unwrap_or(usual.extents),
        devices: settings.verbs_device.clone(),
        gid_index: settings.verbs_gid,
        ack_timeout: settings.verbs_ack_timeout,
        window: settings.verbs_window,
        peer_timeout: (!settings.peer_timeout.is_zero()).then_some(settings.peer_timeout),
        ..usual
    }
}

#[cfg(feature = "ofi")]
fn ofi_options(builder: &JobBuilder, segment: usize) -> hydrant_ofi::OfiOptions {
    let settings = &builder.settings;
    let usual = hydrant_ofi::OfiOptions::default();
    hydrant_ofi::OfiOptions {
        segment,
        extents: settings.extents.unwrap_or(usual.extents),
        provider: settings.ofi_provider.clone(),
        interface: settings.ofi_interface.clone(),
        window: settings.ofi_window,
        peer_timeout: (!settings.peer_timeout.is_zero()).then_some(settings.peer_timeout),
        join_timeout: settings.join_timeout,
        ..usual
    }
}
