//! The objects of libfabric that one rank opens: fabric, domain, address vector, completion queue, endpoint.
//!
//! The library's functions are in tables behind the objects. The tables that the fast path needs are copied when the
//! objects are opened, so that a call is one load and one jump.

#![allow(unsafe_code)] // calls foreign functions

mod calls;
mod completion;
mod info;
mod region;

use std::{
    ffi::{c_int, c_void},
    io,
    os::fd::{AsFd, BorrowedFd},
    ptr,
    sync::Arc,
};

use hydrant_conduit::Error;

use crate::{ffi, library::Libfabric};
use calls::{EndpointCalls, Object};

pub(crate) use completion::{Arrival, BATCH, QueueBatch};
pub(crate) use info::{AddressFamily, Offer, offers};
pub(crate) use region::{FabricRegion, RegionRequest};

/// The address of a peer in the address vector.
pub(crate) type PeerAddress = ffi::fi_addr_t;

/// The result of posting an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PostResult {
    /// The provider took the operation.
    Taken,
    /// The provider cannot take it now: its queue is full, or the peer is not connected.
    Busy,
    /// The provider refused it, with this error number.
    Refused(isize),
}

impl PostResult {
    fn new(code: isize) -> Self {
        match code {
            0 => Self::Taken,
            code if code == -(libc::EAGAIN as isize) => Self::Busy,
            code => Self::Refused(code),
        }
    }
}

/// Local memory as a call needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalBuffer {
    pub(crate) addr: *mut u8,
    pub(crate) len: usize,
    /// The descriptor of its registration, where the provider wants one; else null.
    pub(crate) descriptor: *mut c_void,
}

/// Memory of a peer as a call needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteBuffer {
    pub(crate) peer: PeerAddress,
    /// The address, or the offset from the start of the region: see [`Fabric::by_address`].
    pub(crate) addr: u64,
    pub(crate) key: u64,
}

/// The open objects of libfabric, closed on drop.
pub(crate) struct Fabric {
    offer: Offer,
    calls: EndpointCalls,
    endpoint: Object<ffi::fid_ep>,
    queue: Object<ffi::fid_cq>,
    addresses: Object<ffi::fid_av>,
    domain: Object<ffi::fid_domain>,
    fabric: Object<ffi::fid_fabric>,
    /// The descriptor that is readable when the completion queue may have entries.
    wait: c_int,
}

impl Fabric {
    /// Opens the endpoint of an offer, for `peers` peers.
    ///
    /// # Errors
    /// [`Error::System`], with the text of libfabric.
    pub(crate) fn open(offer: Offer, peers: u32, completions: usize) -> Result<Arc<Self>, Error> {
        let library = offer.library();
        let refused = |what, code: c_int| refusal(library, what, code as isize);
        let info = offer.as_ptr();
        let fabric = Object::open(|into| {
            // SAFETY: the attributes belong to the offer, and `into` has room for the object.
            unsafe { (library.fi_fabric)(offer.fabric_attr(), into, ptr::null_mut()) }
        })
        .map_err(|code| refused("opening the fabric", code))?;
        let domain = Object::open(|into| calls::open_domain(&fabric, info, into))
            .map_err(|code| refused("opening the domain of libfabric", code))?;
        let addresses = Object::open(|into| calls::open_addresses(&domain, peers as usize, into))
            .map_err(|code| refused("making the address vector", code))?;
        let queue = Object::open(|into| calls::open_queue(&domain, completions, into))
            .map_err(|code| refused("making the completion queue", code))?;
        let endpoint = Object::open(|into| calls::open_endpoint(&domain, info, into))
            .map_err(|code| refused("making the endpoint", code))?;
        let bound = calls::bind(&endpoint, &addresses, 0);
        let both = u64::from(ffi::FI_TRANSMIT | ffi::FI_RECV);
        let bound = bound.and_then(|()| calls::bind(&endpoint, &queue, both));
        let enabled = bound.and_then(|()| calls::enable(&endpoint));
        enabled.map_err(|code| refused("enabling the endpoint", code))?;
        let wait = calls::wait_descriptor(&queue)
            .map_err(|code| refused("getting the descriptor of the completion queue", code))?;
        let calls = EndpointCalls::of(&fabric, &queue, &endpoint, &domain)
            .ok_or_else(|| refused("finding the calls of the endpoint", -libc::ENOSYS))?;
        Ok(Arc::new(Self {
            offer,
            calls,
            endpoint,
            queue,
            addresses,
            domain,
            fabric,
            wait,
        }))
    }

