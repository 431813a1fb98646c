//! One-sided operations in flight: one map, with one look-up at the post, one at the end and
//! one when the outcome is taken.

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

use super::{OperationHolds, Transfer, orphan::Orphan};
use crate::{
    Error, Result,
    progress::{For, On},
    registration::{self, Registration},
};

/// The outcome of an operation.
pub(super) type OperationResult = std::result::Result<(), OperationFailure>;

/// The reason why an operation failed.
pub(super) enum OperationFailure {
    /// The conduit reported the failure.
    Network(hydrant_conduit::Error),
    /// The engine reported the failure.
    Registration(hydrant_pinning::Error),
}

impl From<OperationFailure> for Error {
    fn from(failure: OperationFailure) -> Self {
        match failure {
            OperationFailure::Network(cause) => cause.into(),
            OperationFailure::Registration(cause) => registration::failed(cause),
        }
    }
}

/// Operations in flight, and outcomes that were not taken yet.
#[derive(Default)]
pub(super) struct InFlight {
    entries: Mutex<Entries>,
}

type Entries = FxHashMap<u64, InFlightEntry>;

enum InFlightEntry {
    /// Locally complete, though the poster has not entered it yet.
    SourceFree,
    Open(OpenOperation),
    Ended(OperationResult),
}

struct OpenOperation {
    /// `None` while the end is being handled.
    held: Option<OperationHolds>,
    /// True if it is locally complete.
    source_free: bool,
    /// The receiver of the outcome, other than a blocking waiter.
    receiver: OutcomeReceiver,
}

/// The receiver of an operation's outcome.
enum OutcomeReceiver {
    /// None so far.
    None,
    /// A task, to be woken.
    Task(Waker),
    /// None ever. The end frees the buffer.
    Orphan(Orphan),
}

impl InFlightEntry {
    /// Returns whether somebody may wait for the operation. Nobody waits for a piece of the
    /// engine.
    fn is_open(&self) -> bool {
        match self {
            InFlightEntry::Open(open) => !open.held.as_ref().is_some_and(OperationHolds::is_piece),
            InFlightEntry::SourceFree | InFlightEntry::Ended(_) => false,
        }
    }
}

/// The state of an operation, for a caller that takes the outcome.
pub(crate) enum OperationState {
    /// The operation has ended. Its outcome is returned once.
    Ended(Result<()>),
    /// The operation is in flight.
    InFlight,
    /// The outcome was taken before.
    Taken,
}

