//! The buffers of messages, and the records of accesses.
//!
//! Each slot has the context of the operation that uses it. Slots are made in chunks and never freed while the endpoint
//! is open, because the library may use them as long.

mod accesses;
mod memory;
mod receives;
mod sends;

pub(crate) use accesses::{AccessDirection, AccessPool, AccessRecord, INLINE};
pub(crate) use receives::{ArrivalSlot, ArrivalSlots, RECEIVES_PER_PEER, receive_buffers};
pub(crate) use sends::{OUTSIDE, SendBuffer, SendBuffers};
