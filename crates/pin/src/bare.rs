//! Registered buffers without a conduit, as a reference for the conduit's costs.

use std::time::{Duration, Instant};

use hydrant_conduit::{Error, Rank};

use crate::{
    limits::PinLimits,
    ring::{MOST_BYTES, Ring},
};

/// The entries of the table of registered buffers.
const ENTRIES: usize = 256;

/// An `io_uring` with a small table of registered buffers.
pub struct BareRing(Ring);

impl BareRing {
    /// Makes the ring.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where the system has no `io_uring` or forbids it.
    pub fn open() -> Result<Self, Error> {
        Ring::new(ENTRIES).map(Self)
    }

    /// Has the kernel pin memory of this process and unpin it, in as few entries as it allows. Returns how long each took.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the memory cannot be pinned, [`Error::Exhausted`] at a limit.
    pub fn register(&self, memory: &mut [u8]) -> Result<[Duration; 2], Error> {
        let (addr, len) = (memory.as_ptr().addr(), memory.len());
        if len > ENTRIES * MOST_BYTES {
            return Err(Error::Exhausted {
                what: "bytes of bare registered buffers",
                limit: (ENTRIES * MOST_BYTES) as u64,
                remedy: "register less",
            });
        }
        let start = Instant::now();
        // The kernel refuses an empty buffer, too.
        let mut entries = 0..len.div_ceil(MOST_BYTES).max(1);
        let pinned = entries.by_ref().try_for_each(|entry| {
            let at = entry * MOST_BYTES;
            let part = MOST_BYTES.min(len - at);
            (self.0.pin(entry as u32, addr + at, part)).map_err(|cause| (entry, cause))
        });
        let registered = start.elapsed();
        let filled = match &pinned {
            Ok(()) => entries.end,
            Err((entry, _)) => *entry,
        };
        let start = Instant::now();
        (0..filled).for_each(|entry| self.0.unpin(entry as u32));
        let deregistered = start.elapsed();
        pinned.map_err(|(_, cause)| {
            PinLimits::here().registration_error(cause, Rank(0), addr, len)
        })?;
        Ok([registered, deregistered])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_can_be_pinned_repeatedly() {
        let bare = BareRing::open().expect("io_uring");
        let mut memory = vec![1; 5 * 4096];
        for _ in 0..3 {
            let [pinned, unpinned] = bare.register(&mut memory[4096..]).expect("own memory");
            assert!(!pinned.is_zero() && !unpinned.is_zero());
        }
        // The kernel refuses an empty buffer.
        assert!(bare.register(&mut memory[..0]).is_err());
    }
}
