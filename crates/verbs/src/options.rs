//! How the conduit may be set.

use std::time::Duration;

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
