//! The cost of registering memory on a device, measured on scratch memory.

#![allow(unsafe_code)] // registers memory

use std::{sync::Arc, time::Instant};

use hydrant_conduit::{Cost, Error, Permission, measure};

use crate::{
    VerbsOptions, device,
    memlock::memlock_error,
    nic::{MemoryRegion, Nic},
    paging,
};

/// Returns the costs of registering and deregistering on the first port that a rank here would use.
///
/// # Errors
/// [`Error::Unreachable`] if there is no port; [`Error::System`].
pub fn probe(options: &VerbsOptions) -> Result<[Cost; 2], Error> {
    let ports = device::ports(&options.devices, options.gid_index).map_err(Error::Unreachable)?;
    let opened = paging::open(ports[0].clone(), options.on_demand);
    let (nic, _) = opened.map_err(|cause| Error::system("opening a device", cause))?;
    costs(&nic)
}

/// Returns the first port that a rank here would use, if it pages registered memory on demand.
///
/// # Errors
/// A sentence with the reason why it does not.
pub fn on_demand_paging(options: &VerbsOptions) -> Result<String, String> {
    let ports = device::ports(&options.devices, options.gid_index)?;
    let name = ports[0].name();
    match paging::open(ports[0].clone(), true) {
        Err(cause) => Err(format!("{name} cannot be opened: {cause}")),
        Ok((_, Some(why))) => Err(format!("{name}: {why}")),
        Ok((_, None)) => Ok(name),
    }
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