    /// Closes the endpoint, so that the library uses no memory of its operations any more. Regions are closed before,
    /// because some providers bind them to the endpoint.
    ///
    /// # Safety
    /// No operation is posted from now on.
    pub(crate) unsafe fn close_endpoint(&self) {
        // SAFETY: the caller's condition. Regions that are still bound only keep the endpoint open.
        unsafe { self.endpoint.close() }
    }

    /// Returns the offer that was opened.
    pub(crate) fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Returns true if the provider's connections are those of TCP.
    pub(crate) fn is_over_tcp(&self) -> bool {
        self.offer.provider().starts_with("tcp")
    }

    /// Returns true if remote addresses are the owner's. Otherwise they are offsets into the region.
    #[inline]
    pub(crate) fn by_address(&self) -> bool {
        self.offer.mr_mode() & ffi::FI_MR_VIRT_ADDR != 0
    }

    /// Returns true if the provider chooses the keys.
    pub(crate) fn chooses_keys(&self) -> bool {
        self.offer.mr_mode() & ffi::FI_MR_PROV_KEY != 0
    }

    /// Returns true if local memory has to be registered, too.
    pub(crate) fn registers_locally(&self) -> bool {
        self.offer.mr_mode() & ffi::FI_MR_LOCAL != 0
    }

    /// Makes the error for a refusal by libfabric.
    pub(crate) fn refusal(&self, what: &'static str, code: isize) -> Error {
        refusal(self.offer.library(), what, code)
    }

    /// Returns the text of an error number.
    pub(crate) fn error_text(&self, code: isize) -> String {
        self.offer.library().error_text(code)
    }

