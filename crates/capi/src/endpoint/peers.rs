//! Peers of an endpoint.

use std::{
    ffi::{c_char, c_int, c_void},
    mem::MaybeUninit,
    time::Duration,
};

use hydrant::endpoint::Address;

use super::{
    objects::{ENDPOINTS, PEERS, write_bytes},
    types::{hydrant_endpoint, hydrant_peer},
};
use crate::edge::{edge, input, output, room};

/// Connects to an endpoint by its address, or finds the peer if it is connected. Both may connect at once. The handle is
/// freed by hydrant_peer_drop, which does not end the connection.
///
/// Errors: HYDRANT_ERROR_DESCRIPTOR if the bytes are no address, HYDRANT_ERROR_UNREACHABLE, HYDRANT_ERROR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_connect(
    endpoint: *mut hydrant_endpoint,
    address: *const c_void,
    bytes: usize,
    peer: *mut *mut hydrant_peer,
) -> c_int {
    edge("hydrant_connect", || {
        let found = ENDPOINTS.get(endpoint)?;
        // SAFETY: 1. and 2. C1 and C2.
        let peer = unsafe { room(peer, "the place of the peer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let address = unsafe { input(address.cast::<u8>(), bytes, "the address")? };
        let address = Address::from_bytes(address)?;
        peer.write(PEERS.insert(found.connect(&address)?)?);
        Ok(())
    })
}

/// Frees the handle of a peer.
///
/// Errors: HYDRANT_ERROR_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_peer_drop(peer: *mut hydrant_peer) -> c_int {
    edge("hydrant_peer_drop", || PEERS.remove(peer).map(drop))
}

/// Writes the name that a peer has given itself, with a 0 behind it, and stores its length without that.
///
/// Errors: HYDRANT_ERROR_TOO_LONG if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_peer_name(
    peer: *mut hydrant_peer,
    name: *mut c_char,
    bytes: usize,
    length: *mut usize,
) -> c_int {
    edge("hydrant_peer_name", || {
        let found = PEERS.get(peer)?;
        // SAFETY: 1. and 2. C1 and C2.
        let length = unsafe { room(length, "the place of the length")? };
        // SAFETY: 1. and 2. C1 and C2; the bytes are only written.
        let name = unsafe { output(name.cast::<MaybeUninit<u8>>(), bytes, "the name")? };
        let mut text = found.name().as_bytes().to_vec();
        text.push(0);
        let written = write_bytes(&text, name, length);
        length.write(text.len() - 1);
        written
    })
}

/// Stores the number of a peer's incarnation, which it has drawn at random when it started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_peer_incarnation(
    peer: *mut hydrant_peer,
    incarnation: *mut u64,
) -> c_int {
    edge("hydrant_peer_incarnation", || {
        let found = PEERS.get(peer)?;
        // SAFETY: 1. and 2. C1 and C2.
        let incarnation = unsafe { room(incarnation, "the place of the incarnation")? };
        incarnation.write(found.incarnation());
        Ok(())
    })
}

/// Stores whether a peer is connected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_peer_is_connected(
    peer: *mut hydrant_peer,
    is_connected: *mut bool,
) -> c_int {
    edge("hydrant_peer_is_connected", || {
        let found = PEERS.get(peer)?;
        // SAFETY: 1. and 2. C1 and C2.
        let is_connected = unsafe { room(is_connected, "the place of the answer")? };
        is_connected.write(found.is_connected());
        Ok(())
    })
}

/// The most bytes of a message to a peer.
pub const HYDRANT_MOST_MESSAGE: usize = 262_144;

/// Sends a message, which arrives once and in order, as an event. Waits at most so many nanoseconds while the peer has
/// 1 MiB of messages that its program has not read.
///
/// Errors: HYDRANT_ERROR_TOO_LONG, HYDRANT_ERROR_BUSY, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_LEFT,
/// HYDRANT_ERROR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_peer_send(
    peer: *mut hydrant_peer,
    message: *const c_void,
    bytes: usize,
    timeout: u64,
) -> c_int {
    edge("hydrant_peer_send", || {
        let found = PEERS.get(peer)?;
        // SAFETY: 1. and 2. C1 and C2.
        let message = unsafe { input(message.cast::<u8>(), bytes, "the message")? };
        Ok(found.send_within(message, Duration::from_nanos(timeout))?)
    })
}

const _: () = assert!(HYDRANT_MOST_MESSAGE == hydrant::endpoint::MAX_MESSAGE);
