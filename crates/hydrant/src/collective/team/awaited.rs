//! The conditions that a collective waits for: a word of its scratch that another member stores, a change
//! of the board, or the end of its own write.
//!
//! A blocking collective waits as any other call does. A collective in the background leaves the condition
//! to the [queue](super::queue), which checks it.

use std::{future::poll_fn, sync::atomic::Ordering::Acquire, task::Poll};

use hydrant_conduit::Ticket;

use super::{QUEUED, Team, TeamShared};
use crate::{
    Rank, Result,
    progress::{For, On},
    transfer::Write,
};

/// A condition on a team's scratch or on a write.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) enum Awaited {
    /// The word at this offset has this value.
    Word(usize, u64),
    /// The count of units at this offset is beyond this value, in the same use of the channel.
    CountBeyond(usize, u64),
    /// A write of this member has ended.
    WriteEnd(Ticket),
    /// The board's [version](crate::collective::board::Board::version) is no longer this one.
    BoardChange(u64),
}

impl Team {
    /// Waits for a condition that `members` bring about.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if one of them ended first.
    #[inline]
    pub(in crate::collective) async fn until(
        &self,
        members: &[Rank],
        awaited: Awaited,
    ) -> Result<()> {
        self.until_with(On::Ranks(members), awaited).await
    }

    /// As [`until`](Self::until), for any reason to stop waiting.
    #[inline]
    pub(in crate::collective) async fn until_with(
        &self,
        on: On<'_>,
        awaited: Awaited,
    ) -> Result<()> {
        poll_fn(|_| self.poll_until(on, awaited)).await
    }

    /// Waits for a condition in a blocking collective. In the background, checks the condition and leaves it
    /// to the queue.
    #[inline]
    pub(in crate::collective) fn poll_until(
        &self,
        on: On<'_>,
        awaited: Awaited,
    ) -> Poll<Result<()>> {
        let is_here = || self.has(awaited);
        let outcome = if self.state() != QUEUED {
            (self.progress).wait(on, For::Flag, is_here)
        } else if is_here() {
            Ok(())
        } else {
            let changes = self.progress.conduit().changes();
            match self.progress.wait_failure(on, For::Flag) {
                Some(cause) => Err(cause),
                None => {
                    self.queue.set_awaited(awaited, changes);
                    return Poll::Pending;
                }
            }
        };
        Poll::Ready(outcome.or_else(|cause| {
            // Messages that were sent before the end still count.
            self.progress.drain();
            if is_here() { Ok(()) } else { Err(cause) }
        }))
    }
}

impl Team {
    /// Waits for data of the other members after an agreement. On an error, this member
    /// [abandons](TeamShared::abandon) the collective.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    #[inline]
    pub(in crate::collective) async fn until_data(&self, awaited: Awaited) -> Result<()> {
        let outcome = self.until(&self.members, awaited).await;
        outcome.inspect_err(|_| self.abandon())
    }

    /// Waits until a write of this member has ended.
    ///
    /// # Errors
    /// The error of the write.
    pub(in crate::collective) async fn until_write_ends(&self, mut write: Write<'_>) -> Result<()> {
        if self.state() != QUEUED {
            return write.finish();
        }
        poll_fn(|_| {
            let changes = self.progress.conduit().changes();
            match (write.take_outcome(), write.ticket()) {
                (Some(end), _) => Poll::Ready(end),
                (None, None) => Poll::Ready(Ok(())),
                // Nobody polls any more, so the write is ended here.
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

    /// Polls for messages in the middle of a long copy. In the background, it lets the advancing thread
    /// poll first.
    #[cold]
    pub(in crate::collective) async fn poll_between_copies(&self) {
        if self.state() != QUEUED {
            self.progress.make_progress();
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
    /// Returns whether the condition holds.
    #[inline]
    pub(in crate::collective) fn has(&self, awaited: Awaited) -> bool {
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
