//! A one-sided operation that may not be complete yet.

use std::{
    ops::Deref,
    task::{Context, Poll},
};

use hydrant_conduit::{Posted, Ticket};

use crate::{
    Result,
    progress::{self, already_taken},
    transfer::{OperationState, Transfer},
};

/// An operation and the room that completes it. Its result is given once.
pub(super) struct PendingOperation<P>(PendingState<P>);

enum PendingState<P> {
    /// The operation is not known to be complete.
    Open(P, Ticket),
    /// The operation is complete, and its result was not taken.
    Done,
    /// The result was taken.
    Taken,
}

impl<P: Deref<Target = Transfer>> PendingOperation<P> {
    pub(super) const DONE: Self = Self(PendingState::Done);

    pub(super) fn new(transfer: P, posted: Posted) -> Self {
        Self(match posted {
            Posted::Done => PendingState::Done,
            Posted::Pending(ticket) => PendingState::Open(transfer, ticket),
        })
    }

    /// Returns the room that completes the operation, unless it is known to be complete.
    pub(super) fn open(&self) -> Option<(&P, Ticket)> {
        match &self.0 {
            PendingState::Open(transfer, ticket) => Some((transfer, *ticket)),
            PendingState::Done | PendingState::Taken => None,
        }
    }

    /// Polls, and returns whether the operation is complete. Its error is returned once; afterwards
    /// the operation counts as complete.
    pub(super) fn test(&mut self) -> Result<bool> {
        if let Some((transfer, _)) = self.open() {
            transfer.progress.check_origin()?;
            if progress::may_wait("a look").is_ok() {
                transfer.progress.make_progress();
            }
        }
        self.check()
    }

    /// As [`test`](Self::test), without a poll, so that no user code runs.
    pub(super) fn check(&mut self) -> Result<bool> {
        let Some((transfer, ticket)) = self.open() else {
            return Ok(true);
        };
        transfer.progress.check_origin()?;
        match transfer.outcome(ticket) {
            OperationState::InFlight => Ok(false),
            OperationState::Taken => self.set_taken(Ok(true)),
            OperationState::Ended(outcome) => {
                // A successful result can still be taken.
                self.0 = PendingState::Done;
                match outcome {
                    Ok(()) => Ok(true),
                    Err(cause) => self.set_taken(Err(cause)),
                }
            }
        }
    }

    pub(super) fn wait_local(&self) -> Result<()> {
        progress::may_wait("wait_local")?;
        match self.open() {
            Some((transfer, ticket)) => {
                transfer.progress.check_origin()?;
                transfer.finish_local(Posted::Pending(ticket))
            }
            None => Ok(()),
        }
    }

    pub(super) fn wait(&mut self) -> Result<()> {
        progress::may_wait("wait")?;
        if let Some((transfer, _)) = self.open() {
            transfer.progress.check_origin()?;
        }
        let outcome = match &self.0 {
            PendingState::Open(transfer, ticket) => transfer.finish(Posted::Pending(*ticket)),
            PendingState::Done => Ok(()),
            PendingState::Taken => Err(already_taken()),
        };
        // Only after the wait: a dropped owner treats the buffer as free from then on.
        self.set_taken(outcome)
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some((transfer, _)) = self.open() {
            transfer.progress.check_origin()?;
        }
        let outcome = match &self.0 {
            PendingState::Open(transfer, ticket) => transfer.poll_outcome(*ticket, context),
            PendingState::Done => Poll::Ready(Ok(())),
            PendingState::Taken => Poll::Ready(Err(already_taken())),
        };
        outcome.map(|outcome| self.set_taken(outcome))
    }

    fn set_taken<R>(&mut self, result: Result<R>) -> Result<R> {
        self.0 = PendingState::Taken;
        result
    }
}
