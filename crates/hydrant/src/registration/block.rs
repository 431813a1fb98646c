//! Symmetric memory: registered at its allocation, if that is the strategy, and given up before
//! it is freed.

use bytemuck::{Pod, Zeroable};
use hydrant_pinning::{Run, Strategy, wire::Grant};

use super::Registration;
use crate::{Error, Result};

/// What a rank tells of a registration of its part.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Record {
    /// Registrations of the rank's part in all; none if it failed.
    of: u64,
    first: u64,
    count: u64,
    key: u64,
}

impl Registration {
    /// Registers the own part of an allocation for good and learns of the others', if memory is
    /// registered at allocation. Collective: `exchange` gives what every rank gave, by rank.
    ///
    /// # Errors
    /// [`Error::Registration`] that names the limit, on every rank.
    pub(crate) fn register_block(
        &self,
        exchange: &mut dyn FnMut(&Record) -> Result<Vec<Record>>,
        offset: usize,
        len: usize,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let addr = self.segments.of(self.progress.rank)? + offset as u64;
        // An allocation begins where a bucket does, unless buckets are larger than what segments
        // are aligned to; then what lies beside it is registered with it.
        if !addr.is_multiple_of(self.geometry.bucket()) {
            self.begin_to_last(addr, len as u64)?;
        }
        if self.strategy() != Strategy::PinEverything {
            (self.lent).allocate((addr, len as u64));
            return Ok(());
        }
        // Own operations register nothing of it as long as it is not lent: what is pinned is
        // pinned for itself, and does not go with its neighbours.
        let pinned = self.pin(addr, len as u64);
        (self.lent).allocate((addr, len as u64));
        let most = len as u64 / self.geometry.bucket() + 2;
        let grants: &[Grant] = pinned.as_deref().unwrap_or_default();
        let mut round = 0;
        loop {
            let grant = grants.get(round);
            let mine = Record {
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

    /// Makes sure that no peer has the own part of an allocation registered, nor this rank; the
    /// peers that were told of it forget it.
    pub(crate) fn unregister_block(&self, offset: usize, len: usize) -> Result<()> {
        let addr = self.segments.of(self.progress.rank)? + offset as u64;
        (self.lent).free((addr, len as u64));
        self.take_back(addr, len as u64);
        Ok(())
    }
}
