//! Routes the messages and completions that a poll finds.

use std::sync::{Arc, Weak};

use hydrant_conduit::{Delivery, Error, ReplyPort, Sink, Standing, Ticket};

use super::Progress;
use crate::{Rank, counters::Count};

/// The outcome of an operation.
pub(crate) type Outcome = std::result::Result<(), Error>;

/// Receives the messages of one [kind](super::kind).
pub(crate) trait Route: Send + Sync {
    /// Handles a request. Requests of one peer come in the order sent.
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort);

    /// Handles a reply. A kind without questions has no replies.
    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        progress.malformed(delivery.from, "a reply of unknown kind");
    }

    /// Called when the standing of some rank has changed. Operations that need a rank that has
    /// ended must end.
    fn peers_ended(&self) {}
}

/// Receives the completions of one-sided operations, and news of peers that take part in them.
pub(crate) trait Operations: Send + Sync {
    /// Local completion: a write no longer needs its source.
    fn local(&self, ticket: Ticket);

    /// Remote completion: an operation has ended.
    fn complete(&self, ticket: Ticket, outcome: Outcome);

    /// Returns whether something besides the application may wait for what follows from a
    /// completion that is not yet delivered.
    fn is_awaited(&self, ticket: Ticket) -> bool;

    /// Returns whether no operation is in flight.
    fn is_idle(&self) -> bool;

    /// Sends messages of the [backlog](super::backlog), for which there may be room.
    fn flush(&self);

    /// Makes changes of own memory known to the peers that reach it, and waits for their answers where the caller may
    /// wait. A message sent before that could tell somebody of memory that peers still know as it was.
    fn settle(&self);

    /// Returns whether messages about own memory that changed may wait to be sent to a rank, or be on their way in another
    /// thread.
    fn has_news_for(&self, rank: Rank) -> bool;

    /// Makes changes of own memory known without waiting.
    fn learn_changes(&self);

    /// Ends operations with ranks that may have ended. `changes`: how often standings have changed
    /// so far.
    fn handle_ended_peers(&self, changes: u64);
}

/// Receives what a poll finds.
pub(crate) struct Arrivals<'a> {
    progress: &'a Progress,
    /// The receiver of completions, once one has arrived.
    operations: Option<Arc<dyn Operations>>,
}

impl Progress {
    /// Returns the receiver of what a poll finds.
    pub(crate) fn arrivals(&self) -> Arrivals<'_> {
        Arrivals {
            progress: self,
            operations: None,
        }
    }

    /// Expels a peer that broke a rule of a room above.
    #[cold]
    pub(crate) fn malformed(&self, peer: Rank, what: &'static str) {
        self.arrivals().malformed(Error::Malformed { peer, what });
    }

    /// Calls the receiver of completions. It may be gone with the job. Then no waiter is left.
    pub(super) fn tell_operations(&self, tell: impl FnOnce(&dyn Operations)) {
        if let Some(operations) = self.operations() {
            tell(&*operations);
        }
    }

    pub(super) fn operations(&self) -> Option<Arc<dyn Operations>> {
        self.operations.get().and_then(Weak::upgrade)
    }

    fn routed(&self, kind: u8) -> Option<&dyn Route> {
        self.routes
            .get(usize::from(kind))?
            .get()
            .map(|route| &**route)
    }
}

impl Arrivals<'_> {
    /// As [`tell_operations`](Progress::tell_operations), with one lookup for all that a poll
    /// finds.
    fn tell(&mut self, tell: impl FnOnce(&dyn Operations)) {
        if self.operations.is_none() {
            self.operations = self.progress.operations();
        }
        if let Some(operations) = &self.operations {
            tell(&**operations);
        }
    }
}

impl Sink for Arrivals<'_> {
    #[inline]
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort) {
        let progress = self.progress;
        match progress.routed(delivery.kind) {
            Some(route) => route.request(progress, &delivery, port),
            None => self
                .progress
                .malformed(delivery.from, "a request of unknown kind"),
        }
    }

    #[inline]
    fn reply(&mut self, delivery: Delivery<'_>) {
        match self.progress.routed(delivery.kind) {
            Some(route) => route.reply(self.progress, &delivery),
            None => self
                .progress
                .malformed(delivery.from, "a reply of unknown kind"),
        }
    }

    fn local(&mut self, ticket: Ticket) {
        self.tell(|operations| operations.local(ticket));
    }

    fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        self.tell(|operations| operations.complete(ticket, outcome));
    }

    fn malformed(&mut self, error: Error) {
        let progress = self.progress;
        progress.tally.one(Count::Malformed);
        let Error::Malformed { peer: sender, .. } = error else {
            tracing::error!(%error, "a message was dropped");
            return;
        };
        // Such a message is no fault of the sender in three cases. A message of a rank that has
        // ended may be about state that was dropped at its end. At a rank that counts as lost, all
        // others look as if they had ended. A rank that leaves forgets what it asked.
        let has_ended = progress.conduit.standing(sender) != Standing::Present;
        if has_ended || progress.is_lost_itself() || progress.is_stopped() {
            tracing::debug!(%error, "a message was dropped: its sender or this rank has ended");
            return;
        }
        tracing::error!(%error, "a message was dropped, and its sender is expelled");
        // Noted before the loss can be seen, because a waiter that is told of the loss asks for its
        // cause.
        progress.faults.note(error);
        progress.conduit.expel(sender);
    }

    fn send_waiting(&mut self) -> bool {
        self.progress.flush_backlog();
        self.progress.has_backlog()
    }

    fn is_awaited(&self, ticket: Ticket) -> bool {
        let operations = self.progress.operations();
        operations.is_some_and(|operations| operations.is_awaited(ticket))
    }
}
