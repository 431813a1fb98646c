//! One-sided operations that are not complete yet: one map, looked at once when an operation is
//! posted, once when it ends and once when its end is asked for.

use std::collections::hash_map::Entry::{Occupied, Vacant};

use hydrant_conduit::{Posted, Ticket};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use super::{Held, Transfer};
use crate::{
    Error, Result,
    progress::{For, On},
    registration,
};

/// How an operation ended.
pub(super) type End = std::result::Result<(), Failure>;

/// Why an operation failed, as it was said.
pub(super) enum Failure {
    /// By the conduit.
    Network(hydrant_conduit::Error),
    /// By the engine.
    Registration(hydrant_pinning::Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Network(cause) => cause.into(),
            Failure::Registration(cause) => registration::failed(cause),
        }
    }
}

/// The operations under way, and those that ended and were not asked for yet.
#[derive(Default)]
pub(super) struct UnderWay {
    entries: Mutex<FxHashMap<u64, Entry>>,
}

enum Entry {
    /// Locally complete; who posted it has not said so yet.
    Left,
    Open {
        /// None while its end is being seen to.
        held: Option<Held>,
        /// Whether it is locally complete.
        left: bool,
    },
    Ended(End),
}

impl Entry {
    /// Whether somebody may wait for it: nobody does for what the engine has under way.
    fn is_open(&self) -> bool {
        match self {
            Entry::Open { held, .. } => !held.as_ref().is_some_and(Held::is_piece),
            Entry::Left | Entry::Ended(_) => false,
        }
    }
}

impl UnderWay {
    fn entries(&self) -> MutexGuard<'_, FxHashMap<u64, Entry>> {
        self.entries.lock()
    }

    /// An operation was posted. If another thread's poll was quick it has ended already: then
    /// what is to be done about that is handed back, and [`end`](Self::end) is due.
    #[must_use = "an operation that has ended is to be ended"]
    pub(super) fn post(&self, ticket: Ticket, held: Held, left: bool) -> Option<(Held, End)> {
        match self.entries().entry(ticket.0) {
            Vacant(place) => {
                let held = Some(held);
                place.insert(Entry::Open { held, left });
                None
            }
            Occupied(mut found) => {
                let left = left || matches!(found.get(), Entry::Left);
                match found.insert(Entry::Open { held: None, left }) {
                    Entry::Ended(outcome) => Some((held, outcome)),
                    _ => {
                        let held = Some(held);
                        found.insert(Entry::Open { held, left });
                        None
                    }
                }
            }
        }
    }

    /// The operation was not begun after all.
    pub(super) fn forget(&self, ticket: Ticket) -> Option<Held> {
        match self.entries().remove(&ticket.0) {
            Some(Entry::Open { held, .. }) => held,
            _ => None,
        }
    }

    /// The conduit says that a write no longer needs its source.
    pub(super) fn left(&self, ticket: Ticket) {
        if let Entry::Open { left, .. } = self.entries().entry(ticket.0).or_insert(Entry::Left) {
            *left = true;
        }
    }

    /// The conduit says that an operation ended. What is to be done about it is handed back:
    /// before that is [known](Self::end) where somebody would see what is not done, after it
    /// where nobody does.
    pub(super) fn complete(&self, ticket: Ticket, outcome: End) -> Completed {
        match self.entries().entry(ticket.0) {
            Vacant(place) => {
                place.insert(Entry::Ended(outcome));
                Completed::Nothing
            }
            Occupied(mut found) => {
                let entry = found.get_mut();
                let held = match entry {
                    Entry::Open { held, .. } => held.take(),
                    Entry::Left | Entry::Ended(_) => None,
                };
                match held {
                    Some(first) if first.comes_first() => Completed::First(first, outcome),
                    held => {
                        *entry = Entry::Ended(outcome);
                        held.map_or(Completed::Nothing, Completed::Rest)
                    }
                }
            }
        }
    }

    /// All is done: whoever waits for the operation may know.
    pub(super) fn end(&self, ticket: Ticket, outcome: End) {
        self.entries().insert(ticket.0, Entry::Ended(outcome));
    }

    /// The outcome of an operation, once.
    pub(super) fn take(&self, ticket: Ticket) -> Option<End> {
        let mut entries = self.entries();
        let Occupied(found) = entries.entry(ticket.0) else {
            return None;
        };
        if !matches!(found.get(), Entry::Ended(_)) {
            return None;
        }
        match found.remove() {
            Entry::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }
}

/// How far the end of an operation is.
pub(super) enum Completed {
    /// Nothing is to be done.
    Nothing,
    /// Who waits knows; this is to be done.
    Rest(Held),
    /// This is to be done before whoever waits knows.
    First(Held, End),
}

impl Transfer {
    /// The outcome of an operation that has ended, once.
    pub(crate) fn outcome(&self, ticket: Ticket) -> Option<Result<()>> {
        let end = self.under_way.take(ticket)?;
        Some(end.map_err(Error::from))
    }

    /// Waits until a write no longer needs its source: local completion.
    pub(crate) fn finish_local(&self, posted: Posted) -> Result<()> {
        let Posted::Pending(ticket) = posted else {
            return Ok(());
        };
        self.progress.wait(On::Nobody, For::Message, || {
            let entries = self.under_way.entries();
            !matches!(
                entries.get(&ticket.0),
                Some(Entry::Open { left: false, .. })
            )
        })
    }

    /// Waits until the operation is complete. Does not return before, whatever happens, nor
    /// [unwind](crate::progress::Progress::to_the_end): its memory is in use until then. Conduits end the operations
    /// with a lost peer.
    pub(crate) fn finish(&self, posted: Posted) -> Result<()> {
        match posted {
            Posted::Pending(ticket) => self.finish_one(On::Nobody, ticket),
            Posted::Done => Ok(()),
        }
    }

    /// As [`finish`](Self::finish); `on` tells who may have to do something for it.
    pub(crate) fn finish_one(&self, on: On<'_>, ticket: Ticket) -> Result<()> {
        let mut outcome = None;
        self.progress.to_the_end(|| {
            self.progress.wait(on, For::Message, || {
                outcome = self.under_way.take(ticket);
                outcome.is_some()
            })
        })?;
        outcome.unwrap_or(Ok(())).map_err(Into::into)
    }

    /// Orders this rank's puts: those before are seen, by each peer, no later than those after.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) of a wait.
    pub(crate) fn fence(&self) -> Result<()> {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.progress.poll_memory();
        // Pending operations are ordered by none of today's conduits: wait for them.
        self.finish_all()
    }

    /// Waits until all puts and gets of this rank so far are complete, remotely.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if any rank is lost, for a put that is a plain
    /// store does not notice.
    pub(crate) fn quiet(&self) -> Result<()> {
        self.fence()?;
        self.progress.check_all_present()
    }

    /// Waits until every operation posted so far is complete, whatever other threads post
    /// meanwhile.
    pub(crate) fn finish_all(&self) -> Result<()> {
        let mut posted: Vec<u64> = (self.under_way.entries().iter())
            .filter(|(_, entry)| entry.is_open())
            .map(|(ticket, _)| *ticket)
            .collect();
        self.progress.wait(On::Nobody, For::Message, || {
            if !posted.is_empty() {
                let entries = self.under_way.entries();
                posted.retain(|ticket| entries.get(ticket).is_some_and(Entry::is_open));
            }
            posted.is_empty()
        })
    }
}