impl InFlight {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }

    /// Returns whether no operation is in flight.
    pub(super) fn is_idle(&self) -> bool {
        !self.entries().values().any(InFlightEntry::is_open)
    }

    /// Enters a posted operation. If another thread's poll has seen its end already, returns its
    /// holds and outcome. Then the caller handles the end, and calls [`end`](Self::end).
    #[must_use = "the end of the operation must be handled"]
    pub(super) fn post(
        &self,
        ticket: Ticket,
        held: OperationHolds,
        source_free: bool,
    ) -> Option<(OperationHolds, OperationResult)> {
        let open = |held, source_free| {
            InFlightEntry::Open(OpenOperation {
                held,
                source_free,
                receiver: OutcomeReceiver::None,
            })
        };
        match self.entries().entry(ticket.0) {
            Vacant(place) => {
                place.insert(open(Some(held), source_free));
                None
            }
            Occupied(mut found) => {
                let source_free = source_free || matches!(found.get(), InFlightEntry::SourceFree);
                match found.insert(open(None, source_free)) {
                    InFlightEntry::Ended(outcome) => Some((held, outcome)),
                    _ => {
                        found.insert(open(Some(held), source_free));
                        None
                    }
                }
            }
        }
    }

    /// Removes an operation that was not begun after all, or that nobody waits for. Returns its
    /// holds.
    pub(super) fn forget(&self, ticket: Ticket) -> Option<OperationHolds> {
        match self.entries().remove(&ticket.0) {
            Some(InFlightEntry::Open(open)) => open.held,
            _ => None,
        }
    }

    /// Notes that a write no longer needs its source, as the conduit reports.
    pub(super) fn mark_source_free(&self, ticket: Ticket) {
        if let InFlightEntry::Open(open) = self
            .entries()
            .entry(ticket.0)
            .or_insert(InFlightEntry::SourceFree)
        {
            open.source_free = true;
        }
    }

    /// As [`mark_source_free`](Self::mark_source_free), for an operation that was entered before
    /// and may have ended.
    pub(super) fn mark_source_free_if_open(&self, ticket: Ticket) {
        if let Some(InFlightEntry::Open(open)) = self.entries().get_mut(&ticket.0) {
            open.source_free = true;
        }
    }

    /// Notes the end of an operation, as the conduit reports it. Returns the holds to be given
    /// back, either before the end is [known](Self::end) or after it.
    pub(super) fn complete(&self, ticket: Ticket, outcome: OperationResult) -> Completed {
        let mut completed = Completed::default();
        match self.entries().entry(ticket.0) {
            // The poster has not entered it yet.
            Vacant(place) => _ = place.insert(InFlightEntry::Ended(outcome)),
            Occupied(mut found) => {
                let held = match found.get_mut() {
                    InFlightEntry::Open(open) => open.held.take(),
                    InFlightEntry::SourceFree | InFlightEntry::Ended(_) => None,
                };
                match held {
                    Some(first) if first.precedes_end() => {
                        completed.before_end = Some((first, outcome))
                    }
                    rest => {
                        completed.after_end = rest;
                        completed.notice = close(found, outcome);
                    }
                }
            }
        }
        completed
    }

    /// Returns whether a task or a peer may wait for the consequences of an operation's end.
    pub(super) fn is_awaited(&self, ticket: Ticket, registration: Option<&Registration>) -> bool {
        let entries = self.entries();
        let Some(InFlightEntry::Open(open)) = entries.get(&ticket.0) else {
            return false;
        };
        let held = open.held.as_ref().zip(registration);
        matches!(open.receiver, OutcomeReceiver::Task(_))
            || held.is_some_and(|(held, registration)| held.is_awaited(registration))
    }

    /// Makes the outcome known, because its consequences are done. Returns the notice to deliver.
    pub(super) fn end(&self, ticket: Ticket, outcome: OperationResult) -> EndNotice {
        match self.entries().entry(ticket.0) {
            Occupied(found) => close(found, outcome),
            Vacant(_) => {
                debug_assert!(false, "an operation that ends is in flight");
                EndNotice::None
            }
        }
    }

    /// Returns whether the operation has ended.
    pub(super) fn has_ended(&self, ticket: Ticket) -> bool {
        !matches!(
            self.entries().get(&ticket.0),
            Some(InFlightEntry::Open(_) | InFlightEntry::SourceFree)
        )
    }

    /// Takes the outcome of an operation, if it has ended.
    pub(super) fn take(&self, ticket: Ticket) -> OperationState {
        match self.entries().entry(ticket.0) {
            Vacant(_) => OperationState::Taken,
            Occupied(found) if matches!(found.get(), InFlightEntry::Ended(_)) => {
                match found.remove() {
                    InFlightEntry::Ended(end) => OperationState::Ended(end.map_err(Error::from)),
                    InFlightEntry::SourceFree | InFlightEntry::Open(_) => OperationState::Taken,
                }
            }
            Occupied(_) => OperationState::InFlight,
        }
    }

    /// Has the end of the operation wake a task. Returns `false` if it has ended, and the waker
    /// that was replaced. The caller drops that waker without a lock held, because the drop is code
    /// of the program.
    pub(super) fn wake_at_end(&self, ticket: Ticket, waker: &Waker) -> (bool, Option<Waker>) {
        // A waker's `clone` is code of the program, too.
        let waker = waker.clone();
        let mut entries = self.entries();
        let Some(InFlightEntry::Open(open)) = entries.get_mut(&ticket.0) else {
            return (false, None);
        };
        match std::mem::replace(&mut open.receiver, OutcomeReceiver::Task(waker)) {
            OutcomeReceiver::Task(before) => (true, Some(before)),
            OutcomeReceiver::None | OutcomeReceiver::Orphan(_) => (true, None),
        }
    }

    /// Abandons an operation: its end frees the buffer. Returns the notice to deliver if it has
    /// ended, and the replaced waker, as [`wake_at_end`](Self::wake_at_end).
    pub(super) fn abandon(&self, ticket: Ticket, orphan: Orphan) -> (EndNotice, Option<Waker>) {
        match self.entries().entry(ticket.0) {
            Vacant(_) => (EndNotice::Free(orphan, Ok(())), None),
            Occupied(mut found) => {
                if let InFlightEntry::Open(open) = found.get_mut() {
                    let before =
                        std::mem::replace(&mut open.receiver, OutcomeReceiver::Orphan(orphan));
                    let OutcomeReceiver::Task(waker) = before else {
                        return (EndNotice::None, None);
                    };
                    return (EndNotice::None, Some(waker));
                }
                let InFlightEntry::Ended(end) = found.remove() else {
                    debug_assert!(false, "an operation with a ticket was posted");
                    return (EndNotice::None, None);
                };
                (EndNotice::Free(orphan, end), None)
            }
        }
    }

    /// Takes the wakers of all waiting tasks, because nobody polls for their operations any more.
    pub(super) fn take_wakers(&self) -> Vec<Waker> {
        let mut entries = self.entries();
        let tasks = entries.values_mut().filter_map(|entry| match entry {
            InFlightEntry::Open(open) => {
                match std::mem::replace(&mut open.receiver, OutcomeReceiver::None) {
                    OutcomeReceiver::Task(waker) => Some(waker),
                    other => {
                        open.receiver = other;
                        None
                    }
                }
            }
            _ => None,
        });
        tasks.collect()
    }
}

