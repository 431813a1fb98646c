//! Errands: background work that every poll advances until it is over. Background collectives are
//! errands.
//!
//! Waits and polls advance errands, and the service thread stays awake for them as for
//! [tasks](super::tasks). A thread that is about to sleep first checks for a ready errand. A writer
//! that makes an errand ready notifies the rank, as it would a sleeping waiter. Without errands all
//! this costs one load.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
};

use super::{For, On, Progress};
use crate::Result;

/// Work that is advanced by polls.
pub(crate) trait Errand: Send + Sync {
    /// Does the steps that are possible now. Does nothing if another thread is at it.
    fn advance(&self);

    /// Returns whether a step is possible now. It only reads state: conduits call it within a
    /// sleep.
    fn is_ready(&self) -> bool;
}

impl Progress {
    /// Adds an errand.
    pub(crate) fn begin_errand(&self, errand: Arc<dyn Errand>) {
        let mut errands = self.errands.lock();
        errands.push(errand);
        self.errands_open.store(errands.len() as u32, SeqCst);
        drop(errands);
        self.task_begins();
    }

    /// Removes an errand that is over.
    pub(crate) fn end_errand(&self, errand: &dyn Errand) {
        let mut errands = self.errands.lock();
        let at = (errands.iter()).position(|other| ptr::addr_eq(&raw const **other, errand));
        let over = at.map(|at| errands.swap_remove(at));
        self.errands_open.store(errands.len() as u32, SeqCst);
        drop(errands);
        if over.is_some() {
            self.task_ends();
            self.wake_sleepers();
        }
    }

    /// Returns whether there are errands.
    #[inline]
    pub(crate) fn has_errands(&self) -> bool {
        self.errands_open.load(Relaxed) != 0
    }

    /// Advances all errands.
    #[inline]
    pub(crate) fn advance_errands(&self) {
        if self.has_errands() {
            self.advance_each();
        }
    }

    #[cold]
    fn advance_each(&self) {
        // An errand may add and remove others.
        let errands = self.errands.lock().clone();
        errands.iter().for_each(|errand| errand.advance());
    }

    /// Waits until there are no errands.
    pub(crate) fn finish_errands(&self) -> Result<()> {
        // Errands end even if peers are lost.
        self.wait(On::Nobody, For::Message, || !self.has_errands())
    }

    /// Returns whether one of the errands has a possible step.
    #[inline]
    pub(super) fn has_ready_errand(&self) -> bool {
        self.has_errands() && (self.errands.lock().iter()).any(|errand| errand.is_ready())
    }
}
