//! Handles of operations that go on while the program computes: collectives, atomic operations,
//! puts with signals.

use std::{
    any::Any,
    collections::BTreeSet,
    fmt,
    panic::resume_unwind,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use super::{For, On, Progress, already_taken, may_wait, wake};
use crate::{Error, Result};

/// The result of an operation, or the panic of a function that the program passed to it.
type CaughtResult<R> = std::result::Result<Result<R>, Box<dyn Any + Send>>;

/// An operation in flight that needs no caller to advance and owns its buffers: a collective, an
/// atomic operation, or a put with a signal. The handle is a future for any executor.
/// [`test`](Self::test) and [`wait`](Self::wait) give the result without one.
///
/// If the handle is dropped, the operation goes on, because other ranks rely on it. Its buffers are
/// freed when it ends. The result is given once; later calls return
/// [`Error::OutOfTurn`](crate::Error::OutOfTurn). If a function that the program passed to the
/// operation panicked, the call that takes the result panics with the same payload.
#[must_use = "only the handle gives the result"]
pub struct BackgroundHandle<R> {
    progress: Arc<Progress>,
    slot: Arc<ResultSlot<R>>,
}

/// Holds the result for the handle.
pub(crate) struct ResultSlot<R>(Mutex<SlotState<R>>);

enum SlotState<R> {
    /// The operation is in flight. Holds the waker of the task that waits for it.
    Open(Option<Waker>),
    /// The operation has ended, and nobody has taken the result.
    Ended(CaughtResult<R>),
    /// The result was taken.
    Taken,
}

impl<R> BackgroundHandle<R> {
    /// Returns a handle of an operation that has ended.
    pub(crate) fn done(progress: &Arc<Progress>, result: R) -> Self {
        let slot = Arc::new(ResultSlot(Mutex::new(SlotState::Ended(Ok(Ok(result))))));
        Self::new(progress, slot)
    }

    pub(crate) fn new(progress: &Arc<Progress>, slot: Arc<ResultSlot<R>>) -> Self {
        Self {
            progress: Arc::clone(progress),
            slot,
        }
    }

    /// Returns whether the operation has ended. Handles messages and advances the operation first.
    ///
    /// # Errors
    /// The error of the operation.
    ///
    /// # Panics
    /// If a function that the program passed to a collective panicked.
    pub fn test(&mut self) -> Result<bool> {
        self.progress.check_origin()?;
        self.poll_unless_in_handler();
        match &*self.slot.0.lock() {
            SlotState::Open(_) => return Ok(false),
            SlotState::Taken | SlotState::Ended(Ok(Ok(_))) => return Ok(true),
            SlotState::Ended(Ok(Err(_)) | Err(_)) => {}
        }
        self.slot.take().map(|_| true)
    }

    /// Returns the result if there is one, else the handle.
    pub(crate) fn into_result(self) -> std::result::Result<Result<R>, Self> {
        if self.slot.is_open() {
            Err(self)
        } else {
            Ok(self.slot.take())
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// As the blocking call of the same name; [`Error::InHandler`].
    ///
    /// # Panics
    /// If a function that the program passed to a collective panicked.
    pub fn wait(self) -> Result<R> {
        self.wait_over()?;
        self.slot.take()
    }

    /// Waits until the operation has ended, and leaves the result in the handle.
    ///
    /// # Errors
    /// [`Error::InHandler`]; [`Error::JobOver`] if this rank left.
    pub fn wait_over(&self) -> Result<()> {
        self.progress.may_wait("wait")?;
        // The operation ends even if peers are lost.
        let is_over = || !self.slot.is_open();
        self.progress.wait(On::Nobody, For::Message, is_over)
    }

    /// Polls, unless this thread is in a handler or a waker.
    fn poll_unless_in_handler(&self) {
        if self.slot.is_open() && may_wait("a look").is_ok() {
            self.progress.make_progress();
        }
    }
}

impl<R> Future for BackgroundHandle<R> {
    type Output = Result<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.progress.check_origin()?;
        self.poll_unless_in_handler();
        let waker = context.waker().clone();
        let before = match &mut *self.slot.0.lock() {
            SlotState::Open(asker) => Some(asker.replace(waker)),
            SlotState::Ended(_) | SlotState::Taken => None,
        };
        if before.is_none() {
            return Poll::Ready(self.slot.take());
        }
        // Wakers are user code, so they are dropped and woken without the lock.
        drop(before);
        self.progress.poll_again_unless_served(context);
        Poll::Pending
    }
}

impl<R> ResultSlot<R> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(SlotState::Open(None))))
    }

    /// Stores the result. Returns the waker of the task that waits for it.
    pub(crate) fn end(&self, end: CaughtResult<R>) -> Option<Waker> {
        let before = std::mem::replace(&mut *self.0.lock(), SlotState::Ended(end));
        match before {
            SlotState::Open(waker) => waker,
            SlotState::Ended(_) | SlotState::Taken => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(&*self.0.lock(), SlotState::Open(_))
    }

    /// Takes the result, which can be done once.
    fn take(&self) -> Result<R> {
        let before = std::mem::replace(&mut *self.0.lock(), SlotState::Taken);
        match before {
            SlotState::Ended(Ok(result)) => result,
            SlotState::Ended(Err(cause)) => resume_unwind(cause),
            SlotState::Open(_) | SlotState::Taken => Err(already_taken()),
        }
    }
}

