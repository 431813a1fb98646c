//! Registered memory.

#![allow(unsafe_code)] // calls foreign functions

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use hydrant_conduit::Permission;

use super::{
    Fabric,
    calls::{self, Object},
};
use crate::ffi;

/// A registration, ended on drop.
pub(crate) struct FabricRegion {
    object: Object<ffi::fid_mr>,
}

/// The memory to register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionRequest {
    pub(crate) addr: *mut u8,
    pub(crate) len: usize,
    pub(crate) permission: Permission,
    /// The key, where the provider does not choose it.
    pub(crate) key: u64,
}

impl FabricRegion {
    /// Returns the key for peers.
    pub(crate) fn key(&self) -> u64 {
        self.object.get().key
    }

    /// Returns the descriptor for local accesses.
    pub(crate) fn descriptor(&self) -> *mut c_void {
        self.object.get().mem_desc
    }
}

impl Fabric {
    /// Registers memory.
    ///
    /// # Safety
    /// The memory bears the accesses of everybody who knows the key, until the region is dropped.
    ///
    /// # Errors
    /// The error number of libfabric, positive.
    pub(crate) unsafe fn register(&self, request: RegionRequest) -> Result<FabricRegion, c_int> {
        let RegionRequest {
            addr,
            len,
            permission,
            key,
        } = request;
        let reads = ffi::FI_READ | ffi::FI_REMOTE_READ | ffi::FI_SEND;
        let writes = ffi::FI_WRITE | ffi::FI_REMOTE_WRITE | ffi::FI_RECV;
        let access = match permission {
            Permission::Read => ffi::FI_REMOTE_READ | ffi::FI_SEND | ffi::FI_WRITE,
            Permission::ReadWrite => reads | writes,
        };
        let domain = self.domain.as_fid();
        let opened = Object::open(|into| {
            // SAFETY: the domain is open, and `into` has room for the object. The caller's condition.
            unsafe {
                (self.calls.register)(
                    domain,
                    addr.cast_const().cast(),
                    len,
                    u64::from(access),
                    0,
                    key,
                    0,
                    into,
                    ptr::null_mut(),
                )
            }
        });
        let object = opened.map_err(|code| -code)?;
        if self.offer.mr_mode() & ffi::FI_MR_ENDPOINT != 0 {
            let bound = calls::bind(&object, &self.endpoint, 0);
            let enabled = bound.and_then(|()| calls::enable(&object));
            enabled.map_err(|code| -code)?;
        }
        Ok(FabricRegion { object })
    }
}
