//! One-sided operations that are not complete yet: one map, looked at once when an operation is
//! posted, once when it ends and once when its end is asked for.

use std::{
    collections::hash_map::{
        Entry::{Occupied, Vacant},
        OccupiedEntry,
    },
    task::Waker,
};

use hydrant_conduit::{Posted, Ticket};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use super::{Held, Transfer, orphan::Orphan};
use crate::{
    Error, Result,
    progress::{For, On},
    registration::{self, Registration},
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
    entries: Mutex<Entries>,
}

type Entries = FxHashMap<u64, Entry>;

enum Entry {
    /// Locally complete; who posted it has not said so yet.
    Left,
    Open(Open),
    Ended(End),
}

struct Open {
    /// None while its end is being seen to.
    held: Option<Held>,
    /// Whether it is locally complete.
    left: bool,
    /// Who asks for its end, other than by waiting.
    asker: Asker,
}

/// Who asks for the end of an operation.
enum Asker {
    /// Nobody so far.
    Nobody,
    /// A task, which is woken.
    Task(Waker),
    /// Nobody ever will. The memory that it uses is freed.
    Orphan(Orphan),
}

impl Entry {
    /// Whether somebody may wait for it: nobody does for what the engine has under way.
    fn is_open(&self) -> bool {
        match self {
            Entry::Open(open) => !open.held.as_ref().is_some_and(Held::is_piece),
            Entry::Left | Entry::Ended(_) => false,
        }
    }
}

/// Whether an operation has ended, for who looks.
pub(crate) enum Look {
    /// It has: this is how, once.
    Ended(Result<()>),
    /// It has not.
    Open,
    /// How it ended was asked for before.
    Gone,
}

impl UnderWay {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }

    /// Returns whether no operation is in flight.
    pub(super) fn is_idle(&self) -> bool {
        !self.entries().values().any(Entry::is_open)
    }

    /// An operation was posted. If another thread's poll was quick it has ended already: then
    /// what is to be done about that is handed back, and [`end`](Self::end) is due.
    #[must_use = "an operation that has ended is to be ended"]
    pub(super) fn post(&self, ticket: Ticket, held: Held, left: bool) -> Option<(Held, End)> {
        let open = |held, left| {
            Entry::Open(Open {
                held,
                left,
                asker: Asker::Nobody,
            })
        };
        match self.entries().entry(ticket.0) {
            Vacant(place) => {
                place.insert(open(Some(held), left));
                None
            }
            Occupied(mut found) => {
                let left = left || matches!(found.get(), Entry::Left);
                match found.insert(open(None, left)) {
                    Entry::Ended(outcome) => Some((held, outcome)),
                    _ => {
                        found.insert(open(Some(held), left));
                        None
                    }
                }
            }
        }
    }

    /// The operation was not begun after all.
    pub(super) fn forget(&self, ticket: Ticket) -> Option<Held> {
        match self.entries().remove(&ticket.0) {
            Some(Entry::Open(open)) => open.held,
            _ => None,
        }
    }

    /// The conduit says that a write no longer needs its source.
    pub(super) fn left(&self, ticket: Ticket) {
        if let Entry::Open(open) = self.entries().entry(ticket.0).or_insert(Entry::Left) {
            open.left = true;
        }
    }

    /// As [`left`](Self::left), of a write that was said to be under way before, and may have ended.
    pub(super) fn left_if_open(&self, ticket: Ticket) {
        if let Some(Entry::Open(open)) = self.entries().get_mut(&ticket.0) {
            open.left = true;
        }
    }

    /// The conduit says that an operation ended. What is to be done about it is handed back:
    /// before that is [known](Self::end) where somebody would see what is not done, after it
    /// where nobody does.
    pub(super) fn complete(&self, ticket: Ticket, outcome: End) -> Completed {
        let mut completed = Completed::default();
        match self.entries().entry(ticket.0) {
            // Who posted it has not said so yet.
            Vacant(place) => _ = place.insert(Entry::Ended(outcome)),
            Occupied(mut found) => {
                let held = match found.get_mut() {
                    Entry::Open(open) => open.held.take(),
                    Entry::Left | Entry::Ended(_) => None,
                };
                match held {
                    Some(first) if first.comes_first() => completed.first = Some((first, outcome)),
                    rest => {
                        completed.rest = rest;
                        completed.asked = close(found, outcome);
                    }
                }
            }
        }
        completed
    }

    /// Whether somebody else than the application may wait for what follows from an operation's end: a
    /// task, or a peer.
    pub(super) fn is_awaited(&self, ticket: Ticket, registration: Option<&Registration>) -> bool {
        let entries = self.entries();
        let Some(Entry::Open(open)) = entries.get(&ticket.0) else {
            return false;
        };
        let held = open.held.as_ref().zip(registration);
        matches!(open.asker, Asker::Task(_))
            || held.is_some_and(|(held, registration)| held.is_awaited(registration))
    }

    /// All is done: whoever waits for the operation may know. Who has asked is handed back.
    pub(super) fn end(&self, ticket: Ticket, outcome: End) -> Asked {
        match self.entries().entry(ticket.0) {
            Occupied(found) => close(found, outcome),
            Vacant(_) => {
                debug_assert!(false, "an operation that ends is under way");
                Asked::Not
            }
        }
    }

    /// Whether nothing of it is to be waited for.
    pub(super) fn has_ended(&self, ticket: Ticket) -> bool {
        !matches!(
            self.entries().get(&ticket.0),
            Some(Entry::Open(_) | Entry::Left)
        )
    }

    /// The outcome of an operation, once.
    pub(super) fn take(&self, ticket: Ticket) -> Look {
        match self.entries().entry(ticket.0) {
            Vacant(_) => Look::Gone,
            Occupied(found) if matches!(found.get(), Entry::Ended(_)) => match found.remove() {
                Entry::Ended(end) => Look::Ended(end.map_err(Error::from)),
                Entry::Left | Entry::Open(_) => Look::Gone,
            },
            Occupied(_) => Look::Open,
        }
    }

    /// Has a task be woken when the operation has ended, if it has not yet: whether it will be. And
    /// who was to be woken before, to be dropped when nothing is locked: what that does is the
    /// program's affair.
    pub(super) fn wake_at_end(&self, ticket: Ticket, waker: &Waker) -> (bool, Option<Waker>) {
        // So is what cloning does.
        let waker = waker.clone();
        let mut entries = self.entries();
        let Some(Entry::Open(open)) = entries.get_mut(&ticket.0) else {
            return (false, None);
        };
        match std::mem::replace(&mut open.asker, Asker::Task(waker)) {
            Asker::Task(before) => (true, Some(before)),
            Asker::Nobody | Asker::Orphan(_) => (true, None),
        }
    }

    /// Nobody will ask for the end of the operation: what it uses is to be freed then, or now if it
    /// is over. And who was to be woken, as [there](Self::wake_at_end).
    pub(super) fn abandon(&self, ticket: Ticket, orphan: Orphan) -> (Asked, Option<Waker>) {
        match self.entries().entry(ticket.0) {
            Vacant(_) => (Asked::Never(orphan, Ok(())), None),
            Occupied(mut found) => {
                if let Entry::Open(open) = found.get_mut() {
                    let before = std::mem::replace(&mut open.asker, Asker::Orphan(orphan));
                    let Asker::Task(waker) = before else {
                        return (Asked::Not, None);
                    };
                    return (Asked::Not, Some(waker));
                }
                let Entry::Ended(end) = found.remove() else {
                    debug_assert!(false, "who has the ticket has posted the operation");
                    return (Asked::Not, None);
                };
                (Asked::Never(orphan, end), None)
            }
        }
    }

    /// Who asked for the end of an operation and will not learn of it, because nobody looks after it
    /// any more.
    pub(super) fn askers(&self) -> Vec<Waker> {
        let mut entries = self.entries();
        let tasks = entries.values_mut().filter_map(|entry| match entry {
            Entry::Open(open) => match std::mem::replace(&mut open.asker, Asker::Nobody) {
                Asker::Task(waker) => Some(waker),
                other => {
                    open.asker = other;
                    None
                }
            },
            _ => None,
        });
        tasks.collect()
    }
}

