//! The shared receive queue: its buffers are filled in order, whichever peer's message arrives.

#![allow(unsafe_code)] // calls libibverbs

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
// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    pub(crate) fn new(nic: &Arc<Nic>, depth: u32) -> io::Result<Self> {
        // SAFETY: all fields are integers and a raw pointer, for which zero is valid.
        let mut attr: ffi::ibv_srq_init_attr = unsafe { mem::zeroed() };
        attr.attr.max_wr = depth;
        attr.attr.max_sge = 1;
        // SAFETY: the domain exists as long as the `Nic`.
        let srq = unsafe { nic.lib().ibv_create_srq(nic.domain, &mut attr) };
        Ok(Self {
            srq: NonNull::new(srq).ok_or_else(io::Error::last_os_error)?,
            nic: Arc::clone(nic),
        })
    }

    /// Gives the NIC a buffer to receive into. The completion carries `id`.
    ///
    /// # Safety
    /// Until the completion that carries `id`:
    /// 1. The buffer is registered under `lkey`.
    /// 2. Nobody else uses the buffer.
    #[inline]
    pub(crate) unsafe fn post(
        &self,
        id: u64,
        addr: *mut u8,
        len: u32,
        lkey: u32,
    ) -> io::Result<()> {
        let mut sge = ibv_sge {
            addr: addr.expose_provenance() as u64,
            length: len,
            lkey,
        };
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue exists. 2. The list has one entry; the buffer is registered and
        // nobody else uses it by the caller's conditions 1 and 2.
        check(unsafe { ffi::ibv_post_srq_recv(self.srq.as_ptr(), &mut request, &mut bad) })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: each queue pair keeps an `Arc` of its shared queue, so no pair is left.
        unsafe { self.nic.lib().ibv_destroy_srq(self.srq.as_ptr()) };
    }
}
