//! One-sided operations that are not complete yet.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use hydrant_conduit::{Posted, Ticket};

use super::wait::{For, On};
use crate::{Result, job::Core};

type Outcome = std::result::Result<(), hydrant_conduit::Error>;

/// The operations under way, and those that ended and were not asked for yet.
#[derive(Default)]
pub(crate) struct Pending {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Under way.
    open: HashSet<u64>,
    /// Writes under way that are locally complete.
    left: HashSet<u64>,
    ended: HashMap<u64, Outcome>,
}

impl Pending {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation was posted; if another thread's poll was quick, it has ended already.
    pub(crate) fn post(&self, ticket: Ticket) {
        let mut state = self.state();
        if !state.ended.contains_key(&ticket.0) {
            state.open.insert(ticket.0);
        }
    }

    /// The operation was not begun after all.
    pub(crate) fn forget(&self, ticket: Ticket) {
        self.state().open.remove(&ticket.0);
    }

    /// The conduit says that a write no longer needs its source.
    pub(crate) fn leave(&self, ticket: Ticket) {
        self.state().left.insert(ticket.0);
    }

    /// The conduit says that an operation ended.
    pub(crate) fn complete(&self, ticket: Ticket, outcome: Outcome) {
        let mut state = self.state();
        state.open.remove(&ticket.0);
        state.left.remove(&ticket.0);
        state.ended.insert(ticket.0, outcome);
    }

    /// The outcome of an operation, once.
    pub(crate) fn take(&self, ticket: Ticket) -> Option<Outcome> {
        self.state().ended.remove(&ticket.0)
    }
}

impl Core {
    /// Waits until a write no longer needs its source: local completion.
    pub(crate) fn finish_local(&self, posted: Posted) -> Result<()> {
        let Posted::Pending(ticket) = posted else {
            return Ok(());
        };
        self.wait(On::Nobody, For::Message, || {
            let state = self.pending.state();
            state.left.contains(&ticket.0) || !state.open.contains(&ticket.0)
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

    /// Waits until every operation posted so far is complete, whatever other threads post
    /// meanwhile.
    pub(crate) fn finish_all(&self) -> Result<()> {
        let mut posted = self.pending.state().open.clone();
        self.wait(On::Nobody, For::Message, || {
            if !posted.is_empty() {
                let state = self.pending.state();
                posted.retain(|ticket| state.open.contains(ticket));
            }
            posted.is_empty()
        })
    }
}
