//! The address handle of a datagram's destination.

#![allow(unsafe_code)] // calls libibverbs

use std::{io, mem, ptr::NonNull, sync::Arc};

use super::Nic;
use crate::{
    address::EndpointAddress,
    ffi::{ibv_ah, ibv_ah_attr},
};

pub(crate) struct AddressHandle {
    ah: NonNull<ibv_ah>,
    nic: Arc<Nic>,
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for AddressHandle {}
// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    pub(crate) fn new(nic: &Arc<Nic>, address: &EndpointAddress) -> io::Result<Self> {
        let mut attr = route(nic, address);
        // SAFETY: the domain exists as long as the `Nic`.
        let ah = unsafe { nic.lib().ibv_create_ah(nic.domain, &mut attr) };
        Ok(Self {
            ah: NonNull::new(ah).ok_or_else(io::Error::last_os_error)?,
            nic: Arc::clone(nic),
        })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_ah {
        self.ah.as_ptr()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: `ibv_create_ah` made the handle, and nothing destroyed it before.
        unsafe { self.nic.lib().ibv_destroy_ah(self.ah.as_ptr()) };
    }
}

/// The route to a peer's port: by GID on Ethernet and to other subnets, else by LID.
pub(super) fn route(nic: &Nic, address: &EndpointAddress) -> ibv_ah_attr {
    // SAFETY: all fields are integers and unions of integers, for which zero is valid.
    let mut attr: ibv_ah_attr = unsafe { mem::zeroed() };
    attr.port_num = nic.port.port;
    attr.dlid = address.lid;
    let other_subnet = address.gid[..8] != nic.port.gid[..8];
    if nic.port.ethernet || other_subnet || address.lid == 0 {
        attr.is_global = 1;
        attr.grh.dgid.raw = address.gid;
        attr.grh.sgid_index = nic.port.gid_index;
        attr.grh.hop_limit = 64;
    }
    attr
}
