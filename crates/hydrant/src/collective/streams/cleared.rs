//! Buffers that receivers clear for direct writes.

use hydrant_conduit::Remote;

/// The buffer that a receiver has cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cleared {
    /// Where to write; `None` if the data goes in chunks.
    pub(super) to: Option<Remote>,
    /// Bytes left.
    pub(super) left: usize,
    /// Leading bytes that go in chunks, because the receiver has not the whole of their bucket.
    pub(super) before: usize,
}
