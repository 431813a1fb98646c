//! Teams.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use bytemuck::Pod;

use crate::{
    Error, Job, Result,
    job::Core,
    progress::{self, For, On},
};

/// Some of the ranks of a job.
pub struct Team {
    core: Arc<Core>,
    sequence: AtomicU64,
}

const ROUNDS: usize = 32;

impl Team {
    pub(crate) fn world(core: &Arc<Core>) -> Result<Self> {
        Ok(Self {
            core: Arc::clone(core),
            sequence: AtomicU64::new(0),
        })
    }

    /// Waits for every rank.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub fn barrier(&self) -> Result<()> {
        progress::may_wait("barrier")?;
        let core = &self.core;
        let (rank, size) = (core.rank.0, core.size);
        let sequence = self.sequence.fetch_add(1, Relaxed) + 1;
        let lost = || Error::other("no window");
        for round in 0..ROUNDS {
            let distance = 1_u32 << round;
            if distance >= size {
                break;
            }
            let to = crate::Rank((rank + distance) % size);
            let window = core.conduit.window(to).ok_or_else(lost)?;
            let flag = window.atomic_u64(round * 64).map_err(|_| lost())?;
            flag.store(sequence, Release);
            core.conduit.ring(to);
            let mine = core.conduit.window(core.rank).ok_or_else(lost)?;
            let flag = mine.atomic_u64(round * 64).map_err(|_| lost())?;
            core.wait(On::Anyone, For::Memory, || flag.load(Acquire) >= sequence)?;
        }
        Ok(())
    }

    /// What every rank gave, by rank.
    pub(crate) fn all_gather_records<T: Pod>(&self, mine: &T) -> Result<Vec<T>> {
        let core = &self.core;
        let lost = || Error::other("no window");
        let size = size_of::<T>().next_multiple_of(64);
        let bytes = bytemuck::bytes_of(mine);
        for rank in (0..core.size).map(crate::Rank) {
            let window = core.conduit.window(rank).ok_or_else(lost)?;
            window
                .write(4096 + core.rank.index() * size, bytes)
                .map_err(|_| lost())?;
        }
        self.barrier()?;
        let window = core.conduit.window(core.rank).ok_or_else(lost)?;
        let all = (0..core.size as usize)
            .map(|rank| window.load(4096 + rank * size).map_err(|_| lost()))
            .collect::<Result<_>>()?;
        self.barrier()?;
        Ok(all)
    }
}

impl Job {
    /// Waits for every rank of the job.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub fn barrier(&self) -> Result<()> {
        self.world().barrier()
    }
}