impl<R> fmt::Debug for BackgroundHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.slot.0.lock() {
            SlotState::Open(_) => "BackgroundHandle(in flight)",
            SlotState::Ended(_) => "BackgroundHandle(ended)",
            SlotState::Taken => "BackgroundHandle(its result was taken)",
        })
    }
}

/// The operations that were [begun](Progress::begin) and have not ended, by number.
#[derive(Default)]
pub(super) struct Chains {
    open: BTreeSet<u64>,
    next: u64,
}

impl Progress {
    /// Begins an operation of several steps, each of which wakes the next, as a task of the job.
    pub(crate) fn begin<R: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<R>> + Send + 'static,
    ) -> BackgroundHandle<R> {
        let slot = ResultSlot::new();
        let number = {
            let mut chains = self.chains.lock();
            chains.next += 1;
            let number = chains.next;
            chains.open.insert(number);
            number
        };
        let end = Chain {
            progress: Arc::downgrade(self),
            number,
            slot: Some(Arc::clone(&slot)),
        };
        self.spawn(async move {
            // If the job is over first, this is dropped with the task.
            let mut end = end;
            let result = work.await;
            end.end(result);
        });
        BackgroundHandle::new(self, slot)
    }

    /// Waits until all operations begun so far have ended. Those that other threads begin meanwhile
    /// do not matter.
    ///
    /// # Errors
    /// Those of a wait. The operations themselves end in any case.
    pub(crate) fn finish_chains(&self) -> Result<()> {
        let Some(last) = self.chains.lock().open.last().copied() else {
            return Ok(());
        };
        self.wait(On::Nobody, For::Message, || {
            (self.chains.lock().open.first()).is_none_or(|first| *first > last)
        })
    }
}

/// Ends an operation when its task has ended or was dropped with the job.
struct Chain<R> {
    progress: Weak<Progress>,
    number: u64,
    /// `None` once the result is stored.
    slot: Option<Arc<ResultSlot<R>>>,
}

impl<R> Chain<R> {
    fn end(&mut self, result: Result<R>) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        let waker = slot.end(Ok(result));
        let progress = self.progress.upgrade();
        if let Some(progress) = &progress {
            progress.chains.lock().open.remove(&self.number);
        }
        if let Some(waker) = waker {
            wake(waker);
        }
        if let Some(progress) = progress {
            progress.wake_sleepers();
        }
    }
}

impl<R> Drop for Chain<R> {
    fn drop(&mut self) {
        self.end(Err(Error::JobOver));
    }
}
