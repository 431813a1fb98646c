//! The endpoints that libfabric offers: provider, protocol, address and limits of each.

#![allow(unsafe_code)] // reads the library's structures

use std::{
    ffi::{CStr, CString},
    net::IpAddr,
    ptr::{self, NonNull},
};

use crate::{
    ffi,
    library::{INTERFACE, Libfabric},
};

/// The bits of `mr_mode` that this crate can serve.
const MR_MODES: u32 = ffi::FI_MR_LOCAL
    | ffi::FI_MR_VIRT_ADDR
    | ffi::FI_MR_ALLOCATED
    | ffi::FI_MR_PROV_KEY
    | ffi::FI_MR_ENDPOINT;

/// The family of addresses to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressFamily {
    /// IPv4 (`FI_SOCKADDR_IN`).
    V4,
    /// IPv6 (`FI_SOCKADDR_IN6`).
    V6,
    /// The provider's own.
    Native,
}

/// One endpoint that libfabric offers. It is freed on drop.
pub(crate) struct Offer {
    library: &'static Libfabric,
    info: NonNull<ffi::fi_info>,
}

// SAFETY: the value owns a structure that nothing else refers to.
unsafe impl Send for Offer {}
// SAFETY: the structure is only read.
unsafe impl Sync for Offer {}

impl Drop for Offer {
    fn drop(&mut self) {
        // SAFETY: the structure came from `fi_dupinfo`, and nothing uses it any more.
        unsafe { (self.library.fi_freeinfo)(self.info.as_ptr()) }
    }
}

impl Offer {
    /// Returns the structure, for the calls that take it.
    pub(super) fn as_ptr(&self) -> *mut ffi::fi_info {
        self.info.as_ptr()
    }

    pub(super) fn library(&self) -> &'static Libfabric {
        self.library
    }

    fn info(&self) -> &ffi::fi_info {
        // SAFETY: the structure lives as long as this value, and is only read.
        unsafe { self.info.as_ref() }
    }

    pub(super) fn fabric_attr(&self) -> *mut ffi::fi_fabric_attr {
        self.info().fabric_attr
    }

    fn domain(&self) -> &ffi::fi_domain_attr {
        // SAFETY: `all` keeps only structures with these attributes.
        unsafe { &*self.info().domain_attr }
    }

    fn endpoint(&self) -> &ffi::fi_ep_attr {
        // SAFETY: `all` keeps only structures with these attributes.
        unsafe { &*self.info().ep_attr }
    }

    fn sends(&self) -> &ffi::fi_tx_attr {
        // SAFETY: `all` keeps only structures with these attributes.
        unsafe { &*self.info().tx_attr }
    }

    /// Returns the provider's name, as `tcp` or `tcp;ofi_rxm`.
    pub(crate) fn provider(&self) -> String {
        // SAFETY: `all` keeps only structures with these attributes.
        let name = unsafe { (*self.info().fabric_attr).prov_name };
        text(name)
    }

    /// Returns the name of the domain, often the interface.
    pub(crate) fn domain_name(&self) -> String {
        text(self.domain().name)
    }

    /// Returns the provider's protocol and its version. Ranks must agree on both.
    pub(crate) fn protocol(&self) -> (u32, u32) {
        (self.endpoint().protocol, self.endpoint().protocol_version)
    }

    /// Returns the family of its addresses.
    pub(crate) fn family(&self) -> AddressFamily {
        match self.info().addr_format {
            ffi::FI_SOCKADDR_IN => AddressFamily::V4,
            ffi::FI_SOCKADDR_IN6 => AddressFamily::V6,
            _ => AddressFamily::Native,
        }
    }

    /// Returns the IP address that the endpoint would have.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        let info = self.info();
        if info.src_addr.is_null() {
            return None;
        }
        // SAFETY: the address has `src_addrlen` bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) };
        Some(crate::socket_address::parse(bytes)?.ip())
    }

    /// Sets the port that the endpoint will have, if its address has one.
    pub(crate) fn set_port(&mut self, port: u16) {
        /// The place of the port in a `sockaddr_in` and a `sockaddr_in6`.
        const PLACE: usize = 2;
        let info = self.info();
        if self.ip().is_none() || info.src_addrlen < PLACE + 2 {
            return;
        }
        // SAFETY: the address has `src_addrlen` bytes, and belongs to this structure alone.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(info.src_addr.cast::<u8>(), info.src_addrlen) };
        bytes[PLACE..PLACE + 2].copy_from_slice(&port.to_be_bytes());
    }

    /// Returns the bits of `mr_mode` that came back.
    pub(crate) fn mr_mode(&self) -> u32 {
        self.domain().mr_mode as u32
    }

    /// Returns the most bytes of an access or a message.
    pub(crate) fn max_message(&self) -> usize {
        self.endpoint().max_msg_size
    }

    /// Returns the bytes of a key.
    pub(crate) fn key_size(&self) -> usize {
        self.domain().mr_key_size
    }

    /// Returns the bytes of data that a write can show the target.
    pub(crate) fn remote_data_size(&self) -> usize {
        self.domain().cq_data_size
    }

    /// Returns the most bytes of a message sent by inject.
    pub(crate) fn inject_size(&self) -> usize {
        self.sends().inject_size
    }

    /// Returns the most operations that the provider wants in flight.
    pub(crate) fn depth(&self) -> usize {
        self.sends().size
    }

    /// Returns the reason why the crate cannot use the endpoint, if there is one.
    pub(crate) fn defect(&self) -> Option<String> {
        let unknown = self.mr_mode() & !MR_MODES;
        if unknown != 0 {
            return Some(format!("its mr_mode asks for unknown bits {unknown:#x}"));
        }
        let by_address = self.mr_mode() & ffi::FI_MR_VIRT_ADDR != 0;
        if self.mr_mode() & ffi::FI_MR_PROV_KEY != 0 && !by_address {
            return Some("its keys are its own, but its addresses are offsets".to_owned());
        }
        if !(4..=8).contains(&self.key_size()) {
            return Some(format!("its keys have {} bytes", self.key_size()));
        }
        if self.remote_data_size() < 8 {
            return Some("its writes show the target less than 8 bytes of data".to_owned());
        }
        if self.max_message() < 1 << 30 {
            return Some(format!("it carries at most {} bytes", self.max_message()));
        }
        None
    }
}

