//! Doing away with mutexes while threads of this rank may lock them.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use parking_lot::lock_api::RawMutex as _;

use super::Mutexes;
use crate::{
    Rank, Result,
    progress::{For, On},
};

/// Until this is dropped nobody of this rank begins to lock one of the mutexes.
pub(crate) struct Closing<'a>(&'a Mutexes);

impl Mutexes {
    /// Keeps the threads of this rank from beginning to lock one, until it is decided whether the mutexes
    /// are done away with.
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
    /// A mutex, of this rank or of another, that a thread of this rank has, waits for or is giving up. If
    /// there is none, those are given up that were unlocked, and none comes until this is dropped. What
    /// failed is known to who locks it next.
    pub(crate) fn in_use(&self) -> Option<(Rank, usize)> {
        let Self(mutexes) = self;
        for (number, state) in mutexes.states.iter().enumerate() {
            if !state.turn.try_lock() {
                let rank = mutexes.before.partition_point(|before| *before <= number) - 1;
                return Some((Rank(rank as u32), number - mutexes.before[rank]));
            }
            if state.is_unsettled.load(Relaxed) != 0 {
                let finished = mutexes.finish_release(number);
                mutexes.note_loss(number, &finished);
            }
            // SAFETY: it was taken above.
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