/// What is to be done about the end of an operation, in this order.
#[derive(Default)]
pub(super) struct Completed {
    /// This, before whoever waits knows.
    pub(super) first: Option<(Held, End)>,
    /// Who waits knows; this is to be done.
    pub(super) rest: Option<Held>,
    /// Who is to be told.
    pub(super) asked: Asked,
}

/// Who asked for the end of an operation that has ended, other than by waiting.
#[derive(Default)]
pub(super) enum Asked {
    #[default]
    Not,
    /// A task, which is to be woken.
    ByTask(Waker),
    /// Nobody ever will: this is to be freed, and nobody else says how it ended.
    Never(Orphan, End),
}

/// Keeps how an operation ended for who asks. Who has asked is handed back.
fn close(mut found: OccupiedEntry<'_, u64, Entry>, outcome: End) -> Asked {
    let asker = match found.get_mut() {
        Entry::Open(open) => std::mem::replace(&mut open.asker, Asker::Nobody),
        Entry::Left | Entry::Ended(_) => Asker::Nobody,
    };
    if let Asker::Orphan(orphan) = asker {
        found.remove();
        return Asked::Never(orphan, outcome);
    }
    found.insert(Entry::Ended(outcome));
    match asker {
        Asker::Task(waker) => Asked::ByTask(waker),
        Asker::Nobody | Asker::Orphan(_) => Asked::Not,
    }
}

impl Transfer {
    /// The outcome of an operation, if it has ended, once.
    pub(crate) fn outcome(&self, ticket: Ticket) -> Look {
        self.under_way.take(ticket)
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
                Some(Entry::Open(Open { left: false, .. }))
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
        let mut look = Look::Open;
        self.progress.to_the_end(|| {
            self.progress.wait(on, For::Message, || {
                look = self.under_way.take(ticket);
                !matches!(look, Look::Open)
            })
        })?;
        match look {
            Look::Ended(outcome) => outcome.map_err(|cause| self.why_ended(cause)),
            // Who asked for it before was told.
            Look::Gone | Look::Open => Ok(()),
        }
    }

    /// The reason why an operation with a peer that has left ended.
    #[cold]
    fn why_ended(&self, cause: crate::Error) -> crate::Error {
        match cause {
            crate::Error::PeerLost(rank) => self.progress.gone(rank),
            other => other,
        }
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
    /// meanwhile, and all that was begun of several steps.
    pub(crate) fn finish_all(&self) -> Result<()> {
        self.progress.finish_chains()?;
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
