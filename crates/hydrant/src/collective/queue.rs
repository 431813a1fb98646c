//! Collectives that go on while the program computes.
//!
//! Each team has a queue of those that were begun and are not over, in the order in which they were
//! begun, which is the same at every member. The first is under way; the others have done nothing
//! yet. So at any time a team does one collective, blocking or not, and the scratch and the
//! algorithms are the same for both.
//!
//! # Who does what
//!
//! A collective is a future that owns its buffers and its team. The queue owns it from its beginning
//! to its end, whatever becomes of the handle, which shares with it only the place of the result.
//! While the queue is not empty it is an [errand](Errand) of the rank: whoever polls, waiting or
//! looking, and the service thread, which is awake for it as for a task, [advances](Errand::advance)
//! the first collective until it needs a word that has not come. One thread does so at a time; any
//! other leaves it to that one, which looks once more after it has let go.
//!
//! # Why nobody waits for ever
//!
//! - Of the queues of a rank none waits for another: whoever polls advances all. So teams may be
//!   used in any order, and a rank that blocks in a collective of one team goes on with those of
//!   others.
//! - In a queue all members have the same order, and the first collective of it needs nothing but
//!   that the others advance the same. A blocking one is begun when the queue is empty.
//! - A thread that sleeps is woken by the store of a word, and looks for it before it
//!   sleeps ([`Errand::is_ready`]).
//! - What advances a collective waits only for room for a message, for a write that is open when its rank leaves, and,
//!   when it gives up symmetric memory that peers have registered, for these. It polls meanwhile. In the midst of a long copy
//!   it lets go, for who advances it to poll, and rings for whoever sleeps.

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

use super::{
    awaited::Awaited,
    team::{IDLE, QUEUED, Team, TeamShared, out_of_turn},
};
use crate::{
    Result,
    progress::{self, Begun, Errand, Slot},
};

/// A collective that is not over: goes on with it as far as it can; at its end, who is to be told.
type QueuedStep = Box<dyn FnMut() -> Poll<Option<Waker>> + Send>;

#[derive(Default)]
pub(super) struct CollectiveQueue {
    /// Under way; locked by who advances it.
    first: Mutex<Option<QueuedStep>>,
    /// Begun behind it. The team's state changes from and to that of having a queue under this lock.
    behind: Mutex<VecDeque<QueuedStep>>,
    /// What the one under way waits for, and how often standings had changed when it began to.
    sought: Mutex<Option<(Awaited, u64)>>,
    /// The one under way could have gone on when it was advanced last.
    pauses: AtomicBool,
}

impl CollectiveQueue {
    /// The one under way waits for a word, since standings had changed so often.
    pub(super) fn set_awaited(&self, sought: Awaited, changes: u64) {
        *self.sought.lock() = Some((sought, changes));
    }

    /// The one under way could go on, but whoever does it looks after messages first.
    pub(super) fn pause(&self) {
        self.pauses.store(true, Relaxed);
    }
}

impl Team {
    /// Begins a collective, which `collective` does on the same team.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler), [`Error::JobOver`](crate::Error::JobOver),
    /// [`Error::OutOfTurn`](crate::Error::OutOfTurn) if a thread of this rank is in a blocking
    /// collective of the team, or between the two calls of a barrier.
    pub(super) fn begin_queued<R: Send + 'static, F>(
        &self,
        what: &'static str,
        collective: impl FnOnce(Team) -> F,
    ) -> Result<Begun<R>>
    where
        F: Future<Output = Result<R>> + Send + 'static,
    {
        progress::may_wait(what)?;
        self.progress.check_running()?;
        let slot = Slot::new();
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
        Ok(Begun::new(&self.progress, slot))
    }
}

/// What goes on with a collective, and leaves its end in `slot`.
fn step<R: Send + 'static>(
    mut collective: std::pin::Pin<Box<impl Future<Output = Result<R>> + Send + 'static>>,
    slot: &Arc<Slot<R>>,
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
    /// Goes on with the first collective as far as it can. Whether the queue may have more to do.
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
        *self.queue.sought.lock() = None;
        let ended = match first.as_mut().map(|step| step()) {
            Some(Poll::Ready(waker)) => Some((first.take(), waker)),
            _ => None,
        };
        let pauses = self.queue.pauses.swap(false, Relaxed);
        drop(first);
        let Some((over, waker)) = ended else {
            if pauses {
                // Who left it to this thread may sleep by now.
                self.progress.wake_sleepers();
            }
            return !pauses && self.is_ready();
        };
        // It holds what the program gave it, which may do anything when it is dropped.
        let over = AssertUnwindSafe(|| progress::in_handler(|| drop(over)));
        if let Err(cause) = catch_unwind(over) {
            tracing::error!("what a collective was given panicked when it was dropped");
            // Dropping that may panic, too.
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
        // Whoever advances it looks again afterwards.
        if self.queue.first.is_locked() || self.state() != QUEUED {
            return false;
        }
        self.queue.sought.lock().is_none_or(|(sought, changes)| {
            self.has(sought)
                || changes != self.progress.conduit().changes()
                || self.progress.is_stopped()
        })
    }
}
