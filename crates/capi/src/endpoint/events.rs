//! Events of an endpoint.

use std::{ffi::c_int, os::fd::AsRawFd, ptr, time::Duration};

use hydrant::endpoint::{EndpointEvent, Peer};

use super::{
    objects::{ENDPOINTS, PEERS},
    types::{
        HYDRANT_EVENT_CONNECTED, HYDRANT_EVENT_LEFT, HYDRANT_EVENT_LOST, HYDRANT_EVENT_MESSAGE,
        HYDRANT_EVENT_RETURNED, hydrant_endpoint, hydrant_event,
    },
};
use crate::edge::{edge, not_null, room};

/// Takes the next event. Waits for one at most so many nanoseconds: 0 is not at all, UINT64_MAX forever. If there is none,
/// its kind is 0. An event is given back by hydrant_event_free, which does nothing for one of kind 0.
///
/// Errors: HYDRANT_ERROR_CLOSED if the endpoint is closed and all events were taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_endpoint_event(
    endpoint: *mut hydrant_endpoint,
    timeout: u64,
    event: *mut hydrant_event,
) -> c_int {
    edge("hydrant_endpoint_event", || {
        let found = ENDPOINTS.get(endpoint)?;
        // SAFETY: 1. and 2. C1 and C2.
        let place = unsafe { room(event, "the place of the event")? };
        let taken = match timeout {
            0 => found.try_event()?,
            u64::MAX => Some(found.next_event()?),
            timeout => found.next_event_within(Duration::from_nanos(timeout))?,
        };
        let mut event = hydrant_event {
            kind: 0,
            peer: ptr::null_mut(),
            previous: 0,
            message: ptr::null_mut(),
            bytes: 0,
        };
        let mut of = |kind, peer: Peer| {
            event.kind = kind;
            event.peer = PEERS.insert(peer)?;
            Ok::<_, crate::status::CallFailure>(())
        };
        match taken {
            Some(EndpointEvent::Connected(peer)) => of(HYDRANT_EVENT_CONNECTED, peer)?,
            Some(EndpointEvent::Returned { peer, previous }) => {
                of(HYDRANT_EVENT_RETURNED, peer)?;
                event.previous = previous;
            }
            Some(EndpointEvent::Left(peer)) => of(HYDRANT_EVENT_LEFT, peer)?,
            Some(EndpointEvent::Lost { peer, .. }) => of(HYDRANT_EVENT_LOST, peer)?,
            Some(EndpointEvent::Message { peer, bytes }) => {
                of(HYDRANT_EVENT_MESSAGE, peer)?;
                let message = Box::leak(bytes.into_boxed_slice());
                event.bytes = message.len();
                event.message = message.as_mut_ptr().cast();
            }
            // A later version may have other events.
            Some(_) | None => {}
        }
        place.write(event);
        Ok(())
    })
}

/// Gives an event back: frees its message, and drops its peer. Its kind is 0 then.
///
/// Errors: HYDRANT_ERROR_HANDLE if its peer was dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_event_free(event: *mut hydrant_event) -> c_int {
    edge("hydrant_event_free", || {
        not_null(event, "the event")?;
        // SAFETY: C1 and C2.
        let event = unsafe { &mut *event };
        if event.kind == 0 {
            return Ok(());
        }
        event.kind = 0;
        if !event.message.is_null() {
            let message = ptr::slice_from_raw_parts_mut(event.message.cast::<u8>(), event.bytes);
            event.message = ptr::null_mut();
            // SAFETY: `hydrant_endpoint_event` leaked a box of these bytes, and each event is given back once, by its kind.
            drop(unsafe { Box::from_raw(message) });
        }
        PEERS.remove(event.peer).map(drop)
    })
}

/// Stores a descriptor for poll and epoll that is readable while there are events. It is only to be polled, and stays the
/// library's.
///
/// Errors: HYDRANT_ERROR_NETWORK if no descriptors are left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_endpoint_event_descriptor(
    endpoint: *mut hydrant_endpoint,
    descriptor: *mut c_int,
) -> c_int {
    edge("hydrant_endpoint_event_descriptor", || {
        let found = ENDPOINTS.get(endpoint)?;
        // SAFETY: 1. and 2. C1 and C2.
        let descriptor = unsafe { room(descriptor, "the place of the descriptor")? };
        descriptor.write(found.event_descriptor()?.as_raw_fd());
        Ok(())
    })
}
