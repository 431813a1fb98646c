//! The shared receive queue: buffers that whichever peer's message comes first takes.

#![allow(unsafe_code)] // asks libibverbs

use std::{
    io, mem,
    ptr::{self, NonNull},
    sync::Arc,
};

use super::{Nic, check};
use crate::ffi::{self, ibv_recv_wr, ibv_sge, ibv_srq};

pub(crate) struct SharedQueue {
    srq: NonNull<ibv_srq>,
    nic: Arc<Nic>,
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for SharedQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    pub(crate) fn new(nic: &Arc<Nic>, depth: u32) -> io::Result<Self> {
        // SAFETY: integers and a pointer.
        let mut attr: ffi::ibv_srq_init_attr = unsafe { mem::zeroed() };
        attr.attr.max_wr = depth;
        attr.attr.max_sge = 1;
        // SAFETY: the domain exists.
        let srq = unsafe { nic.lib().ibv_create_srq(nic.domain, &mut attr) };
        Ok(Self {
            srq: NonNull::new(srq).ok_or_else(io::Error::last_os_error)?,
            nic: Arc::clone(nic),
        })
    }

    /// Gives the NIC a buffer to receive into, named by `id`.
    ///
    /// # Safety
    /// Until the completion that names it:
    /// 1. The buffer is registered under `lkey`.
    /// 2. It is nobody else's.
    #[inline]
    pub(crate) unsafe fn post(
        &self,
        id: u64,
        addr: *mut u8,
        len: u32,
        lkey: u32,
    ) -> io::Result<()> {
        let mut piece = ibv_sge {
            addr: addr.expose_provenance() as u64,
            length: len,
            lkey,
        };
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue exists. 2. The list has one entry, and the buffer is as the caller says.
        check(unsafe { ffi::ibv_post_srq_recv(self.srq.as_ptr(), &mut request, &mut bad) })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs keep it, so none is left.
        unsafe { self.nic.lib().ibv_destroy_srq(self.srq.as_ptr()) };
    }
}
