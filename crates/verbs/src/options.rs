//! How the conduit may be set.

use std::time::Duration;

use hydrant_conduit::memory::PAGE;

use crate::message::MAX_ARGS_BYTES;

/// How the conduit may be set.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of the segment each rank owns: address space; memory follows use.
    pub segment: usize,
    /// Devices, or ports as `device:port`, separated by commas; empty: any.
    pub devices: String,
    /// The index of the port's address, if the best is not meant.
    pub gid_index: Option<u8>,
    /// Most bytes of payload of a message.
    pub payload: usize,
    /// Requests that a rank may have unhandled at a peer. Each connected peer costs twice as
    /// many receive slots.
    pub window: u32,
    /// Slots that messages are sent from.
    pub sends: u32,
    /// Extents a rank may have registered at once.
    pub extents: usize,
    /// How long a packet waits to be acknowledged before it is sent again, six times: 4.096 µs
    /// × 2 to this power. None: what suits the device.
    pub ack_timeout: Option<u8>,
    /// How long a peer may answer nothing before it is lost; none: for ever.
    pub peer_timeout: Option<Duration>,
}

impl Options {
    /// Bytes of a slot for a message.
    pub(crate) fn slot(&self) -> usize {
        (MAX_ARGS_BYTES + self.payload).next_multiple_of(64)
    }

    /// Bytes of registered buffers that stand ready for the messages of a peer, where so many requests of
    /// it may be unhandled.
    pub fn buffers_for_a_peer(&self, window: u32) -> usize {
        (slots_for(window) as usize * self.slot()).next_multiple_of(PAGE)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment: 1 << 30,
            devices: String::new(),
            gid_index: None,
            payload: 4096,
            window: 16,
            sends: 128,
            extents: 1 << 16,
            ack_timeout: None,
            peer_timeout: Some(Duration::from_secs(10)),
        }
    }
}

/// Slots that house what one peer can have on its way, where so many of its requests may be unhandled.
pub(crate) fn slots_for(window: u32) -> u32 {
    2 * window + 1
}
