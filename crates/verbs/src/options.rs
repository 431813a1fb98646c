//! The options of the conduit.

use std::time::Duration;

use hydrant_conduit::memory::PAGE;

use crate::message::MAX_ARGS_BYTES;

/// The options of the conduit.
#[derive(Debug, Clone)]
pub struct VerbsOptions {
    /// Bytes of the segment of each rank. This is address space; pages become memory when touched.
    pub segment: usize,
    /// Devices, or ports as `device:port`, separated by commas; empty for any.
    pub devices: String,
    /// The index of the GID to use in the port's table, instead of the best one.
    pub gid_index: Option<u8>,
    /// Most payload bytes of a message.
    pub payload: usize,
    /// Most requests that a rank may have unhandled at a peer. Each connected peer costs twice as
    /// many receive slots.
    pub window: u32,
    /// The number of slots that messages are sent from.
    pub sends: u32,
    /// Most extents that a rank may have registered at once.
    pub extents: usize,
    /// How long a packet waits for its acknowledgement: 4.096 µs × 2 to this power. The NIC then
    /// retries, six times at most. `None` chooses by device.
    pub ack_timeout: Option<u8>,
    /// True if memory is registered for on-demand paging, where the device can. Then a registration follows the
    /// mapping, and pins nothing. [`on_demand_paging`](crate::on_demand_paging) tells whether the device can.
    pub on_demand: bool,
    /// How long a peer may be silent before it is lost; `None` for ever.
    pub peer_timeout: Option<Duration>,
}

impl VerbsOptions {
    /// Bytes of the slot of one message.
    pub(crate) fn slot(&self) -> usize {
        (MAX_ARGS_BYTES + self.payload).next_multiple_of(64)
    }

    /// Returns the bytes of registered receive buffers for the messages of one peer, with `window`
    /// unhandled requests at most.
    pub fn buffers_for_a_peer(&self, window: u32) -> usize {
        (slots_for(window) as usize * self.slot()).next_multiple_of(PAGE)
    }
}

impl Default for VerbsOptions {
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
            on_demand: false,
            peer_timeout: Some(Duration::from_secs(10)),
        }
    }
}

/// The number of slots for all messages that one peer can have on its way, with `window` unhandled
/// requests at most.
pub(crate) fn slots_for(window: u32) -> u32 {
    2 * window + 1
}
