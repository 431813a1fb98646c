//! Makes and frees mutexes.

use super::Job;
use crate::{Error, Mutexes, Rank, Result, collective::CollectiveKind, mutex};

impl Job {
    /// Makes mutexes that all ranks share: `count` at this rank, which may differ between ranks.
    /// Collective.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(3, |job| {
    /// let (mutexes, sum) = (job.mutexes(1)?, job.alloc::<u64>(1)?);
    /// let first = hydrant::Rank(0);
    /// for _ in 0..100 {
    ///     let held = mutexes.lock(first, 0)?;
    ///     let now = sum.get_value(first, 0)?;
    ///     sum.put_value(first, 0, now + 1)?;
    ///     held.unlock()?;
    /// }
    /// job.barrier()?;
    /// assert_eq!(sum.get_value(first, 0)?, 300);
    /// job.free_mutexes(&mutexes)?;
    /// # Ok(())
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn mutexes(&self, count: usize) -> Result<Mutexes> {
        let counts = self
            .world()
            .begin_collective(CollectiveKind::Mutexes)?
            .all_gather(&count)?;
        // On overflow, the allocation fails at every rank.
        let words = mutex::words_for(&counts).unwrap_or(usize::MAX);
        let words = self.alloc(words)?;
        Ok(Mutexes::new(words, self.rank(), &counts))
    }

    /// Frees mutexes. Collective. A later lock returns [`Error::Freed`].
    ///
    /// # Errors
    /// [`Error::MutexHeld`] at every rank if a rank holds one of the mutexes or waits for it; the
    /// mutexes then stay. As [`free`](Self::free).
    pub fn free_mutexes(&self, mutexes: &Mutexes) -> Result<()> {
        let closing = mutexes.close();
        let held = closing.find_in_use();
        let mine = held.map_or([u64::MAX; 2], |(rank, mutex)| [rank.0.into(), mutex as u64]);
        let closes = self.world().begin_collective(CollectiveKind::FreeMutexes)?;
        let all = closes.all_gather(&mine)?;
        drop(closes);
        for [rank, mutex] in all {
            if rank != u64::MAX {
                let (rank, mutex) = (Rank(rank as u32), mutex as usize);
                return Err(Error::MutexHeld { rank, mutex });
            }
        }
        self.free(mutexes.words().clone())
    }
}
