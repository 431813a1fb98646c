//! Errands: what a rank goes on with whenever one of its threads polls, until it is over. Collectives
//! that the program does not wait for are.
//!
//! Who waits or looks advances them, and the service thread is awake for them as for
//! [tasks](super::tasks). Who falls asleep asks first whether one is ready, and whoever does what it
//! needs rings as for a thread that sleeps in a wait. Without errands all this is one load.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
};

use super::{For, On, Progress};
use crate::Result;

/// Something to go on with while polling.
pub(crate) trait Errand: Send + Sync {
    /// Does what can be done now; nothing if another thread does it.
    fn advance(&self);

    /// Whether something can be done now. It only looks: conduits ask in the midst of a sleep.
    fn is_ready(&self) -> bool;
}

impl Progress {
    /// There is an errand from now on.
    pub(crate) fn begin_errand(&self, errand: Arc<dyn Errand>) {
        let mut errands = self.errands.lock();
        errands.push(errand);
        self.errands_open.store(errands.len() as u32, SeqCst);
        drop(errands);
        self.task_begins();
    }

    /// An errand is over.
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

    /// Whether there are errands.
    #[inline]
    pub(crate) fn has_errands(&self) -> bool {
        self.errands_open.load(Relaxed) != 0
    }

    /// Goes on with all errands.
    #[inline]
    pub(crate) fn advance_errands(&self) {
        if self.has_errands() {
            self.advance_each();
        }
    }

    #[cold]
    fn advance_each(&self) {
        // What an errand does may begin and end others.
        let errands = self.errands.lock().clone();
        errands.iter().for_each(|errand| errand.advance());
    }

    /// Waits until there are no errands.
    pub(crate) fn finish_errands(&self) -> Result<()> {
        // Whatever becomes of the peers, errands end.
        self.wait(On::Nobody, For::Message, || !self.has_errands())
    }

    /// Whether one of the errands can go on.
    #[inline]
    pub(super) fn has_ready_errand(&self) -> bool {
        self.has_errands() && (self.errands.lock().iter()).any(|errand| errand.is_ready())
    }
}
