//! One-sided operations that are not complete yet.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hydrant_conduit::{Posted, Ticket};

use super::wait::{For, On};
use crate::{Result, job::Core};

type Outcome = std::result::Result<(), hydrant_conduit::Error>;

/// The operations under way, and those that ended and were not asked for yet.
#[derive(Default)]
pub(crate) struct Pending {
    ended: Mutex<HashMap<u64, Outcome>>,
    /// Writes under way that are locally complete.
    left: Mutex<HashSet<u64>>,
    posted: AtomicU64,
    completed: AtomicU64,
}

impl Pending {
    fn ended(&self) -> MutexGuard<'_, HashMap<u64, Outcome>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation was posted that is not done.
    pub(crate) fn post(&self) {
        self.posted.fetch_add(1, Relaxed);
    }

    fn left(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The conduit says that a write no longer needs its source.
    pub(crate) fn leave(&self, ticket: Ticket) {
        self.left().insert(ticket.0);
    }

    /// The conduit says that an operation ended.
    pub(crate) fn complete(&self, ticket: Ticket, outcome: Outcome) {
        self.left().remove(&ticket.0);
        self.ended().insert(ticket.0, outcome);
        self.completed.fetch_add(1, Relaxed);
    }

    /// The outcome of an operation, once.
    pub(crate) fn take(&self, ticket: Ticket) -> Option<Outcome> {
        self.ended().remove(&ticket.0)
    }
}

impl Core {
    /// Waits until a write no longer needs its source: local completion.
    pub(crate) fn finish_local(&self, posted: Posted) -> Result<()> {
        let Posted::Pending(ticket) = posted else {
            return Ok(());
        };
        let ended = || self.pending.ended().contains_key(&ticket.0);
        self.wait(On::Nobody, For::Message, || {
            self.pending.left().contains(&ticket.0) || ended()
        })
    }

    /// Waits until the operation is complete. Does not return before, whatever happens: its
    /// memory is in use until then. Conduits end the operations with a lost peer.
    pub(crate) fn finish(&self, posted: Posted) -> Result<()> {
        let Posted::Pending(ticket) = posted else {
            return Ok(());
        };
        let mut outcome = None;
        self.wait(On::Nobody, For::Message, || {
            outcome = self.pending.take(ticket);
            outcome.is_some()
        })?;
        outcome.unwrap_or(Ok(())).map_err(Into::into)
    }

    /// Waits until every operation posted so far is complete.
    pub(crate) fn finish_all(&self) -> Result<()> {
        let posted = self.pending.posted.load(Relaxed);
        self.wait(On::Nobody, For::Message, || {
            self.pending.completed.load(Relaxed) >= posted
        })
    }
}
