//! The options of the conduit.

use std::time::Duration;

use crate::message::MAX_HEAD;

/// Bytes that `ofi_rxm` sends at once, by default. It asks the receiver before it sends a longer message.
const SENT_AT_ONCE: usize = 16 << 10;

/// The options of the conduit.
#[derive(Debug, Clone)]
pub struct OfiOptions {
    /// Bytes of the segment of each rank. This is address space; pages become memory when touched.
    pub segment: usize,
    /// The provider, as `tcp` or `tcp;ofi_rxm`; empty for the best one that is known to work.
    pub provider: String,
    /// The network interfaces that may be used: names, addresses or networks, with commas between; empty for any.
    pub interface: String,
    /// Most payload bytes of a message.
    pub payload: usize,
    /// Most requests that a rank may have unhandled at a peer.
    pub window: u32,
    /// Most extents that a rank may have registered at once.
    pub extents: usize,
    /// How long a peer may be silent before it is lost; `None` for ever.
    pub peer_timeout: Option<Duration>,
    /// How long ranks may take to reach each other at the start.
    pub join_timeout: Duration,
}

impl OfiOptions {
    /// Bytes of the buffer of one message.
    pub(crate) fn stride(&self) -> usize {
        (MAX_HEAD + self.payload.max(128)).next_multiple_of(64)
    }
}

impl Default for OfiOptions {
    fn default() -> Self {
        Self {
            segment: 1 << 30,
            provider: String::new(),
            interface: String::new(),
            payload: SENT_AT_ONCE - MAX_HEAD,
            window: 16,
            extents: 1 << 16,
            peer_timeout: Some(Duration::from_secs(10)),
            join_timeout: Duration::from_secs(60),
        }
    }
}
