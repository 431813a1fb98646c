//! Operations whose end is asked for by tasks, or by nobody any more.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use std::task::{Context, Poll};

use bytemuck::Pod;
use hydrant_conduit::Ticket;

use super::{
    Transfer,
    orphan::Orphan,
    under_way::{Asked, Look},
};
use crate::{
    Error, Result,
    progress::{self, taken},
};

impl Transfer {
    /// The outcome of an operation, once; the task is woken when it has ended.
    pub(crate) fn poll_outcome(
        &self,
        ticket: Ticket,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        // Who is in a handler, as a waker is, looks at what is known and no more.
        if progress::may_wait("a look").is_ok() {
            self.progress.look_round();
        }
        loop {
            match self.under_way.take(ticket) {
                Look::Ended(outcome) => return Poll::Ready(outcome),
                Look::Gone => return Poll::Ready(Err(taken())),
                Look::Open => {}
            }
            let (will_be, before) = self.under_way.wake_at_end(ticket, context.waker());
            if will_be && before.is_none() {
                self.progress.task_begins();
            }
            drop(before);
            if will_be {
                break;
            }
        }
        self.progress.poll_again_unless_looked_after(context);
        Poll::Pending
    }

    /// Leaves an operation to itself, with the buffer that it uses.
    pub(crate) fn abandon<T: Pod>(&self, ticket: Ticket, buffer: Vec<T>) {
        if self.progress.is_forked() {
            // The network uses the parent's memory.
            return;
        }
        let (asked, before) = self.under_way.abandon(ticket, Orphan::of(buffer));
        if before.is_some() {
            self.progress.task_ends();
        }
        drop(before);
        self.tell(asked);
    }

    /// Wakes the tasks that wait, for nobody looks after their operations any more.
    pub(crate) fn wake_tasks(&self) {
        for waker in self.under_way.askers() {
            self.progress.wake_task(waker);
        }
    }

    /// Tells who asked for the end of an operation that has ended, if somebody did.
    #[inline]
    pub(super) fn tell(&self, asked: Asked) {
        match asked {
            Asked::Not => {}
            Asked::ByTask(waker) => self.progress.wake_task(waker),
            Asked::Never(orphan, end) => {
                // SAFETY: the operation has ended.
                unsafe { orphan.free() };
                if let Err(cause) = end.map_err(Error::from) {
                    tracing::warn!(%cause, "a transfer whose handle was dropped failed");
                }
            }
        }
    }
}
