//! What registering memory costs on a device, measured on a scratch area.

#![allow(unsafe_code)] // registers memory

use std::{sync::Arc, time::Instant};

use hydrant_conduit::{Cost, Error, Permission, measure};

use crate::{
    Options, device,
    memlock::memlock_error,
    nic::{MemoryRegion, Nic},
};

/// What registering and deregistering cost on the first port that a rank here would use.
///
/// # Errors
/// [`Error::Unreachable`] if there is none; [`Error::System`].
pub fn probe(options: &Options) -> Result<[Cost; 2], Error> {
    let ports = device::ports(&options.devices, options.gid_index).map_err(Error::Unreachable)?;
    let opened = Nic::open(ports[0].clone());
    costs(&opened.map_err(|cause| Error::system("opening a device", cause))?)
}

/// What registering and deregistering cost.
pub(crate) fn costs(nic: &Arc<Nic>) -> Result<[Cost; 2], Error> {
    measure::registration_costs(|addr, len| {
        let since = Instant::now();
        // SAFETY: nobody is told the key.
        let region = unsafe { MemoryRegion::new(nic, addr, len, Permission::ReadWrite) };
        let region = region.map_err(|cause| {
            memlock_error(&cause).unwrap_or_else(|| Error::system("registering memory", cause))
        })?;
        let registered = since.elapsed();
        drop(region);
        Ok([registered, since.elapsed() - registered])
    })
}
