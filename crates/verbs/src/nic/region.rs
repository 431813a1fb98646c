//! Registered memory.

#![allow(unsafe_code)] // registers memory and maps some

use std::{ffi::c_void, io, ptr::NonNull, sync::Arc};

use hydrant_conduit::{Permission, memory::PAGE};
use rustix::mm::{self, MapFlags, ProtFlags};

use super::Nic;
use crate::ffi::{self, ibv_mr};

/// A registration; dropping it deregisters.
pub(crate) struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    nic: Arc<Nic>,
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers memory, which need not be there: that is an error.
    ///
    /// # Safety
    /// As [`Conduit::register`](hydrant_conduit::Conduit::register).
    pub(crate) unsafe fn new(
        nic: &Arc<Nic>,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> io::Result<Self> {
        let flags = match permission {
            Permission::Read => ffi::IBV_ACCESS_REMOTE_READ,
            Permission::ReadWrite => {
                let atomic = if nic.limits.atomics.is_some() {
                    ffi::IBV_ACCESS_REMOTE_ATOMIC
                } else {
                    0
                };
                ffi::IBV_ACCESS_LOCAL_WRITE
                    | ffi::IBV_ACCESS_REMOTE_READ
                    | ffi::IBV_ACCESS_REMOTE_WRITE
                    | atomic
            }
        };
        // SAFETY: the caller's promise; the kernel checks the addresses.
        unsafe { Self::with(nic, addr, len, flags) }
    }

    /// Registers the whole address space, pages to be brought in by the NIC.
    ///
    /// # Safety
    /// Peers that are told the key can change any memory of this process.
    pub(crate) unsafe fn everything(nic: &Arc<Nic>) -> io::Result<Self> {
        let flags = ffi::IBV_ACCESS_ON_DEMAND
            | ffi::IBV_ACCESS_LOCAL_WRITE
            | ffi::IBV_ACCESS_REMOTE_READ
            | ffi::IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: the caller's promise.
        unsafe { Self::with(nic, std::ptr::null_mut(), usize::MAX, flags) }
    }

    /// # Safety
    /// As [`new`](Self::new).
    unsafe fn with(nic: &Arc<Nic>, addr: *mut u8, len: usize, flags: u32) -> io::Result<Self> {
        // SAFETY: the domain is there as long as the `Nic`; the kernel checks the addresses.
        let mr = unsafe { (nic.lib()).ibv_reg_mr(nic.domain, addr.cast(), len, ffi::mask(flags)) };
        let mr = NonNull::new(mr).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: just made.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        Ok(Self {
            mr,
            lkey,
            rkey,
            nic: Arc::clone(nic),
        })
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: made by `ibv_reg_mr`, and not deregistered before.
        let outcome = super::check(unsafe { self.nic.lib().ibv_dereg_mr(self.mr.as_ptr()) });
        if let Err(cause) = outcome {
            tracing::error!(%cause, "memory could not be deregistered");
        }
    }
}

/// Memory of this crate's own, mapped and registered as long as it lives: what messages are
/// sent from and received into.
pub(crate) struct NicBuffer {
    base: NonNull<u8>,
    len: usize,
    /// Dropped before the memory goes.
    region: Option<MemoryRegion>,
}

// SAFETY: an address and a length; what lies there is handed out part by part, each to one user.
unsafe impl Send for NicBuffer {}
// SAFETY: as above.
unsafe impl Sync for NicBuffer {}

impl NicBuffer {
    /// So many zeroed bytes, which only the own NIC reads and writes.
    pub(crate) fn new(nic: &Arc<Nic>, len: usize) -> io::Result<Self> {
        Self::with(nic, len, ffi::IBV_ACCESS_LOCAL_WRITE)
    }

    /// So many zeroed bytes, which peers that are told the key read and write.
    pub(crate) fn open_to_peers(nic: &Arc<Nic>, len: usize) -> io::Result<Self> {
        let flags = ffi::IBV_ACCESS_LOCAL_WRITE
            | ffi::IBV_ACCESS_REMOTE_READ
            | ffi::IBV_ACCESS_REMOTE_WRITE;
        Self::with(nic, len, flags)
    }

    fn with(nic: &Arc<Nic>, len: usize, flags: u32) -> io::Result<Self> {
        let len = len.next_multiple_of(PAGE);
        // SAFETY: a mapping where the kernel likes touches no other memory.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut buffer = Self {
            base,
            len,
            region: None,
        };
        // SAFETY: the memory is nobody else's, and nothing but NICs reads or writes it by more
        // than its address.
        let region = unsafe { MemoryRegion::with(nic, base.as_ptr(), len, flags) };
        buffer.region = Some(region?);
        Ok(buffer)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.region.as_ref().map_or(0, |region| region.lkey)
    }

    /// The key by which peers name it.
    pub(crate) fn rkey(&self) -> u32 {
        self.region.as_ref().map_or(0, |region| region.rkey)
    }

    /// The address of a part.
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "outside of a buffer"
        );
        self.base.as_ptr().wrapping_add(offset)
    }
}

impl Drop for NicBuffer {
    fn drop(&mut self) {
        self.region = None;
        let base: *mut c_void = self.base.as_ptr().cast();
        // SAFETY: mapped by `new` with this length; no part is in use when its owner goes.
        if let Err(cause) = unsafe { mm::munmap(base, self.len) } {
            tracing::error!(%cause, "a buffer was not unmapped");
        }
    }
}
