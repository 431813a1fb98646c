//! Handles of what goes on while the program computes: collectives, atomic operations, puts with
//! signals.

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

use super::{For, On, Progress, may_wait, taken, wake};
use crate::{Error, Result};

/// How something ended: by what it says, or by the panic of a function that the program gave it.
type End<R> = std::result::Result<Result<R>, Box<dyn Any + Send>>;

/// Something under way that goes on by itself, and owns its buffers: a collective, an atomic
/// operation, a put with a signal. It is a future that gives the result, on any executor;
/// [`test`](Self::test) and [`wait`](Self::wait) do so without one.
///
/// If it is dropped, what was begun goes on, for others rely on it, and its buffers are freed at its
/// end. Its result is given once: [`Error::OutOfTurn`](crate::Error::OutOfTurn) after that. If a
/// function that the program gave panicked, so does who asks for the result.
#[must_use = "only the handle gives the result"]
pub struct Begun<R> {
    progress: Arc<Progress>,
    slot: Arc<Slot<R>>,
}

/// Where the end is left for the handle.
pub(crate) struct Slot<R>(Mutex<State<R>>);

enum State<R> {
    /// It is not over. Whom to wake when it is.
    Open(Option<Waker>),
    /// It is over, and nobody was told.
    Ended(End<R>),
    /// Its result was given.
    Told,
}

impl<R> Begun<R> {
    /// It is over already.
    pub(crate) fn done(progress: &Arc<Progress>, result: R) -> Self {
        let slot = Arc::new(Slot(Mutex::new(State::Ended(Ok(Ok(result))))));
        Self::new(progress, slot)
    }

    pub(crate) fn new(progress: &Arc<Progress>, slot: Arc<Slot<R>>) -> Self {
        Self {
            progress: Arc::clone(progress),
            slot,
        }
    }

    /// Whether it is over. Looks after messages, and goes on with it.
    ///
    /// # Errors
    /// What befell it.
    ///
    /// # Panics
    /// If a function that a collective was given did.
    pub fn test(&mut self) -> Result<bool> {
        self.progress.check_origin()?;
        self.look();
        match &*self.slot.0.lock() {
            State::Open(_) => return Ok(false),
            State::Told | State::Ended(Ok(Ok(_))) => return Ok(true),
            State::Ended(Ok(Err(_)) | Err(_)) => {}
        }
        self.slot.tell().map(|_| true)
    }

    /// The result, if it is there, else the handle again.
    pub(crate) fn now(self) -> std::result::Result<Result<R>, Self> {
        if self.slot.is_open() {
            Err(self)
        } else {
            Ok(self.slot.tell())
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// As the blocking call of the same name; [`Error::InHandler`].
    ///
    /// # Panics
    /// If a function that a collective was given did.
    pub fn wait(self) -> Result<R> {
        self.wait_over()?;
        self.slot.tell()
    }

    /// Waits until it is over, and leaves the result to be had.
    ///
    /// # Errors
    /// [`Error::InHandler`]; [`Error::JobOver`] if this rank left.
    pub fn wait_over(&self) -> Result<()> {
        self.progress.may_wait("wait")?;
        // Whatever becomes of the peers, it ends.
        let is_over = || !self.slot.is_open();
        self.progress.wait(On::Nobody, For::Message, is_over)
    }

    /// Who is in a handler, as a waker is, looks at what is known and no more.
    fn look(&self) {
        if self.slot.is_open() && may_wait("a look").is_ok() {
            self.progress.look_round();
        }
    }
}

impl<R> Future for Begun<R> {
    type Output = Result<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.progress.check_origin()?;
        self.look();
        let waker = context.waker().clone();
        let before = match &mut *self.slot.0.lock() {
            State::Open(asker) => Some(asker.replace(waker)),
            State::Ended(_) | State::Told => None,
        };
        if before.is_none() {
            return Poll::Ready(self.slot.tell());
        }
        // Wakers are the program's: nothing is locked while one is dropped or woken.
        drop(before);
        self.progress.poll_again_unless_looked_after(context);
        Poll::Pending
    }
}

impl<R> Slot<R> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Open(None))))
    }

    /// It is over: whom to wake.
    pub(crate) fn end(&self, end: End<R>) -> Option<Waker> {
        let before = std::mem::replace(&mut *self.0.lock(), State::Ended(end));
        match before {
            State::Open(waker) => waker,
            State::Ended(_) | State::Told => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(&*self.0.lock(), State::Open(_))
    }

    /// Gives the result, once it is over, once.
    fn tell(&self) -> Result<R> {
        let before = std::mem::replace(&mut *self.0.lock(), State::Told);
        match before {
            State::Ended(Ok(result)) => result,
            State::Ended(Err(cause)) => resume_unwind(cause),
            State::Open(_) | State::Told => Err(taken()),
        }
    }
}

impl<R> fmt::Debug for Begun<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.slot.0.lock() {
            State::Open(_) => "Begun(under way)",
            State::Ended(_) => "Begun(over)",
            State::Told => "Begun(its result was given)",
        })
    }
}

/// What was [begun](Progress::begin) and is not over, by number.
#[derive(Default)]
pub(super) struct Chains {
    open: BTreeSet<u64>,
    next: u64,
}

impl Progress {
    /// Begins something of several steps, each of which wakes the next: a task of the job's own.
    pub(crate) fn begin<R: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<R>> + Send + 'static,
    ) -> Begun<R> {
        let slot = Slot::new();
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
            // It is dropped with the task, if the job is over before.
            let mut end = end;
            let result = work.await;
            end.end(result);
        });
        Begun::new(self, slot)
    }

    /// Waits until all that was begun so far is over, whatever other threads begin meanwhile.
    ///
    /// # Errors
    /// None but those of a wait: it ends in any case.
    pub(crate) fn finish_chains(&self) -> Result<()> {
        let Some(last) = self.chains.lock().open.last().copied() else {
            return Ok(());
        };
        self.wait(On::Nobody, For::Message, || {
            (self.chains.lock().open.first()).is_none_or(|first| *first > last)
        })
    }
}

/// What says that something is over, also if that is so because the job is.
struct Chain<R> {
    progress: Weak<Progress>,
    number: u64,
    /// None once that was said.
    slot: Option<Arc<Slot<R>>>,
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
