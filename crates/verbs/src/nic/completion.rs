//! Completion queues, and the channel that receives their events.

#![allow(unsafe_code)] // calls libibverbs

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    ptr::{self, NonNull},
    sync::Arc,
};

use super::{Nic, check};
use crate::ffi::{self, ibv_comp_channel, ibv_cq, ibv_wc};

/// Receives an event for the next completion of an armed queue.
pub(crate) struct CompletionChannel {
    channel: NonNull<ibv_comp_channel>,
    nic: Arc<Nic>,
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for CompletionChannel {}
// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub(crate) fn new(nic: &Arc<Nic>) -> io::Result<Arc<Self>> {
        // SAFETY: the context stays open as long as the `Nic`.
        let channel = unsafe { nic.lib().ibv_create_comp_channel(nic.opened.context) };
        let channel = Self {
            channel: NonNull::new(channel).ok_or_else(io::Error::last_os_error)?,
            nic: Arc::clone(nic),
        };
        let flags = rustix::fs::fcntl_getfl(channel.as_fd())?;
        rustix::fs::fcntl_setfl(channel.as_fd(), flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Arc::new(channel))
    }

    /// Takes all pending events. Returns whether there was any.
    pub(crate) fn clear(&self) -> bool {
        let mut any = false;
        loop {
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel exists, and both pointers are to local variables.
            let got = unsafe {
                (self.nic.lib()).ibv_get_cq_event(self.channel.as_ptr(), &mut cq, &mut context)
            };
            if got != 0 {
                return any;
            }
            // SAFETY: the event names the queue, which stays until its events are acknowledged.
            unsafe { self.nic.lib().ibv_ack_cq_events(cq, 1) };
            any = true;
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists as long as `self`.
        let fd = unsafe { self.channel.as_ref() }.fd;
        // SAFETY: the descriptor stays open as long as the channel exists.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: each queue keeps an `Arc` of its channel, so no queue is left.
        unsafe {
            self.nic
                .lib()
                .ibv_destroy_comp_channel(self.channel.as_ptr())
        };
    }
}

/// A completion queue.
pub(crate) struct CompletionQueue {
    cq: NonNull<ibv_cq>,
    channel: Arc<CompletionChannel>,
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for CompletionQueue {}
// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    pub(crate) fn new(channel: &Arc<CompletionChannel>, depth: u32) -> io::Result<Arc<Self>> {
        let nic = &channel.nic;
        let depth = i32::try_from(depth).unwrap_or(i32::MAX);
        // SAFETY: the context is open, and the channel belongs to it.
        let cq = unsafe {
            nic.lib().ibv_create_cq(
                nic.opened.context,
                depth,
                ptr::null_mut(),
                channel.channel.as_ptr(),
                0,
            )
        };
        Ok(Arc::new(Self {
            cq: NonNull::new(cq).ok_or_else(io::Error::last_os_error)?,
            channel: Arc::clone(channel),
        }))
    }

    /// Takes completions. Returns how many.
    #[inline]
    pub(crate) fn poll(&self, into: &mut [ibv_wc]) -> usize {
        // SAFETY: the queue exists as long as `self`.
        let count = unsafe { ffi::ibv_poll_cq(self.cq.as_ptr(), into) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Arms the queue: the channel receives an event for the next completion.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue exists as long as `self`.
        check(unsafe { ffi::ibv_req_notify_cq(self.cq.as_ptr(), 0) })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: each queue pair keeps an `Arc` of its queues, so no pair is left.
        unsafe { self.channel.nic.lib().ibv_destroy_cq(self.cq.as_ptr()) };
    }
}

/// Returns a completion to be filled in.
pub(crate) const fn blank() -> ibv_wc {
    // SAFETY: all fields are integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}
