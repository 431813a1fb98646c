//! The calls through the tables of libfabric's objects.

#![allow(unsafe_code)] // calls foreign functions

use std::{
    ffi::{c_int, c_void},
    mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::ffi;

/// An object of libfabric: each begins with a `fid`.
///
/// # Safety
/// An implementor is a structure whose first field is a `fid`.
pub(super) unsafe trait FabricObject {}

// SAFETY: the first field is a `fid`.
unsafe impl FabricObject for ffi::fid_fabric {}
// SAFETY: the first field is a `fid`.
unsafe impl FabricObject for ffi::fid_domain {}
// SAFETY: the first field is a `fid`.
unsafe impl FabricObject for ffi::fid_av {}
// SAFETY: the first field is a `fid`.
unsafe impl FabricObject for ffi::fid_cq {}
// SAFETY: the first field is a `fid`.
unsafe impl FabricObject for ffi::fid_ep {}
// SAFETY: the first field is a `fid`.
unsafe impl FabricObject for ffi::fid_mr {}

/// An open object, closed on drop.
pub(super) struct Object<T: FabricObject> {
    object: NonNull<T>,
    is_closed: AtomicBool,
}

// SAFETY: the domain is asked for FI_THREAD_SAFE: its objects may be used from any thread at once.
unsafe impl<T: FabricObject> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T: FabricObject> Sync for Object<T> {}

impl<T: FabricObject> Object<T> {
    /// Opens an object by a call that stores it, or returns the call's error number.
    pub(super) fn open(call: impl FnOnce(*mut *mut T) -> c_int) -> Result<Self, c_int> {
        let mut object = ptr::null_mut();
        let code = call(&raw mut object);
        match NonNull::new(object) {
            Some(object) if code == 0 => Ok(Self {
                object,
                is_closed: AtomicBool::new(false),
            }),
            _ if code == 0 => Err(-libc::ENOMEM),
            _ => Err(code),
        }
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }

    /// Returns the object as a `fid`.
    #[inline]
    pub(super) fn as_fid(&self) -> *mut ffi::fid {
        self.object.as_ptr().cast()
    }

    pub(super) fn get(&self) -> &T {
        // SAFETY: the object is open, and the library changes none of the fields that this crate reads.
        unsafe { self.object.as_ref() }
    }

    fn common(&self) -> &ffi::fi_ops {
        // SAFETY: each object begins with a `fid`.
        let fid = unsafe { &*self.as_fid() };
        // SAFETY: an open object has a table of common calls.
        unsafe { &*fid.ops }
    }
}

impl<T: FabricObject> Object<T> {
    /// Closes the object before it is dropped.
    ///
    /// # Safety
    /// Nothing uses the object now or later.
    pub(super) unsafe fn close(&self) {
        if self.is_closed.swap(true, Relaxed) {
            return;
        }
        let Some(close) = self.common().close else {
            return;
        };
        // SAFETY: the object is open. The caller's condition.
        let code = unsafe { close(self.as_fid()) };
        if code != 0 {
            tracing::debug!(code, "an object of libfabric was not closed");
        }
    }
}

impl<T: FabricObject> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: this is the last use.
        unsafe { self.close() }
    }
}

type SendCall = unsafe extern "C" fn(
    *mut ffi::fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    ffi::fi_addr_t,
    *mut c_void,
) -> isize;
type ReceiveCall = unsafe extern "C" fn(
    *mut ffi::fid_ep,
    *mut c_void,
    usize,
    *mut c_void,
    ffi::fi_addr_t,
    *mut c_void,
) -> isize;
type InjectCall =
    unsafe extern "C" fn(*mut ffi::fid_ep, *const c_void, usize, ffi::fi_addr_t) -> isize;
type WriteCall = unsafe extern "C" fn(*mut ffi::fid_ep, *const ffi::fi_msg_rma, u64) -> isize;
type ReadCall = unsafe extern "C" fn(
    *mut ffi::fid_ep,
    *mut c_void,
    usize,
    *mut c_void,
    ffi::fi_addr_t,
    u64,
    u64,
    *mut c_void,
) -> isize;
type ReadQueueCall = unsafe extern "C" fn(*mut ffi::fid_cq, *mut c_void, usize) -> isize;
type ReadQueueErrorCall =
    unsafe extern "C" fn(*mut ffi::fid_cq, *mut ffi::fi_cq_err_entry, u64) -> isize;
