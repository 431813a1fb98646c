//! What a poll finds, and who gets it.

use std::sync::{Arc, Weak};

use hydrant_conduit::{Delivery, Error, ReplyPort, Sink, Standing, Ticket};

use super::Progress;
use crate::{Rank, counters::Count};

/// How an operation ended.
pub(crate) type Outcome = std::result::Result<(), Error>;

/// Who gets the messages of a [kind](super::kind).
pub(crate) trait Route: Send + Sync {
    /// A request came. Requests of one peer come in the order sent.
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort);

    /// A reply came. A kind that nobody is asked in has none.
    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        progress.malformed(delivery.from, "a reply of unknown kind");
    }

    /// The standing of some rank has changed: what waits for one that has ended waits in vain.
    fn peers_ended(&self) {}
}

/// Who is told of what becomes of one-sided operations, and of the peers that take part in them.
pub(crate) trait Operations: Send + Sync {
    /// A write no longer needs its source: local completion.
    fn local(&self, ticket: Ticket);

    /// An operation ended: remote completion.
    fn complete(&self, ticket: Ticket, outcome: Outcome);

    /// Whether somebody else than the application may wait for what follows from the end of an
    /// operation, which it is not told of yet.
    fn is_awaited(&self, ticket: Ticket) -> bool;

    /// Returns whether no operation is in flight.
    fn is_idle(&self) -> bool;

    /// There may be room for the messages of the [backlog](super::backlog).
    fn flush(&self);

    /// Standings have changed so often: some rank may have ended.
    fn look_for_ended(&self, changes: u64);
}

/// Where a poll puts what it finds.
pub(crate) struct Arrivals<'a> {
    progress: &'a Progress,
    /// Who is told of operations, once one has ended.
    operations: Option<Arc<dyn Operations>>,
}

impl Progress {
    /// Where a poll, or time that passes otherwise, puts what it finds.
    pub(crate) fn arrivals(&self) -> Arrivals<'_> {
        Arrivals {
            progress: self,
            operations: None,
        }
    }

    /// A peer broke a rule of a room above: it is expelled.
    #[cold]
    pub(crate) fn malformed(&self, peer: Rank, what: &'static str) {
        self.arrivals().malformed(Error::Malformed { peer, what });
    }

    /// Tells those who are told of operations. They may be gone with the job, and then nobody is
    /// left who would wait for one.
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
    /// As [`tell_operations`](Progress::tell_operations), looked up once for all that a poll finds.
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
            tracing::error!(%error, "a message was thrown away");
            return;
        };
        // What a rank that has ended sent before may be about what was forgotten with it; to a rank that
        // is lost itself all others look as if they had; and one that leaves forgets what it asked.
        let has_ended = progress.conduit.standing(sender) != Standing::Present;
        if has_ended || progress.is_lost_itself() || progress.is_stopped() {
            tracing::debug!(%error, "a message was thrown away: its sender or this rank has ended");
            return;
        }
        tracing::error!(%error, "a message was thrown away, and its sender is expelled");
        // Before the loss can be seen: whoever is told of it asks what it follows from.
        progress.faults.note(error);
        progress.conduit.expel(sender);
    }

    fn send_waiting(&mut self) -> bool {
        self.progress.flush_backlog();
        self.progress.has_backlog()
    }

    fn is_awaited(&mut self, ticket: Ticket) -> bool {
        let operations = self.progress.operations();
        operations.is_some_and(|operations| operations.is_awaited(ticket))
    }
}
