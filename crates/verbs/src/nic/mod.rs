//! Owned objects of libibverbs. Each is destroyed when dropped, in the right order. Any thread may
//! use them, as libibverbs promises.

#![allow(unsafe_code)] // calls libibverbs

mod address_handle;
mod completion;
mod pair;
mod region;
mod shared;

use std::{io, sync::Arc};

use hydrant_conduit::{Atomicity, memory::Place};

pub(crate) use address_handle::AddressHandle;
pub(crate) use completion::{CompletionChannel, CompletionQueue, blank};
pub(crate) use pair::{ConnectAttributes, QueuePair, RequestBatch, WorkRequest};
pub(crate) use region::{MemoryRegion, NicBuffer};
pub(crate) use shared::SharedQueue;

use crate::{
    device::{DevicePaging, Opened, Port},
    ffi::{Libibverbs, ibv_pd},
};

/// An open device with its protection domain.
pub(crate) struct Nic {
    /// The protection domain of every object made with the device.
    domain: *mut ibv_pd,
    /// The port that this rank uses.
    pub(crate) port: Port,
    /// The limits of the device.
    pub(crate) limits: DeviceLimits,
    /// True if the memory of the program is registered for on-demand paging. Then nothing of it is pinned.
    pub(crate) on_demand: bool,
    /// The last field, because the domain is destroyed before the device is closed.
    opened: Opened,
}

// SAFETY: libibverbs' functions may be called from any thread (ibv_fork_init(3), verbs(7)).
unsafe impl Send for Nic {}
// SAFETY: libibverbs' functions may be called from several threads at once (verbs(7)).
unsafe impl Sync for Nic {}

/// The limits and features of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceLimits {
    /// Most queue pairs.
    pub(crate) queue_pairs: u32,
    /// Most work requests with one queue pair.
    pub(crate) work_requests: u32,
    /// Most entries of a completion queue.
    pub(crate) completions: u32,
    /// Most buffers of a shared receive queue.
    pub(crate) shared_requests: u32,
    /// Most memory regions.
    pub(crate) regions: u32,
    /// Most bytes of a memory region.
    pub(crate) region_bytes: u64,
    /// Most reads in flight that a queue pair may ask for.
    pub(crate) reads_asked: u8,
    /// Most reads in flight that a queue pair answers.
    pub(crate) reads_answered: u8,
    /// The atomicity of the device's atomic operations, if it has any.
    pub(crate) atomics: Option<Atomicity>,
    /// The memory that the device pages on demand.
    pub(crate) paging: DevicePaging,
    /// True if the device is made by software. Such a device drops packets under load.
    pub(crate) software: bool,
}

impl DeviceLimits {
    /// Returns the reason why memory cannot be registered for on-demand paging, if there is one.
    pub(crate) fn no_paging(&self) -> Option<&'static str> {
        if !self.paging.regions {
            return Some("the device has no on-demand paging");
        }
        if self.atomics.is_some() && !self.paging.atomics {
            return Some("the on-demand paging of the device excludes its atomic operations");
        }
        // Registration itself does not look at the memory then.
        (!Place::can_pin()).then_some("the kernel does not fault in pages on request (Linux 5.14)")
    }
}

impl Nic {
    /// Opens the device of a port.
    pub(crate) fn open(port: Port) -> io::Result<Arc<Self>> {
        let opened = Opened::named(&port.device)?;
        let attr = opened.attributes()?;
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let few = |number: i32| u8::try_from(number.clamp(0, 16)).unwrap_or(0);
        let limits = DeviceLimits {
            queue_pairs: count(attr.max_qp),
            work_requests: count(attr.max_qp_wr),
            completions: count(attr.max_cqe),
            shared_requests: count(attr.max_srq_wr),
            regions: count(attr.max_mr),
            region_bytes: attr.max_mr_size,
            reads_asked: few(attr.max_qp_init_rd_atom),
            reads_answered: few(attr.max_qp_rd_atom),
            atomics: port.atomics,
            paging: opened.paging(),
            software: is_software(&port.device),
        };
        // SAFETY: the context is open.
        let domain = unsafe { opened.lib.ibv_alloc_pd(opened.context) };
        if domain.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Self {
            domain,
            port,
            on_demand: false,
            limits,
            opened,
        }))
    }

    /// Returns whether the port is up, as far as the device knows.
    pub(crate) fn is_up(&self) -> bool {
        let port = self.opened.port(self.port.port);
        port.is_ok_and(|attr| attr.state == crate::ffi::IBV_PORT_ACTIVE)
    }

    fn lib(&self) -> &'static Libibverbs {
        self.opened.lib
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        // SAFETY: every object in the domain keeps an `Arc` of the `Nic`, so none is left.
        unsafe { self.lib().ibv_dealloc_pd(self.domain) };
    }
}

/// Soft-RoCE and soft-iWARP devices have no bus device behind them.
fn is_software(device: &str) -> bool {
    !std::path::Path::new(&format!("/sys/class/infiniband/{device}/device")).exists()
}

/// Converts the error number that a call returns.
#[inline(always)] // on the path of every hit
fn check(errno: i32) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        errno => Err(cause(errno)),
    }
}

#[cold]
fn cause(errno: i32) -> io::Error {
    match errno {
        -1 => io::Error::last_os_error(),
        errno => io::Error::from_raw_os_error(errno.abs()),
    }
}