    /// Returns the address of the endpoint, as the provider writes it.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn name(&self) -> Result<Vec<u8>, Error> {
        let mut name = vec![0; 256];
        let len = calls::name(&self.endpoint, &mut name)
            .map_err(|code| self.refusal("asking for the endpoint's address", code as isize))?;
        name.truncate(len);
        Ok(name)
    }

    /// Adds a peer's address.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn insert(&self, name: &[u8]) -> Result<PeerAddress, Error> {
        calls::insert(&self.addresses, name)
            .map_err(|code| self.refusal("adding a peer's address", code as isize))
    }

    /// Removes a peer's address. Nothing is in flight to it.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn remove(&self, address: PeerAddress) -> Result<(), Error> {
        calls::remove(&self.addresses, address)
            .map_err(|code| self.refusal("removing a peer's address", code as isize))
    }

    /// Returns the descriptor that is readable when the completion queue may have entries.
    pub(crate) fn wait_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the queue keeps its descriptor open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.wait) }
    }

    /// Returns true if a thread may sleep on the descriptor now. Otherwise it polls the queue first.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut queue = self.queue.as_fid();
        // SAFETY: both objects are open, and the array has one element.
        unsafe { (self.calls.try_wait)(self.fabric.as_ptr(), &raw mut queue, 1) == 0 }
    }

    /// Sends a message. Its completion has `context`.
    ///
    /// # Safety
    /// 1. The memory is readable and unchanged until the completion.
    /// 2. `context` leads to a [`Context`](crate::context::OperationName) that no other operation uses until then.
    #[inline]
    pub(crate) unsafe fn send(
        &self,
        to: PeerAddress,
        memory: LocalBuffer,
        context: *mut c_void,
    ) -> PostResult {
        let LocalBuffer {
            addr,
            len,
            descriptor,
        } = memory;
        let endpoint = self.endpoint.as_ptr();
        // SAFETY: the endpoint is open. The caller's conditions 1 and 2.
        let code = unsafe {
            (self.calls.send)(
                endpoint,
                addr.cast_const().cast(),
                len,
                descriptor,
                to,
                context,
            )
        };
        PostResult::new(code)
    }

    /// Sends a short message. The bytes may change when the call returns, and no completion comes.
    #[inline]
    pub(crate) fn inject(&self, to: PeerAddress, bytes: &[u8]) -> PostResult {
        let endpoint = self.endpoint.as_ptr();
        // SAFETY: the endpoint is open, and the library reads the bytes before it returns.
        let code = unsafe { (self.calls.inject)(endpoint, bytes.as_ptr().cast(), bytes.len(), to) };
        PostResult::new(code)
    }

    /// Posts a buffer for a message.
    ///
    /// # Safety
    /// 1. The memory is writable, and nobody else uses it until the completion.
    /// 2. `context` as for [`send`](Self::send).
    pub(crate) unsafe fn receive(&self, memory: LocalBuffer, context: *mut c_void) -> PostResult {
        let LocalBuffer {
            addr,
            len,
            descriptor,
        } = memory;
        let (endpoint, anyone) = (self.endpoint.as_ptr(), u64::MAX);
        // SAFETY: the endpoint is open. The caller's conditions 1 and 2.
        let code = unsafe {
            (self.calls.receive)(endpoint, addr.cast(), len, descriptor, anyone, context)
        };
        PostResult::new(code)
    }

    /// Writes to a peer's memory. The completion tells that the data is there. The target's queue shows `data`, if
    /// there is any.
    ///
    /// # Safety
    /// 1. The local memory is readable and unchanged until the completion.
    /// 2. `context` as for [`send`](Self::send).
    /// 3. The peer bears the change of its memory under this key.
    #[inline]
    pub(crate) unsafe fn write(
        &self,
        local: LocalBuffer,
        remote: RemoteBuffer,
        data: Option<u64>,
        context: *mut c_void,
    ) -> PostResult {
        let source = libc::iovec {
            iov_base: local.addr.cast(),
            iov_len: local.len,
        };
        let target = ffi::fi_rma_iov {
            addr: remote.addr,
            len: local.len,
            key: remote.key,
        };
        let mut descriptor = local.descriptor;
        let message = ffi::fi_msg_rma {
            msg_iov: &raw const source,
            desc: &raw mut descriptor,
            iov_count: 1,
            addr: remote.peer,
            rma_iov: &raw const target,
            rma_iov_count: 1,
            context,
            data: data.unwrap_or(0),
        };
        let endpoint = self.endpoint.as_ptr();
        let shown = data.map_or(0, |_| ffi::FI_REMOTE_CQ_DATA);
        let flags = u64::from(ffi::FI_DELIVERY_COMPLETE | ffi::FI_COMPLETION | shown);
        // SAFETY: the endpoint is open, and the call copies the description. The caller's conditions 1, 2 and 3.
        let code = unsafe { (self.calls.write)(endpoint, &raw const message, flags) };
        PostResult::new(code)
    }

    /// Reads a peer's memory.
    ///
    /// # Safety
    /// 1. The local memory is writable, and nobody else uses it until the completion.
    /// 2. `context` as for [`send`](Self::send).
    #[inline]
    pub(crate) unsafe fn read(
        &self,
        local: LocalBuffer,
        remote: RemoteBuffer,
        context: *mut c_void,
    ) -> PostResult {
        let LocalBuffer {
            addr,
            len,
            descriptor,
        } = local;
        let RemoteBuffer {
            peer,
            addr: from,
            key,
        } = remote;
        let endpoint = self.endpoint.as_ptr();
        // SAFETY: the endpoint is open. The caller's conditions 1 and 2.
        let code = unsafe {
            (self.calls.read)(
                endpoint,
                addr.cast(),
                len,
                descriptor,
                peer,
                from,
                key,
                context,
            )
        };
        PostResult::new(code)
    }
}

impl AsFd for Fabric {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait_descriptor()
    }
}

fn refusal(library: &Libfabric, what: &'static str, code: isize) -> Error {
    let number = code.unsigned_abs() as i32;
    if [libc::EMFILE, libc::ENFILE].contains(&number) {
        return Error::system(what, io::Error::from_raw_os_error(number));
    }
    Error::System {
        what,
        cause: format!("libfabric: {}", library.error_text(code)),
    }
}