/// The consequences of an operation's end, in this order.
#[derive(Default)]
pub(super) struct Completed {
    /// Holds to give back before the end is known.
    pub(super) before_end: Option<(OperationHolds, OperationResult)>,
    /// Holds to give back after the end is known.
    pub(super) after_end: Option<OperationHolds>,
    /// The notice to deliver.
    pub(super) notice: EndNotice,
}

/// The notice of an operation's end, other than to a blocking waiter.
#[derive(Default)]
pub(super) enum EndNotice {
    #[default]
    None,
    /// Wake this task.
    Wake(Waker),
    /// Free the buffer of an abandoned operation, and report its failure.
    Free(Orphan, OperationResult),
}

/// Keeps the outcome of an operation until it is taken. Returns the notice to deliver.
fn close(mut found: OccupiedEntry<'_, u64, InFlightEntry>, outcome: OperationResult) -> EndNotice {
    let receiver = match found.get_mut() {
        InFlightEntry::Open(open) => std::mem::replace(&mut open.receiver, OutcomeReceiver::None),
        InFlightEntry::SourceFree | InFlightEntry::Ended(_) => OutcomeReceiver::None,
    };
    if let OutcomeReceiver::Orphan(orphan) = receiver {
        found.remove();
        return EndNotice::Free(orphan, outcome);
    }
    found.insert(InFlightEntry::Ended(outcome));
    match receiver {
        OutcomeReceiver::Task(waker) => EndNotice::Wake(waker),
        OutcomeReceiver::None | OutcomeReceiver::Orphan(_) => EndNotice::None,
    }
}

impl Transfer {
    /// Takes the outcome of an operation, if it has ended.
    pub(crate) fn outcome(&self, ticket: Ticket) -> OperationState {
        self.in_flight.take(ticket)
    }

    /// Waits until a write no longer needs its source: local completion.
    pub(crate) fn finish_local(&self, posted: Posted) -> Result<()> {
        let Posted::Pending(ticket) = posted else {
            return Ok(());
        };
        self.progress.wait(On::Nobody, For::Message, || {
            let entries = self.in_flight.entries();
            !matches!(
                entries.get(&ticket.0),
                Some(InFlightEntry::Open(OpenOperation {
                    source_free: false,
                    ..
                }))
            )
        })
    }

    /// Waits until the operation is complete. Neither returns nor
    /// [unwinds](crate::progress::Progress::abort_on_unwind) before, because its memory is in use until
    /// then. Conduits end the operations with a lost peer.
    pub(crate) fn finish(&self, posted: Posted) -> Result<()> {
        match posted {
            Posted::Pending(ticket) => self.finish_one(On::Nobody, ticket),
            Posted::Done => Ok(()),
        }
    }

    /// As [`finish`](Self::finish). `on` names the ranks whose actions the operation may need.
    pub(crate) fn finish_one(&self, on: On<'_>, ticket: Ticket) -> Result<()> {
        let mut state = OperationState::InFlight;
        self.progress.abort_on_unwind(|| {
            self.progress.wait(on, For::Message, || {
                state = self.in_flight.take(ticket);
                !matches!(state, OperationState::InFlight)
            })
        })?;
        match state {
            OperationState::Ended(outcome) => outcome.map_err(|cause| self.why_ended(cause)),
            // The first taker got the outcome.
            OperationState::Taken | OperationState::InFlight => Ok(()),
        }
    }

    /// Returns the reason why an operation with a peer that has left ended.
    #[cold]
    fn why_ended(&self, cause: crate::Error) -> crate::Error {
        match cause {
            crate::Error::PeerLost(rank) => self.progress.why_gone(rank),
            other => other,
        }
    }

    /// Orders this rank's puts: each peer sees the earlier ones no later than the later ones.
    ///
    /// # Errors
    /// [`Error::PeerLost`] of a wait.
    pub(crate) fn fence(&self) -> Result<()> {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.progress.poll_memory();
        // No conduit orders pending operations so far, so this waits for them.
        self.finish_all()
    }

    /// Waits until all puts and gets of this rank so far are remotely complete.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if any rank is lost, because a put by a plain store does not notice
    /// that.
    pub(crate) fn quiet(&self) -> Result<()> {
        self.fence()?;
        self.progress.check_all_present()
    }

    /// Waits until all operations posted so far are complete, including begun chains of operations.
    /// Ignores operations that other threads post meanwhile.
    pub(crate) fn finish_all(&self) -> Result<()> {
        self.progress.finish_chains()?;
        let mut posted: Vec<u64> = (self.in_flight.entries().iter())
            .filter(|(_, entry)| entry.is_open())
            .map(|(ticket, _)| *ticket)
            .collect();
        self.progress.wait(On::Nobody, For::Message, || {
            if !posted.is_empty() {
                let entries = self.in_flight.entries();
                posted.retain(|ticket| entries.get(ticket).is_some_and(InFlightEntry::is_open));
            }
            posted.is_empty()
        })
    }
}
