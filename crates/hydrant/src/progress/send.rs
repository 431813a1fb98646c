//! Sends messages, and waits until messages were handled.

use hydrant_conduit::{Message, Sent};

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
        match self.conduit.send(rank, message) {
            Ok(Sent::Yes) => Ok(()),
            Ok(Sent::Full) => self.send_with_patience(rank, message),
            Err(cause) => Err(self.why_unsent(cause)),
        }
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
