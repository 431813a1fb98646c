//! The cost of registering memory on a device, measured on scratch memory.

#![allow(unsafe_code)] // registers memory

use std::{sync::Arc, time::Instant};

use hydrant_conduit::{Cost, Error, Permission, measure};

use crate::{
    VerbsOptions, device,
    memlock::memlock_error,
    nic::{MemoryRegion, Nic},
};

/// Returns the costs of registering and deregistering on the first port that a rank here would use.
///
/// # Errors
/// [`Error::Unreachable`] if there is no port; [`Error::System`].
pub fn probe(options: &VerbsOptions) -> Result<[Cost; 2], Error> {
    let ports = device::ports(&options.devices, options.gid_index).map_err(Error::Unreachable)?;
    let opened = Nic::open(ports[0].clone());
    costs(&opened.map_err(|cause| Error::system("opening a device", cause))?)
}

/// Measures the costs of registering and deregistering.
pub(crate) fn costs(nic: &Arc<Nic>) -> Result<[Cost; 2], Error> {
    measure::registration_costs(|addr, len| {
        let since = Instant::now();
        // SAFETY: nobody is told the key, so nobody accesses the memory.
        let region = unsafe { MemoryRegion::new(nic, addr, len, Permission::ReadWrite) };
        let region = region.map_err(|cause| {
            memlock_error(&cause).unwrap_or_else(|| Error::system("registering memory", cause))
        })?;
        let registered = since.elapsed();
        drop(region);
        Ok([registered, since.elapsed() - registered])
    })
}
