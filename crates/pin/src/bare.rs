//! Registered buffers without a conduit, as a reference for the conduit's costs.

use std::time::{Duration, Instant};

use hydrant_conduit::{Error, Rank};

use crate::{limits::PinLimits, ring::Ring};

/// An `io_uring` whose table of registered buffers has one entry.
pub struct BareRing(Ring);

impl BareRing {
    /// Makes the ring.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where the system has no `io_uring` or forbids it.
    pub fn open() -> Result<Self, Error> {
        Ring::new(1).map(Self)
    }

    /// Has the kernel pin memory of this process and unpin it. Returns how long each took.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if the memory cannot be pinned, [`Error::Exhausted`] at a limit.
    pub fn register(&self, memory: &mut [u8]) -> Result<[Duration; 2], Error> {
        let start = Instant::now();
        let (addr, len) = (memory.as_ptr().addr(), memory.len());
        let pinned = self.0.pin(0, addr, len);
        let registered = start.elapsed();
        pinned.map_err(|cause| PinLimits::here().registration_error(cause, Rank(0), addr, len))?;
        self.0.unpin(0);
        Ok([registered, start.elapsed() - registered])
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
