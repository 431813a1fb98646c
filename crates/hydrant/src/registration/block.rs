//! Symmetric memory: registered at its allocation, if that is the strategy, and given up before
//! it is freed.

use bytemuck::{Pod, Zeroable};
use hydrant_pinning::{Run, Strategy, wire::Grant};

use super::{Registration, lock};
use crate::{Error, Rank, Result, collective::Affair, job::Core};

/// What a rank tells of a registration of its part.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Record {
    /// Registrations of the rank's part in all; none if it failed.
    of: u64,
    first: u64,
    count: u64,
    key: u64,
}

impl Core {
    /// Registers the own part of an allocation for good and learns of the others', if memory is
    /// registered at allocation. Collective.
    ///
    /// # Errors
    /// [`Error::Registration`] that names the limit, on every rank.
    pub(crate) fn register_block(
        &self,
        affair: &Affair<'_>,
        offset: usize,
        len: usize,
    ) -> Result<()> {
        let Some(registration) = &self.registration else {
            return Ok(());
        };
        if len == 0 {
            return Ok(());
        }
        let base = self.segment_of(registration, self.rank)?;
        self.begin_to_last(registration, base + offset as u64, len as u64)?;
        (registration.lent).allocate(base + offset as u64, len as u64);
        if registration.strategy() != Strategy::PinEverything {
            return Ok(());
        }
        let pinned = self.pin(registration, base + offset as u64, len as u64);
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
            let records = affair.all_gather(&mine)?;
            if let Some(failed) = records.iter().position(|record| record.of == 0) {
                return Err(pinned.err().unwrap_or_else(|| {
                    Error::other(format!("rank {failed} could not register its part"))
                }));
            }
            let mut engine = lock(&registration.engine);
            for (rank, record) in records.iter().enumerate() {
                if rank != self.rank.index() && record.count > 0 {
                    let grant = Grant {
                        run: Run {
                            first: record.first,
                            count: record.count,
                        },
                        key: record.key,
                        writable: true,
                    };
                    engine.add_static(rank as u32, &[grant])?;
                }
            }
            drop(engine);
            round += 1;
            if records.iter().all(|record| record.of <= round as u64) {
                return Ok(());
            }
        }
    }

    /// Makes sure that no peer has the own part of an allocation registered, nor this rank.
    pub(crate) fn unregister_block(&self, offset: usize, len: usize) -> Result<()> {
        let Some(registration) = &self.registration else {
            return Ok(());
        };
        if registration.strategy() == Strategy::PinEverything {
            self.forget_block(registration, offset, len);
        }
        let base = self.segment_of(registration, self.rank)?;
        (registration.lent).free(base + offset as u64);
        self.take_back(registration, base + offset as u64, len as u64);
        Ok(())
    }
    /// The others' parts are not registered for good any more.
    fn forget_block(&self, registration: &Registration, offset: usize, len: usize) {
        for rank in (0..self.size).map(Rank).filter(|rank| *rank != self.rank) {
            // Where that is not known nothing of it is, either.
            if let Some(base) = registration.base(rank)
                && let Ok(run) = registration.geometry.span(base + offset as u64, len as u64)
            {
                lock(&registration.engine).forget(rank.0, run);
            }
        }
    }
}
