//! Freeing mutexes while threads of this rank may lock them.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use parking_lot::lock_api::RawMutex as _;

use super::Mutexes;
use crate::{
    Rank, Result,
    progress::{For, On},
};

/// Keeps the threads of this rank from beginning to lock one of the mutexes, until it is dropped.
pub(crate) struct Closing<'a>(&'a Mutexes);

impl Mutexes {
    /// Keeps the threads of this rank from beginning to lock a mutex, until the caller has decided whether
    /// the mutexes are freed.
    pub(crate) fn close(&self) -> Closing<'_> {
        self.is_closing.store(true, SeqCst);
        Closing(self)
    }

    #[cold]
    pub(super) fn wait_while_closing(&self) -> Result<()> {
        let transfer = self.words.block().transfer()?;
        let is_decided = || !self.is_closing.load(SeqCst);
        transfer.progress.wait(On::Nobody, For::Message, is_decided)
    }
}

impl Closing<'_> {
    /// Returns a mutex, of any rank, that a thread of this rank holds, waits for or is releasing. Releases
    /// in flight are finished. If none is in use, none is locked until this value is dropped. The next
    /// thread that locks a mutex gets the error of a release that failed.
    pub(crate) fn find_in_use(&self) -> Option<(Rank, usize)> {
        let Self(mutexes) = self;
        for (number, state) in mutexes.states.iter().enumerate() {
            if !state.turn.try_lock() {
                let rank = mutexes.before.partition_point(|before| *before <= number) - 1;
                return Some((Rank(rank as u32), number - mutexes.before[rank]));
            }
            if state.has_unfinished.load(Relaxed) != 0 {
                let finished = mutexes.finish_release(number);
                mutexes.note_loss(number, &finished);
            }
            // SAFETY: `try_lock` above has taken the lock.
            #[allow(unsafe_code)]
            unsafe {
                state.turn.unlock();
            }
        }
        None
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.is_closing.store(false, SeqCst);
        if let Ok(transfer) = self.0.words.block().transfer() {
            transfer.progress.wake_sleepers();
        }
    }
}
