//! Registered memory.

#![allow(unsafe_code)] // registers and maps memory

use std::{ffi::c_void, io, ptr::NonNull, sync::Arc};

use hydrant_conduit::{
    Permission,
    memory::{PAGE, Place},
};
use rustix::mm::{self, MapFlags, ProtFlags};

use super::Nic;
use crate::ffi::{self, ibv_mr};

/// A registered memory region. Dropping it deregisters the memory.
pub(crate) struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    nic: Arc<Nic>,
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for MemoryRegion {}
// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers memory. Returns an error if the memory is not mapped, or does not permit the accesses.
    ///
    /// With on-demand paging nothing is pinned, and the region follows the mapping. The NIC would accept any addresses
    /// then. So the pages are faulted in first, as pinning does.
    ///
    /// # Safety
    /// 1. and 2. as [`Conduit::register`](hydrant_conduit::Conduit::register), until the region is
    ///    dropped.
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
        let mut paged = 0;
        if nic.on_demand {
            // SAFETY: nothing is stored through this place.
            let memory = unsafe { Place::new(addr.expose_provenance() as u64, len as u64) };
            if !memory.pin(permission) {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
            paged = ffi::IBV_ACCESS_ON_DEMAND;
        }
        // SAFETY: 1. and 2. The caller's conditions 1 and 2.
        unsafe { Self::with(nic, addr, len, flags | paged) }
    }

    /// Registers the whole address space. The NIC brings pages in on demand.
    ///
    /// # Safety
    /// 1. The process bears that peers which know the key change any of its memory.
    pub(crate) unsafe fn everything(nic: &Arc<Nic>) -> io::Result<Self> {
        let flags = ffi::IBV_ACCESS_ON_DEMAND
            | ffi::IBV_ACCESS_LOCAL_WRITE
            | ffi::IBV_ACCESS_REMOTE_READ
            | ffi::IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: 1. and 2. Any memory may come and go, and be changed, by the caller's condition 1.
        unsafe { Self::with(nic, std::ptr::null_mut(), usize::MAX, flags) }
    }

    /// # Safety
    /// 1. and 2. as [`new`](Self::new).
    unsafe fn with(nic: &Arc<Nic>, addr: *mut u8, len: usize, flags: u32) -> io::Result<Self> {
        // SAFETY: the domain exists as long as the `Nic`; the kernel checks the addresses.
        let mr = unsafe { (nic.lib()).ibv_reg_mr(nic.domain, addr.cast(), len, ffi::mask(flags)) };
        let mr = NonNull::new(mr).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the region was just made.
        let made = unsafe { mr.as_ref() };
        Ok(Self {
            mr,
            lkey: made.lkey,
            rkey: made.rkey,
            nic: Arc::clone(nic),
        })
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: `ibv_reg_mr` made the region, and nothing deregistered it before.
        let outcome = super::check(unsafe { self.nic.lib().ibv_dereg_mr(self.mr.as_ptr()) });
        if let Err(cause) = outcome {
            tracing::error!(%cause, "memory could not be deregistered");
        }
    }
}

/// Memory of the crate itself, mapped and registered as long as the buffer lives. Messages are sent
/// from and received into such buffers.
pub(crate) struct NicBuffer {
    base: NonNull<u8>,
    len: usize,
    /// The registration, dropped before the memory is unmapped.
    region: Option<MemoryRegion>,
}

// SAFETY: an address and a length. Each part of the memory is handed to one user at a time.
unsafe impl Send for NicBuffer {}
// SAFETY: the methods return raw addresses and keys, and read no memory.
unsafe impl Sync for NicBuffer {}

impl NicBuffer {
    /// Maps `len` zeroed bytes that only the local NIC reads and writes.
    pub(crate) fn new(nic: &Arc<Nic>, len: usize) -> io::Result<Self> {
        Self::with(nic, len, ffi::IBV_ACCESS_LOCAL_WRITE)
    }

    /// Maps `len` zeroed bytes that peers which know the key read and write.
    pub(crate) fn open_to_peers(nic: &Arc<Nic>, len: usize) -> io::Result<Self> {
        let flags = ffi::IBV_ACCESS_LOCAL_WRITE
            | ffi::IBV_ACCESS_REMOTE_READ
            | ffi::IBV_ACCESS_REMOTE_WRITE;
        Self::with(nic, len, flags)
    }

    /// Maps `len` zeroed bytes as for peers, which the NIC pages on demand.
    pub(crate) fn paged(nic: &Arc<Nic>, len: usize) -> io::Result<Self> {
        let flags = ffi::IBV_ACCESS_ON_DEMAND
            | ffi::IBV_ACCESS_LOCAL_WRITE
            | ffi::IBV_ACCESS_REMOTE_READ
            | ffi::IBV_ACCESS_REMOTE_WRITE;
        Self::with(nic, len, flags)
    }

    fn with(nic: &Arc<Nic>, len: usize, flags: u32) -> io::Result<Self> {
        let len = len.next_multiple_of(PAGE);
        // SAFETY: a mapping at an address that the kernel chooses touches no other memory.
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
        // SAFETY: the memory is the buffer's own, and the process accesses it by raw address only.
        let region = unsafe { MemoryRegion::with(nic, base.as_ptr(), len, flags) };
        buffer.region = Some(region?);
        Ok(buffer)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.region.as_ref().map_or(0, |region| region.lkey)
    }

    /// The key by which peers name the memory.
    pub(crate) fn rkey(&self) -> u32 {
        self.region.as_ref().map_or(0, |region| region.rkey)
    }

    /// The address of a part. Panics if the part is not within the buffer.
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "the part is not within the buffer"
        );
        self.base.as_ptr().wrapping_add(offset)
    }
}

impl Drop for NicBuffer {
    fn drop(&mut self) {
        self.region = None;
        let base: *mut c_void = self.base.as_ptr().cast();
        // SAFETY: `with` mapped this length, and no part is in use when the owner drops the buffer.
        if let Err(cause) = unsafe { mm::munmap(base, self.len) } {
            tracing::error!(%cause, "a buffer was not unmapped");
        }
    }
}
