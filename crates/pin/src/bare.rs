//! Registered buffers and nothing else: what the conduit's costs are held against.

use std::time::{Duration, Instant};

use hydrant_conduit::{Error, Rank};

use crate::{limits::PinLimits, ring::Ring};

/// An `io_uring` whose table of registered buffers has one entry.
pub struct BareRing(Ring);

impl BareRing {
    /// # Errors
    /// [`Error::Unreachable`] where the system has no `io_uring` or forbids it.
    pub fn open() -> Result<Self, Error> {
        Ring::new(1).map(Self)
    }

    /// Has the kernel pin memory of this process and let it go: how long each took.
    ///
    /// # Errors
    /// What the kernel says.
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
    fn memory_is_pinned_again_and_again() {
        let bare = BareRing::open().expect("io_uring");
        let mut memory = vec![1; 5 * 4096];
        for _ in 0..3 {
            let [pinned, let_go] = bare.register(&mut memory[4096..]).expect("own memory");
            assert!(!pinned.is_zero() && !let_go.is_zero());
        }
        // Nothing to pin is no entry to the kernel, which says so.
        assert!(bare.register(&mut memory[..0]).is_err());
    }
}
