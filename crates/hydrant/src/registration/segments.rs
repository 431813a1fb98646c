//! The addresses of the ranks' segments: published at the start, and read when first needed.

use std::sync::{Arc, OnceLock};

use hydrant_base::words::only;
use hydrant_launch::Bootstrap;
use parking_lot::Mutex;

use crate::{Error, Rank, Result};

/// The name under which ranks publish the addresses of their segments.
const SEGMENT: &str = "segment";

/// The addresses of the ranks' segments.
pub(super) struct SegmentAddresses {
    /// The addresses by rank; each is set when it is first known.
    known: Box<[OnceLock<u64>]>,
    bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
}

/// Publishes the address of the own segment. Other ranks can read it after the next fence.
pub(super) fn publish(own: u64, bootstrap: &mut dyn Bootstrap) -> Result<()> {
    Ok(bootstrap.put(SEGMENT, &own.to_le_bytes())?)
}

impl SegmentAddresses {
    pub(super) fn new(
        size: u32,
        rank: Rank,
        own: u64,
        bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
    ) -> Self {
        let known: Box<[OnceLock<u64>]> = (0..size).map(|_| OnceLock::new()).collect();
        let _ = known[rank.index()].set(own);
        Self { known, bootstrap }
    }

    /// Returns the address of the segment of a rank of the job.
    ///
    /// # Errors
    /// The launcher's.
    #[inline]
    pub(super) fn of(&self, rank: Rank) -> Result<u64> {
        match self.known(rank) {
            Some(base) => Ok(base),
            None => self.ask(rank),
        }
    }

    /// Returns the same, if it is known.
    #[inline(always)]
    pub(super) fn known(&self, rank: Rank) -> Option<u64> {
        self.known[rank.index()].get().copied()
    }

    #[cold]
    fn ask(&self, rank: Rank) -> Result<u64> {
        let bytes = self.bootstrap.lock().get(rank.0, SEGMENT)?;
        let base = only(&bytes).map_err(|_| {
            Error::other(format!(
                "rank {rank} has not published the address of its segment"
            ))
        })?;
        Ok(*self.known[rank.index()].get_or_init(|| base))
    }
}
