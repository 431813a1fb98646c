//! Collectives in the background.
//!
//! Each team has a queue of the collectives that were begun and have not ended, in the order in which they
//! were begun. This order is the same at every member. The first collective is in flight; the others have
//! done nothing yet. So a team runs one collective at a time, blocking or not, and both kinds use the same
//! scratch and algorithms.
//!
//! # Who advances a collective
//!
//! A collective is a future that owns its buffers and its team. The queue owns the future until its end,
//! even if the handle is dropped; the two share only the slot for the result. A queue that is not empty is
//! an [errand](Errand) of the rank. Every thread that polls, and the service thread,
//! [advances](Errand::advance) the first collective until it needs a word that has not arrived. One thread
//! does so at a time. Other threads leave the work to that thread, which looks again after it has released
//! the lock.
//!
//! # Why nobody waits for ever
//!
//! - No queue of a rank waits for another queue: a poll advances all. So teams may be used in any order. A
//!   rank that blocks in a collective of one team advances those of other teams.
//! - Queues have the same order at all members. The first collective needs only that the other members
//!   advance the same one. A blocking collective begins when the queue is empty.
//! - The store of a word wakes a sleeping thread. A thread checks for the word before it sleeps
//!   ([`Errand::is_ready`]).
//! - While it advances a collective, a thread waits only for three things, and it polls meanwhile: room for
//!   a message, an open write when its rank leaves, and the deregistration of symmetric memory that peers
//!   have registered. In a long copy it pauses, so that the thread can poll, and wakes sleepers.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use super::{IDLE, QUEUED, Team, TeamShared, awaited::Awaited, out_of_turn};
use crate::{
    Result,
    progress::{self, BackgroundHandle, Errand, ResultSlot},
};

/// Advances a collective as far as possible. At its end, returns the waker of the handle.
type QueuedStep = Box<dyn FnMut() -> Poll<Option<Waker>> + Send>;

#[derive(Default)]
pub(in crate::collective) struct CollectiveQueue {
    /// The collective in flight; locked by the thread that advances it.
    first: Mutex<Option<QueuedStep>>,
    /// The collectives behind it. The team enters and leaves the state `QUEUED` under this lock.
    behind: Mutex<VecDeque<QueuedStep>>,
    /// The condition that the collective in flight waits for, and the count of membership changes when it
    /// began to wait.
    awaited: Mutex<Option<(Awaited, u64)>>,
    /// The collective in flight paused although it could continue.
    pauses: AtomicBool,
}

impl CollectiveQueue {
    /// Notes that the collective in flight waits, with the count of membership changes.
    pub(in crate::collective) fn set_awaited(&self, awaited: Awaited, changes: u64) {
        *self.awaited.lock() = Some((awaited, changes));
    }

    /// Notes that the collective in flight could continue, but messages go first.
    pub(in crate::collective) fn pause(&self) {
        self.pauses.store(true, Relaxed);
    }
}

impl Team {
    /// Begins a collective, which `collective` runs on a handle of the same team.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler), [`Error::JobOver`](crate::Error::JobOver),
    /// [`Error::OutOfTurn`](crate::Error::OutOfTurn) if a thread of this rank is in a blocking collective
    /// of the team, or between the two calls of a barrier.
    pub(in crate::collective) fn begin_queued<R: Send + 'static, F>(
        &self,
        what: &'static str,
        collective: impl FnOnce(Team) -> F,
    ) -> Result<BackgroundHandle<R>>
    where
        F: Future<Output = Result<R>> + Send + 'static,
    {
        progress::may_wait(what)?;
        self.progress.check_running()?;
        self.progress.settle_if_needed();
        let slot = ResultSlot::new();
        let step = step(Box::pin(collective(self.clone_handle())), &slot);
        {
            let mut behind = self.queue.behind.lock();
            let is_first = match self.turn.compare_exchange(IDLE, QUEUED, Acquire, Relaxed) {
                Ok(_) => true,
                Err(QUEUED) => false,
                Err(found) => return Err(out_of_turn(what, found)),
            };
            behind.push_back(step);
            if is_first {
                self.progress.begin_errand(self.shared().clone());
            }
        }
        self.shared().advance();
        Ok(BackgroundHandle::new(&self.progress, slot))
    }
}

/// Makes the step that advances a collective and stores its result in `slot`.
fn step<R: Send + 'static>(
    mut collective: std::pin::Pin<Box<impl Future<Output = Result<R>> + Send + 'static>>,
    slot: &Arc<ResultSlot<R>>,
) -> QueuedStep {
    let slot = Arc::clone(slot);
    Box::new(move || {
        let mut context = Context::from_waker(Waker::noop());
        let poll = AssertUnwindSafe(|| collective.as_mut().poll(&mut context));
        match catch_unwind(poll) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(slot.end(Ok(result))),
            Err(cause) => Poll::Ready(slot.end(Err(cause))),
        }
    })
}

impl TeamShared {
    /// Advances the first collective as far as possible. Returns whether the queue may have more to do.
    fn advance_first(&self) -> bool {
        let Some(mut first) = self.queue.first.try_lock() else {
            return false;
        };
        if first.is_none() {
            let mut behind = self.queue.behind.lock();
            *first = behind.pop_front();
            if first.is_none() {
                if self.state() == QUEUED {
                    self.turn.store(IDLE, Release);
                    self.progress.end_errand(self);
                }
                return false;
            }
        }
        *self.queue.awaited.lock() = None;
        let ended = match first.as_mut().map(|step| step()) {
            Some(Poll::Ready(waker)) => Some((first.take(), waker)),
            _ => None,
        };
        let pauses = self.queue.pauses.swap(false, Relaxed);
        drop(first);
        let Some((over, waker)) = ended else {
            if pauses {
                // A thread that left the work to this one may sleep by now.
                self.progress.wake_sleepers();
            }
            return !pauses && self.is_ready();
        };
        // It holds values of the program, whose destructors may do anything.
        let over = AssertUnwindSafe(|| progress::in_handler(|| drop(over)));
        if let Err(cause) = catch_unwind(over) {
            tracing::error!("what a collective was given panicked when it was dropped");
            // Dropping the cause may panic, too.
            std::mem::forget(cause);
        }
        if let Some(waker) = waker {
            progress::wake(waker);
        }
        self.progress.wake_sleepers();
        true
    }
}

impl Errand for TeamShared {
    fn advance(&self) {
        while self.advance_first() {}
    }

    fn is_ready(&self) -> bool {
        // The thread that advances it looks again afterwards.
        if self.queue.first.is_locked() || self.state() != QUEUED {
            return false;
        }
        self.queue.awaited.lock().is_none_or(|(awaited, changes)| {
            self.has(awaited)
                || changes != self.progress.conduit().changes()
                || self.progress.is_stopped()
        })
    }
}
