//! Outcomes of operations: taken by tasks, or dropped with abandoned operations.

#![allow(unsafe_code)] // frees the buffers of abandoned operations

use std::task::{Context, Poll};

use bytemuck::Pod;
use hydrant_conduit::Ticket;

use super::{
    Transfer,
    in_flight::{EndNotice, OperationState},
    orphan::Orphan,
};
use crate::{
    Error, Result,
    progress::{self, already_taken},
};

impl Transfer {
    /// Takes the outcome of an operation once it has ended. Until then the end wakes the task.
    pub(crate) fn poll_outcome(
        &self,
        ticket: Ticket,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        // A handler, and a waker that runs in one, must not poll.
        if progress::may_wait("a look").is_ok() {
            self.progress.make_progress();
        }
        loop {
            match self.in_flight.take(ticket) {
                OperationState::Ended(outcome) => return Poll::Ready(outcome),
                OperationState::Taken => return Poll::Ready(Err(already_taken())),
                OperationState::InFlight => {}
            }
            let (will_be, before) = self.in_flight.wake_at_end(ticket, context.waker());
            if will_be && before.is_none() {
                self.progress.task_begins();
            }
            drop(before);
            if will_be {
                break;
            }
        }
        self.progress.poll_again_unless_served(context);
        Poll::Pending
    }

    /// Abandons an operation. Its buffer is freed at its end.
    pub(crate) fn abandon<T: Pod>(&self, ticket: Ticket, buffer: Vec<T>) {
        if self.progress.is_forked() {
            // The network uses the parent's memory.
            return;
        }
        let (notice, before) = self.in_flight.abandon(ticket, Orphan::of(buffer));
        if before.is_some() {
            self.progress.task_ends();
        }
        drop(before);
        self.deliver(notice);
    }

    /// Wakes all waiting tasks, because nobody polls for their operations any more.
    pub(crate) fn wake_tasks(&self) {
        for waker in self.in_flight.take_wakers() {
            self.progress.wake_task(waker);
        }
    }

    /// Delivers the notice of an operation that has ended.
    #[inline]
    pub(super) fn deliver(&self, notice: EndNotice) {
        match notice {
            EndNotice::None => {}
            EndNotice::Wake(waker) => self.progress.wake_task(waker),
            EndNotice::Free(orphan, end) => {
                // SAFETY: The operation has ended, so the network uses the buffer no more.
                unsafe { orphan.free() };
                if let Err(cause) = end.map_err(Error::from) {
                    tracing::warn!(%cause, "a transfer whose handle was dropped failed");
                }
            }
        }
    }
}
