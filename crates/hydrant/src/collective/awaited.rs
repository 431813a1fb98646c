//! What a collective waits for: a word of its scratch that another member stores, any of several, or the end
//! of a write of its own.
//!
//! Who blocks waits for it as for anything else. A collective that goes on while the program
//! computes leaves it to the [queue](super::queue), which looks whether it has come.

use std::{future::poll_fn, sync::atomic::Ordering::Acquire, task::Poll};

use hydrant_conduit::Ticket;

use super::team::{QUEUED, Team, TeamShared};
use crate::{
    Rank, Result,
    progress::{For, On},
    transfer::Write,
};

/// What is to be in a team's scratch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaited {
    /// This value, in the word at this place.
    Word(usize, u64),
    /// A count of chunks beyond that of this value, in the same use of a channel.
    CountBeyond(usize, u64),
    /// The end of a write of this member's own.
    WriteEnd(Ticket),
    /// On a board, something else than when it [version](super::board::Board::version) so.
    BoardChange(u64),
}

impl Team {
    /// Waits for a word that some of `members` bring about.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if one of them ended first.
    #[inline]
    pub(super) async fn until(&self, members: &[Rank], awaited: Awaited) -> Result<()> {
        self.until_with(On::Ranks(members), awaited).await
    }

    /// As [`until`](Self::until).
    #[inline]
    pub(super) async fn until_with(&self, on: On<'_>, awaited: Awaited) -> Result<()> {
        let is_here = || self.has(awaited);
        if self.state() != QUEUED {
            let waited = (self.progress).wait(on, For::Flag, is_here);
            return waited.or_else(|cause| {
                // What was done before the end still counts.
                self.progress.drain();
                if is_here() { Ok(()) } else { Err(cause) }
            });
        }
        poll_fn(|_| {
            if is_here() {
                return Poll::Ready(Ok(()));
            }
            let changes = self.progress.conduit().changes();
            match self.progress.in_vain(on, For::Flag) {
                None => {
                    self.queue.set_awaited(awaited, changes);
                    Poll::Pending
                }
                Some(cause) => {
                    // What was done before the end still counts.
                    self.progress.drain();
                    Poll::Ready(if is_here() { Ok(()) } else { Err(cause) })
                }
            }
        })
        .await
    }
}

impl Team {
    /// Waits for what all members bring about of the data of a collective that was agreed on. If one of them ended first, this
    /// member [gives it up](TeamShared::abandon).
    ///
    /// # Errors
    /// As of [`until`](Self::until).
    #[inline]
    pub(super) async fn until_data(&self, awaited: Awaited) -> Result<()> {
        let outcome = self.until(&self.members, awaited).await;
        outcome.inspect_err(|_| self.abandon())
    }

    /// Waits until a write of this member's own is over.
    ///
    /// # Errors
    /// What befell it.
    pub(super) async fn until_write_ends(&self, mut write: Write<'_>) -> Result<()> {
        if self.state() != QUEUED {
            return write.finish();
        }
        poll_fn(|_| {
            let changes = self.progress.conduit().changes();
            match (write.end(), write.ticket()) {
                (Some(end), _) => Poll::Ready(end),
                (None, None) => Poll::Ready(Ok(())),
                // Nobody polls any more, but to have this end.
                _ if self.progress.is_stopped() || self.progress.is_lost_itself() => {
                    Poll::Ready(write.finish())
                }
                (None, Some(ticket)) => {
                    self.queue.set_awaited(Awaited::WriteEnd(ticket), changes);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Looks after messages, in the midst of a long copy; or has who goes on with the collective do so first.
    #[cold]
    pub(super) async fn poll_between_copies(&self) {
        if self.state() != QUEUED {
            self.progress.look_round();
            return;
        }
        let mut is_first = true;
        poll_fn(|_| {
            if std::mem::take(&mut is_first) {
                self.queue.pause();
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }
}

impl TeamShared {
    /// Whether it is there.
    #[inline]
    pub(super) fn has(&self, awaited: Awaited) -> bool {
        let at = |at| self.scratch.atomic_u64(at).map(|word| word.load(Acquire));
        match awaited {
            Awaited::Word(place, value) => at(place) == Ok(value),
            Awaited::CountBeyond(place, value) => {
                at(place).is_ok_and(|count| count >> 8 == value >> 8 && count != value)
            }
            Awaited::WriteEnd(ticket) => {
                (self.transfer.upgrade()).is_none_or(|transfer| transfer.has_ended(ticket))
            }
            Awaited::BoardChange(version) => self
                .board
                .as_ref()
                .is_some_and(|board| board.version() != version),
        }
    }
}