type TryWaitCall = unsafe extern "C" fn(*mut ffi::fid_fabric, *mut *mut ffi::fid, c_int) -> c_int;
type RegisterCall = unsafe extern "C" fn(
    *mut ffi::fid,
    *const c_void,
    usize,
    u64,
    u64,
    u64,
    u64,
    *mut *mut ffi::fid_mr,
    *mut c_void,
) -> c_int;

/// The calls of the fast path, copied from the objects' tables.
pub(super) struct EndpointCalls {
    pub(super) send: SendCall,
    pub(super) inject: InjectCall,
    pub(super) receive: ReceiveCall,
    pub(super) write: WriteCall,
    pub(super) read: ReadCall,
    pub(super) read_queue: ReadQueueCall,
    pub(super) read_queue_error: ReadQueueErrorCall,
    pub(super) try_wait: TryWaitCall,
    pub(super) register: RegisterCall,
}

impl EndpointCalls {
    /// Returns the calls, if the provider has them all.
    pub(super) fn of(
        fabric: &Object<ffi::fid_fabric>,
        queue: &Object<ffi::fid_cq>,
        endpoint: &Object<ffi::fid_ep>,
        domain: &Object<ffi::fid_domain>,
    ) -> Option<Self> {
        // SAFETY: the tables live as long as their object, and an endpoint for messages has this one.
        let messages = unsafe { endpoint.get().msg.as_ref() }?;
        // SAFETY: as above, for an endpoint for RMA.
        let rma = unsafe { endpoint.get().rma.as_ref() }?;
        // SAFETY: as above, for a completion queue.
        let queue = unsafe { queue.get().ops.as_ref() }?;
        // SAFETY: as above, for a fabric.
        let fabric = unsafe { fabric.get().ops.as_ref() }?;
        // SAFETY: as above, for a domain.
        let regions = unsafe { domain.get().mr.as_ref() }?;
        Some(Self {
            send: messages.send?,
            inject: messages.inject?,
            receive: messages.recv?,
            write: rma.writemsg?,
            read: rma.read?,
            read_queue: queue.read?,
            read_queue_error: queue.readerr?,
            try_wait: fabric.trywait?,
            register: regions.reg?,
        })
    }
}

/// Opens a domain.
pub(super) fn open_domain(
    fabric: &Object<ffi::fid_fabric>,
    info: *mut ffi::fi_info,
    into: *mut *mut ffi::fid_domain,
) -> c_int {
    // SAFETY: the table lives as long as the fabric.
    let table = unsafe { &*fabric.get().ops };
    let Some(open) = table.domain else {
        return -libc::ENOSYS;
    };
    // SAFETY: the fabric is open, `info` is an offer of it, and `into` has room for the object.
    unsafe { open(fabric.as_ptr(), info, into, ptr::null_mut()) }
}

fn domain_calls(domain: &Object<ffi::fid_domain>) -> &ffi::fi_ops_domain {
    // SAFETY: the table lives as long as the domain.
    unsafe { &*domain.get().ops }
}

/// Makes an address vector for this many peers.
pub(super) fn open_addresses(
    domain: &Object<ffi::fid_domain>,
    peers: usize,
    into: *mut *mut ffi::fid_av,
) -> c_int {
    let Some(open) = domain_calls(domain).av_open else {
        return -libc::ENOSYS;
    };
    // SAFETY: zeros are valid in all fields.
    let mut attributes: ffi::fi_av_attr = unsafe { mem::zeroed() };
    attributes.type_ = ffi::FI_AV_TABLE;
    attributes.count = peers;
    // SAFETY: the domain is open, and `into` has room for the object.
    unsafe { open(domain.as_ptr(), &raw mut attributes, into, ptr::null_mut()) }
}

/// Makes a completion queue of this size, with a descriptor to sleep on.
pub(super) fn open_queue(
    domain: &Object<ffi::fid_domain>,
    size: usize,
    into: *mut *mut ffi::fid_cq,
) -> c_int {
    let Some(open) = domain_calls(domain).cq_open else {
        return -libc::ENOSYS;
    };
    // SAFETY: zeros are valid in all fields.
    let mut attributes: ffi::fi_cq_attr = unsafe { mem::zeroed() };
    attributes.size = size;
    attributes.format = ffi::FI_CQ_FORMAT_DATA;
    attributes.wait_obj = ffi::FI_WAIT_FD;
    // SAFETY: the domain is open, and `into` has room for the object.
    unsafe { open(domain.as_ptr(), &raw mut attributes, into, ptr::null_mut()) }
}

