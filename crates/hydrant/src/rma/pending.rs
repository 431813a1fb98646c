//! One operation that may not be complete yet, by whom it is asked for.

use std::{
    ops::Deref,
    task::{Context, Poll},
};

use hydrant_conduit::{Posted, Ticket};

use crate::{
    Result,
    progress::{self, taken},
    transfer::{OperationState, Transfer},
};

/// An operation, and who completes it. Its result is given once.
pub(super) struct Pending<P>(State<P>);

enum State<P> {
    /// It is not known to be complete.
    Open(P, Ticket),
    /// It is complete, and nobody was told.
    Done,
    /// Its result was given.
    Told,
}

impl<P: Deref<Target = Transfer>> Pending<P> {
    pub(super) const DONE: Self = Self(State::Done);

    pub(super) fn new(transfer: P, posted: Posted) -> Self {
        Self(match posted {
            Posted::Done => State::Done,
            Posted::Pending(ticket) => State::Open(transfer, ticket),
        })
    }

    /// Who completes it, unless it is known to be complete.
    pub(super) fn open(&self) -> Option<(&P, Ticket)> {
        match &self.0 {
            State::Open(transfer, ticket) => Some((transfer, *ticket)),
            State::Done | State::Told => None,
        }
    }

    /// Whether it is complete. What befell it is said once, and then it is.
    pub(super) fn test(&mut self) -> Result<bool> {
        if let Some((transfer, _)) = self.open() {
            transfer.progress.check_origin()?;
            if progress::may_wait("a look").is_ok() {
                transfer.progress.look_round();
            }
        }
        self.known()
    }

    /// As [`test`](Self::test), by what is known: nothing is polled, so nothing of the program's runs.
    pub(super) fn known(&mut self) -> Result<bool> {
        let Some((transfer, ticket)) = self.open() else {
            return Ok(true);
        };
        transfer.progress.check_origin()?;
        match transfer.outcome(ticket) {
            OperationState::InFlight => Ok(false),
            OperationState::Taken => self.tell(Ok(true)),
            OperationState::Ended(outcome) => {
                // The result of one that went well is still to be given.
                self.0 = State::Done;
                match outcome {
                    Ok(()) => Ok(true),
                    Err(cause) => self.tell(Err(cause)),
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
            State::Open(transfer, ticket) => transfer.finish(Posted::Pending(*ticket)),
            State::Done => Ok(()),
            State::Told => Err(taken()),
        };
        // Not before: whoever drops the owner sees by this that the buffer is free.
        self.tell(outcome)
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some((transfer, _)) = self.open() {
            transfer.progress.check_origin()?;
        }
        let outcome = match &self.0 {
            State::Open(transfer, ticket) => transfer.poll_outcome(*ticket, context),
            State::Done => Poll::Ready(Ok(())),
            State::Told => Poll::Ready(Err(taken())),
        };
        outcome.map(|outcome| self.tell(outcome))
    }

    fn tell<R>(&mut self, result: Result<R>) -> Result<R> {
        self.0 = State::Told;
        result
    }
}
