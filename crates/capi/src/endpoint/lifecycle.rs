//! Endpoints: begin, address and end.

use std::{
    ffi::{CStr, c_int, c_void},
    mem::MaybeUninit,
    time::Duration,
};

use hydrant::endpoint::{Endpoint, HostsOptions};

use super::{
    objects::{ENDPOINTS, write_bytes},
    types::{
        HYDRANT_HOSTS_IF_AVAILABLE, HYDRANT_HOSTS_NONE, HYDRANT_HOSTS_REQUIRED, hydrant_endpoint,
        hydrant_endpoint_options,
    },
};
use crate::{
    edge::{argument, edge, output, room},
    status::CallFailure,
};

/// Opens an endpoint. Options may be null.
///
/// Errors: HYDRANT_ERROR_TOO_LONG for the name, HYDRANT_ERROR_ARGUMENT if it is not UTF-8, HYDRANT_ERROR_NETWORK if
/// the system refuses something.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_endpoint_open(
    options: *const hydrant_endpoint_options,
    endpoint: *mut *mut hydrant_endpoint,
) -> c_int {
    edge("hydrant_endpoint_open", || {
        // SAFETY: 1. and 2. C1 and C2.
        let endpoint = unsafe { room(endpoint, "the place of the endpoint")? };
        let mut builder = Endpoint::builder();
        // SAFETY: C1 and C2.
        if let Some(options) = unsafe { options.as_ref() } {
            if !options.name.is_null() {
                // SAFETY: C1: the name is a string of C.
                let name = unsafe { CStr::from_ptr(options.name) };
                let name = name
                    .to_str()
                    .map_err(|_| argument("the name is not UTF-8"))?;
                builder = builder.name(name);
            }
            if options.peer_timeout != 0 {
                builder = builder.peer_timeout(Duration::from_nanos(options.peer_timeout));
            }
            if options.hosts != HYDRANT_HOSTS_NONE {
                // SAFETY: C1 and C2.
                builder = builder.hosts(unsafe { hosts(options)? });
            }
        }
        endpoint.write(ENDPOINTS.insert(builder.listen()?)?);
        Ok(())
    })
}

/// Returns the options of the network.
///
/// # Safety
/// C1 and C2 of `options`.
unsafe fn hosts(options: &hydrant_endpoint_options) -> Result<HostsOptions, CallFailure> {
    let mut hosts = HostsOptions {
        port: options.port,
        registered: (options.registered != 0).then_some(options.registered),
        optional: match options.hosts {
            HYDRANT_HOSTS_IF_AVAILABLE => true,
            HYDRANT_HOSTS_REQUIRED => false,
            _ => return Err(argument("hosts is none of HYDRANT_HOSTS_*")),
        },
        ..HostsOptions::from_env()
    };
    if !options.interfaces.is_null() {
        // SAFETY: C1: the names are a string of C.
        let interfaces = unsafe { CStr::from_ptr(options.interfaces) };
        let interfaces = interfaces.to_str();
        hosts.interface = interfaces
            .map_err(|_| argument("the interfaces are not UTF-8"))?
            .to_owned();
    }
    Ok(hosts)
}

/// Closes an endpoint, and frees its handle. Its peers hear that it has left, once they have its messages. Regions and
/// peers of it keep their handles, which are to be freed.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_endpoint_close(endpoint: *mut hydrant_endpoint) -> c_int {
    edge("hydrant_endpoint_close", || {
        ENDPOINTS.remove(endpoint)?.close();
        Ok(())
    })
}

/// Writes the address of an endpoint, which others need to connect: at most a few hundred bytes. Stores their number,
/// even if there is no room for them.
///
/// Errors: HYDRANT_ERROR_TOO_LONG if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_endpoint_address(
    endpoint: *mut hydrant_endpoint,
    address: *mut c_void,
    bytes: usize,
    length: *mut usize,
) -> c_int {
    edge("hydrant_endpoint_address", || {
        let found = ENDPOINTS.get(endpoint)?;
        // SAFETY: 1. and 2. C1 and C2.
        let length = unsafe { room(length, "the place of the length")? };
        // SAFETY: 1. and 2. C1 and C2; the bytes are only written.
        let address = unsafe { output(address.cast::<MaybeUninit<u8>>(), bytes, "the address")? };
        write_bytes(&found.address().to_bytes(), address, length)
    })
}