/// Returns the reliable endpoints for messages and RMA that a provider offers, or the text of libfabric's error.
pub(crate) fn offers(
    library: &'static Libfabric,
    provider: &str,
    family: AddressFamily,
) -> Result<Vec<Offer>, String> {
    let Ok(provider) = CString::new(provider) else {
        return Err("the name has a zero byte".to_owned());
    };
    // SAFETY: `fi_dupinfo` of nothing makes an empty structure with all its attributes.
    let hints = unsafe { (library.fi_dupinfo)(ptr::null()) };
    let Some(hints) = NonNull::new(hints) else {
        return Err("libfabric has no memory".to_owned());
    };
    let hints = Offer {
        library,
        info: hints,
    };
    fill_hints(&hints, family);
    // SAFETY: an empty structure has these attributes.
    let fabric = unsafe { &mut *hints.info().fabric_attr };
    // The hints must not own the string when they are freed.
    fabric.prov_name = provider.as_ptr().cast_mut();
    let mut first = ptr::null_mut();
    // SAFETY: the hints are complete, and `first` has room for the result.
    let code = unsafe {
        (library.fi_getinfo)(
            INTERFACE,
            ptr::null(),
            ptr::null(),
            0,
            hints.as_ptr(),
            &raw mut first,
        )
    };
    fabric.prov_name = ptr::null_mut();
    if code != 0 {
        return Err(library.error_text(code as isize));
    }
    let all = all(library, first);
    if !first.is_null() {
        // SAFETY: `all` copied what it keeps of the list.
        unsafe { (library.fi_freeinfo)(first) };
    }
    Ok(all)
}

/// Copies the elements of a list that have all attributes.
fn all(library: &'static Libfabric, first: *mut ffi::fi_info) -> Vec<Offer> {
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list consists of valid structures, and ends with null.
    while let Some(info) = unsafe { next.as_ref() } {
        let is_whole = ![
            info.domain_attr.is_null(),
            info.ep_attr.is_null(),
            info.tx_attr.is_null(),
            info.fabric_attr.is_null(),
        ]
        .contains(&true);
        // SAFETY: the structure is valid.
        let copy = unsafe { (library.fi_dupinfo)(next) };
        if let (true, Some(info)) = (is_whole, NonNull::new(copy)) {
            found.push(Offer { library, info });
        }
        next = info.next;
    }
    found
}

fn fill_hints(hints: &Offer, family: AddressFamily) {
    // SAFETY: nothing else refers to the new structure.
    let info = unsafe { &mut *hints.as_ptr() };
    info.caps = u64::from(ffi::FI_MSG | ffi::FI_RMA);
    info.mode = ffi::FI_CONTEXT | ffi::FI_CONTEXT2;
    info.addr_format = match family {
        AddressFamily::V4 => ffi::FI_SOCKADDR_IN,
        AddressFamily::V6 => ffi::FI_SOCKADDR_IN6,
        AddressFamily::Native => ffi::FI_FORMAT_UNSPEC,
    };
    // SAFETY: an empty structure has these attributes, and nothing else refers to them.
    let endpoint = unsafe { &mut *info.ep_attr };
    endpoint.type_ = ffi::FI_EP_RDM;
    // SAFETY: as above.
    let domain = unsafe { &mut *info.domain_attr };
    domain.mr_mode = MR_MODES as i32;
    domain.threading = ffi::FI_THREAD_SAFE;
    domain.av_type = ffi::FI_AV_TABLE;
    domain.resource_mgmt = ffi::FI_RM_ENABLED;
    let order = u64::from(ffi::FI_ORDER_SAS | ffi::FI_ORDER_WAW);
    // SAFETY: as above.
    let sends = unsafe { &mut *info.tx_attr };
    sends.msg_order = order;
    // SAFETY: as above.
    let receives = unsafe { &mut *info.rx_attr };
    receives.msg_order = order;
}

fn text(name: *const std::ffi::c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: libfabric's names end with a zero, and live as long as their structure.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}