/// Makes an endpoint, not yet enabled.
pub(super) fn open_endpoint(
    domain: &Object<ffi::fid_domain>,
    info: *mut ffi::fi_info,
    into: *mut *mut ffi::fid_ep,
) -> c_int {
    let Some(open) = domain_calls(domain).endpoint else {
        return -libc::ENOSYS;
    };
    // SAFETY: the domain is open, `info` is the offer it was opened by, and `into` has room for the object.
    unsafe { open(domain.as_ptr(), info, into, ptr::null_mut()) }
}

/// Binds an object to an endpoint or a region.
pub(super) fn bind<A: FabricObject, B: FabricObject>(
    to: &Object<A>,
    object: &Object<B>,
    flags: u64,
) -> Result<(), c_int> {
    let bind = to.common().bind.ok_or(-libc::ENOSYS)?;
    // SAFETY: both objects are open.
    let code = unsafe { bind(to.as_fid(), object.as_fid(), flags) };
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Enables an endpoint or a region.
pub(super) fn enable<T: FabricObject>(object: &Object<T>) -> Result<(), c_int> {
    let control = object.common().control.ok_or(-libc::ENOSYS)?;
    // SAFETY: the object is open, and the command takes no argument.
    let code = unsafe { control(object.as_fid(), ffi::FI_ENABLE as c_int, ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Returns the descriptor of a completion queue.
pub(super) fn wait_descriptor(queue: &Object<ffi::fid_cq>) -> Result<c_int, c_int> {
    let control = queue.common().control.ok_or(-libc::ENOSYS)?;
    let mut descriptor: c_int = -1;
    let into = (&raw mut descriptor).cast();
    // SAFETY: the queue is open, and the command stores a descriptor.
    let code = unsafe { control(queue.as_fid(), ffi::FI_GETWAIT as c_int, into) };
    if code == 0 && descriptor >= 0 {
        Ok(descriptor)
    } else {
        Err(if code == 0 { -libc::ENOSYS } else { code })
    }
}

/// Stores the address of an endpoint, and returns its length.
pub(super) fn name(endpoint: &Object<ffi::fid_ep>, into: &mut [u8]) -> Result<usize, c_int> {
    // SAFETY: the table lives as long as the endpoint.
    let table = unsafe { endpoint.get().cm.as_ref() }.ok_or(-libc::ENOSYS)?;
    let name = table.getname.ok_or(-libc::ENOSYS)?;
    let mut len = into.len();
    // SAFETY: the endpoint is open, and the buffer has `len` bytes.
    let code = unsafe { name(endpoint.as_fid(), into.as_mut_ptr().cast(), &raw mut len) };
    if code == 0 && len <= into.len() {
        Ok(len)
    } else {
        Err(if code == 0 { -libc::ENOBUFS } else { code })
    }
}

/// Adds an address to an address vector.
pub(super) fn insert(
    addresses: &Object<ffi::fid_av>,
    name: &[u8],
) -> Result<ffi::fi_addr_t, c_int> {
    // SAFETY: the table lives as long as the address vector.
    let table = unsafe { &*addresses.get().ops };
    let insert = table.insert.ok_or(-libc::ENOSYS)?;
    let mut address = u64::MAX;
    let from = name.as_ptr().cast();
    // SAFETY: the vector is open, and the name is one that a peer's endpoint of the same provider returned.
    let count = unsafe {
        insert(
            addresses.as_ptr(),
            from,
            1,
            &raw mut address,
            0,
            ptr::null_mut(),
        )
    };
    if count == 1 && address != u64::MAX {
        Ok(address)
    } else {
        Err(if count < 0 { count } else { -libc::EINVAL })
    }
}

/// Removes an address from an address vector.
pub(super) fn remove(
    addresses: &Object<ffi::fid_av>,
    mut address: ffi::fi_addr_t,
) -> Result<(), c_int> {
    // SAFETY: the table lives as long as the address vector.
    let table = unsafe { &*addresses.get().ops };
    let remove = table.remove.ok_or(-libc::ENOSYS)?;
    // SAFETY: the vector is open, and the array has one element.
    let code = unsafe { remove(addresses.as_ptr(), &raw mut address, 1, 0) };
    if code == 0 { Ok(()) } else { Err(code) }
}
