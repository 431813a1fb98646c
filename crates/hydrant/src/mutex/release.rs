//! Releasing a mutex without waiting.
//!
//! If no successor is known, a compare-and-swap of the tail shows if there is one. A task of the job sends
//! it and continues with the answer. A grant to another host is sent in the same way.

use std::sync::atomic::Ordering::Relaxed;

use super::{BROKEN, Mutexes, PASSED, rank_of};
use crate::{BackgroundHandle, Error, Rank, Result, memory::Symmetric};

/// The unfinished part of a release, or of a failed wait.
pub(super) enum UnfinishedRelease {
    Nothing,
    /// The release is in flight.
    Releasing(BackgroundHandle<ReleaseOutcome>),
    /// The successor has not written its name yet. It will find the sentinel, and owns the mutex then.
    AwaitsSuccessor,
    /// That rank ended while this one waited for it. Nobody can leave the queue, so the mutex is lost.
    Broken(Rank),
    /// The program of that rank came to its end, and had the mutex.
    Ended(Rank),
}

pub(super) const NEVER_UNLOCKED: &str = "it had the mutex, and never unlocked it";

/// The outcome of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReleaseOutcome {
    /// The mutex is free, or its successor was granted it.
    Released,
    /// The successor has not written its name yet.
    AwaitsSuccessor,
}

impl Mutexes {
    /// Grants the mutex to the rank named `next`, which waits for it.
    #[cold]
    pub(super) fn grant(&self, next: u64, number: usize) -> Result<()> {
        self.words
            .put_value(self.own, self.successor_word(number), 0)?;
        let (next, granted) = (rank_of(next), self.grant_word(number));
        if self.words.block().part(next)?.mapped.is_some() {
            return self.words.put_value(next, granted, 1);
        }
        let put = self.words.put_nb(next, granted, vec![1])?;
        self.continue_release(number, async move {
            put.await?;
            Ok(ReleaseOutcome::Released)
        })
    }

    /// Releases to a successor that is in the queue and writes its name about now.
    #[cold]
    pub(super) fn leave_to_successor(&self, number: usize) -> Result<()> {
        match self
            .words
            .swap(self.own, self.successor_word(number), PASSED)?
        {
            0 => {
                self.set_unfinished(number, UnfinishedRelease::AwaitsSuccessor);
                Ok(())
            }
            next => self.grant(next, number),
        }
    }

    /// Releases without a wait for the answer of the tail's compare-and-swap.
    #[cold]
    pub(super) fn begin_release(&self, rank: Rank, mutex: usize, number: usize) -> Result<()> {
        let (words, own, name) = (self.words.clone(), self.own, self.own_name());
        let (next, granted) = (self.successor_word(number), self.grant_word(number));
        let asked = words.compare_swap_nb(rank, mutex, name, 0)?;
        self.continue_release(number, async move {
            if asked.await? == name {
                Ok(ReleaseOutcome::Released)
            } else {
                release_to_successor(&words, own, next, granted).await
            }
        })
    }

    fn continue_release(
        &self,
        number: usize,
        work: impl Future<Output = Result<ReleaseOutcome>> + Send + 'static,
    ) -> Result<()> {
        let transfer = self.words.block().transfer()?;
        self.set_unfinished(
            number,
            UnfinishedRelease::Releasing(transfer.progress.begin(work)),
        );
        Ok(())
    }

    /// Stores the unfinished part of a release. The caller holds the mutex's turn.
    fn set_unfinished(&self, number: usize, unfinished: UnfinishedRelease) {
        let state = &self.states[number];
        *state.unfinished.lock() = unfinished;
        state.has_unfinished.store(1, Relaxed);
    }

    /// Marks the mutex as broken if `outcome` is a lost rank.
    pub(super) fn note_loss(&self, number: usize, outcome: &Result<()>) {
        match outcome {
            Err(Error::PeerLost(lost)) => {
                self.set_unfinished(number, UnfinishedRelease::Broken(*lost));
            }
            Err(Error::PeerEnded { rank, .. }) => {
                self.set_unfinished(number, UnfinishedRelease::Ended(*rank));
            }
            _ => {}
        }
    }

    /// Leaves the queue for a broken mutex, and passes `mark` on to the successor, if there is one yet.
    ///
    /// # Errors
    /// [`Error::PeerEnded`] in any case, unless the network reports something worse.
    #[cold]
    pub(super) fn leave_broken(&self, number: usize, mark: u64) -> Result<()> {
        let next = (self.words).swap(self.own, self.successor_word(number), mark)?;
        if next != 0 && next & BROKEN == 0 {
            (self.words).put_value(rank_of(next), self.grant_word(number), mark)?;
        }
        Err(never_unlocked(Rank((mark & !BROKEN) as u32)))
    }

    /// Finishes this rank's last release, so that it may join the queue again.
    ///
    /// # Errors
    /// The error of the last unlock; [`Error::PeerLost`] or [`Error::PeerEnded`] if the mutex can no longer be locked.
    #[cold]
    pub(super) fn finish_last_release(&self, number: usize) -> Result<()> {
        self.finish_release(number)?;
        let state = &self.states[number];
        let left = std::mem::replace(&mut *state.unfinished.lock(), UnfinishedRelease::Nothing);
        match left {
            UnfinishedRelease::Nothing | UnfinishedRelease::Releasing(_) => {}
            UnfinishedRelease::Broken(lost) => return Err(Error::PeerLost(lost)),
            UnfinishedRelease::Ended(rank) => return Err(never_unlocked(rank)),
            UnfinishedRelease::AwaitsSuccessor => {
                let next = self.successor_word(number);
                self.wait_for(next, |word| word != PASSED)?;
                self.words.put_value(self.own, next, 0)?;
            }
        }
        state.has_unfinished.store(0, Relaxed);
        Ok(())
    }

    /// Waits for the end of a release in flight.
    pub(super) fn finish_release(&self, number: usize) -> Result<()> {
        let left = std::mem::replace(
            &mut *self.states[number].unfinished.lock(),
            UnfinishedRelease::Nothing,
        );
        let left = match left {
            UnfinishedRelease::Releasing(release) => match release.wait()? {
                ReleaseOutcome::Released => UnfinishedRelease::Nothing,
                ReleaseOutcome::AwaitsSuccessor => UnfinishedRelease::AwaitsSuccessor,
            },
            left => left,
        };
        *self.states[number].unfinished.lock() = left;
        Ok(())
    }
}

fn never_unlocked(rank: Rank) -> Error {
    Error::PeerEnded {
        rank,
        why: NEVER_UNLOCKED,
    }
}

/// As [`Mutexes::leave_to_successor`], in a task.
async fn release_to_successor(
    words: &Symmetric<u64>,
    own: Rank,
    next_at: usize,
    granted: usize,
) -> Result<ReleaseOutcome> {
    let next = words.swap_nb(own, next_at, PASSED)?.await?;
    if next == 0 {
        return Ok(ReleaseOutcome::AwaitsSuccessor);
    }
    // This rank's own part is mapped, so that the put does not wait.
    words.put_value(own, next_at, 0)?;
    words.put_nb(rank_of(next), granted, vec![1])?.await?;
    Ok(ReleaseOutcome::Released)
}
