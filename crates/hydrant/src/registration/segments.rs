//! The addresses of the ranks' segments, and their word on changes of memory: published at the start, and read when first needed.

use std::sync::{Arc, OnceLock};

use hydrant_base::words::{Fixed, only};
use hydrant_launch::Bootstrap;
use parking_lot::Mutex;

use crate::{Error, Rank, Result};

/// The name under which ranks publish the addresses of their segments, and whether they hear of changes.
const SEGMENT: &str = "segment";

/// The addresses of the ranks' segments, and whether the ranks hear of changes of their memory.
pub(super) struct SegmentAddresses {
    /// The addresses by rank; each is set when it is first known.
    known: Box<[OnceLock<u64>]>,
    /// The ranks' words on whether they hear of changes; each is set when it is first known.
    hearing: Box<[OnceLock<bool>]>,
    bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
}

/// Publishes the address of the own segment, and whether this rank hears of changes. Other ranks can read both after the
/// next fence.
pub(super) fn publish(own: u64, hears: bool, bootstrap: &mut dyn Bootstrap) -> Result<()> {
    let mut told = Vec::new();
    (own, hears).put(&mut told);
    Ok(bootstrap.put(SEGMENT, &told)?)
}

impl SegmentAddresses {
    pub(super) fn new(
        size: u32,
        rank: Rank,
        own: (u64, bool),
        bootstrap: Arc<Mutex<Box<dyn Bootstrap>>>,
    ) -> Self {
        let known: Box<[OnceLock<u64>]> = (0..size).map(|_| OnceLock::new()).collect();
        let hearing: Box<[OnceLock<bool>]> = (0..size).map(|_| OnceLock::new()).collect();
        let _ = known[rank.index()].set(own.0);
        let _ = hearing[rank.index()].set(own.1);
        Self {
            known,
            hearing,
            bootstrap,
        }
    }

    /// Returns the address of the segment of a rank of the job.
    ///
    /// # Errors
    /// The launcher's.
    #[inline]
    pub(super) fn of(&self, rank: Rank) -> Result<u64> {
        match self.known(rank) {
            Some(base) => Ok(base),
            None => Ok(self.ask(rank)?.0),
        }
    }

    /// Returns whether a rank of the job hears of changes of its memory, as it said at the start.
    ///
    /// # Errors
    /// The launcher's.
    pub(super) fn hears(&self, rank: Rank) -> Result<bool> {
        match self.hearing[rank.index()].get() {
            Some(hears) => Ok(*hears),
            None => Ok(self.ask(rank)?.1),
        }
    }

    /// Returns the same, if it is known.
    #[inline(always)]
    pub(super) fn known(&self, rank: Rank) -> Option<u64> {
        self.known[rank.index()].get().copied()
    }

    #[cold]
    fn ask(&self, rank: Rank) -> Result<(u64, bool)> {
        let bytes = self.bootstrap.lock().get(rank.0, SEGMENT)?;
        let (base, hears) = only(&bytes).map_err(|_| {
            Error::other(format!(
                "rank {rank} has not published the address of its segment"
            ))
        })?;
        let base = *self.known[rank.index()].get_or_init(|| base);
        let hears = *self.hearing[rank.index()].get_or_init(|| hears);
        Ok((base, hears))
    }
}
