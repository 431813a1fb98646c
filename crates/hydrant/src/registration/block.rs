//! Symmetric memory: registered at its allocation, if the strategy says so, and revoked before it
//! is freed.

use bytemuck::{Pod, Zeroable};
use hydrant_pinning::{Run, Strategy, wire::Grant};

use super::Registration;
use crate::{Error, Result};

/// A rank's report of one registration of its part.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct GrantRecord {
    /// The number of registrations of the rank's part; 0 if it failed.
    of: u64,
    first: u64,
    count: u64,
    key: u64,
}

impl Registration {
    /// Registers the own part of an allocation for good and learns the keys of the others, if the
    /// strategy registers at allocation. Collective: `exchange` gathers a record from every rank,
    /// in the order of ranks.
    ///
    /// # Errors
    /// [`Error::Registration`] that names the limit, on every rank.
    pub(crate) fn register_block(
        &self,
        exchange: &mut dyn FnMut(&GrantRecord) -> Result<Vec<GrantRecord>>,
        offset: usize,
        len: usize,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let addr = self.segments.of(self.progress.rank)? + offset as u64;
        // An allocation begins at a bucket, unless buckets are larger than the alignment of
        // segments. In that case memory beside it is registered with it.
        if !addr.is_multiple_of(self.geometry.bucket()) {
            self.prepare_to_lend(addr, len as u64)?;
        }
        if self.strategy() != Strategy::PinEverything {
            (self.lent).allocate((addr, len as u64));
            return Ok(());
        }
        // Until the part is lent, own operations register nothing of it. So the pinned extents are
        // its own, and are not revoked with neighbours.
        let pinned = self.pin(addr, len as u64);
        (self.lent).allocate((addr, len as u64));
        let most = len as u64 / self.geometry.bucket() + 2;
        let grants: &[Grant] = pinned.as_deref().unwrap_or_default();
        let mut round = 0;
        loop {
            let grant = grants.get(round);
            let mine = GrantRecord {
                of: grants.len() as u64,
                first: grant.map_or(0, |grant| grant.run.first),
                count: grant.map_or(0, |grant| grant.run.count),
                key: grant.map_or(0, |grant| grant.key),
            };
            let records = exchange(&mine)?;
            if let Some(failed) = records.iter().position(|record| record.of == 0) {
                return Err(pinned.err().unwrap_or_else(|| {
                    Error::other(format!("rank {failed} could not register its part"))
                }));
            }
            let mut engine = self.engine.lock();
            for (rank, record) in records.iter().enumerate() {
                if rank != self.progress.rank.index() && record.count > 0 {
                    let grant = Grant {
                        run: Run {
                            first: record.first,
                            count: record.count,
                        },
                        key: record.key,
                        writable: true,
                    };
                    engine.add_static(rank as u32, &[grant], most)?;
                }
            }
            drop(engine);
            round += 1;
            if records.iter().all(|record| record.of <= round as u64) {
                return Ok(());
            }
        }
    }

    /// Revokes the own part of an allocation, so that neither a peer nor this rank has it
    /// registered. Peers with firehoses on it forget them.
    pub(crate) fn unregister_block(&self, offset: usize, len: usize) -> Result<()> {
        let addr = self.segments.of(self.progress.rank)? + offset as u64;
        (self.lent).free((addr, len as u64));
        self.take_back(addr, len as u64);
        Ok(())
    }
}
