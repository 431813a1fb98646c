//! Sends messages, and waits until messages were handled.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use hydrant_conduit::{Message, Sent};
use hydrant_pinning::Hot;

use super::{For, On, Progress};
use crate::{Error, Rank, Result, counters::Count};

impl Progress {
    /// Sends a message to a rank of the job, and waits for room. Not for handlers.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost), and the conduit's error for a message that is
    /// too long.
    #[inline]
    pub(crate) fn send(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        self.settle_if_needed();
        match self.conduit.send(rank, message) {
            Ok(Sent::Yes) => Ok(()),
            Ok(Sent::Full) => self.send_with_patience(rank, message),
            Err(cause) => Err(self.why_unsent(cause)),
        }
    }

    /// Sets the part of the engine that knows of changes of own memory. Called once, where memory of the program may
    /// stay registered.
    pub(crate) fn settle_by(&self, hot: Arc<Hot>) {
        let set = self.hot.set(hot);
        debug_assert!(set.is_ok(), "changes are counted in two places");
    }

    /// Notes that peers reach memory of the program that only the monitor watches.
    pub(crate) fn lends_watched(&self) {
        self.lends_watched.store(true, Relaxed);
    }

    /// Settles changes of own memory, before a message leaves that may tell somebody of new memory. Returns true if peers
    /// have not answered yet, because the caller may not wait for them. The message must then follow those to them.
    #[inline]
    pub(crate) fn settle_if_needed(&self) -> bool {
        let is_needed = self.lends_watched.load(Relaxed) || self.is_unsettled();
        if is_needed {
            self.settle();
        }
        is_needed && self.is_unsettled()
    }

    /// Returns whether peers have not answered yet that they forgot own memory that changed.
    #[inline]
    fn is_unsettled(&self) -> bool {
        self.hot.get().is_some_and(|hot| hot.is_unsettled())
    }

    /// Returns whether a message of a handler to a rank must not leave yet: others, which tell that rank of changed memory,
    /// have not left.
    #[inline]
    pub(super) fn follows_news(&self, rank: Rank) -> bool {
        self.is_unsettled()
            && (self.operations()).is_some_and(|operations| operations.has_news_for(rank))
    }

    /// Settles changes of own memory.
    #[cold]
    fn settle(&self) {
        self.tell_operations(|operations| operations.settle());
    }

    /// Waits until `rank` has handled all messages that this rank sent to it so far.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost).
    pub(crate) fn wait_handled(&self, rank: Rank) -> Result<()> {
        let (_, sent) = self.conduit.handled(rank);
        self.wait(On::Rank(rank), For::Room, || {
            self.conduit.handled(rank).0 >= sent
        })
    }

    #[cold]
    fn send_with_patience(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        self.tally.one(Count::Stalls);
        let mut failed = None;
        self.wait(On::Rank(rank), For::Room, || {
            match self.conduit.send(rank, message) {
                Ok(sent) => sent == Sent::Yes,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        })?;
        failed.map_or(Ok(()), |error| Err(self.why_unsent(error)))
    }

    /// Returns the reason why a message was not sent or an operation not begun.
    #[cold]
    pub(crate) fn why_unsent(&self, cause: hydrant_conduit::Error) -> Error {
        match cause {
            hydrant_conduit::Error::PeerLost(rank) => self.why_gone(rank),
            other => other.into(),
        }
    }
}
