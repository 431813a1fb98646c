//! Handles of collectives that go on while the program computes.

use std::{
    panic::resume_unwind,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use super::queue::End;
use crate::{
    Result,
    progress::{self, For, On, Progress, taken},
};

/// A collective under way, which owns its buffers. It is a future that gives the result, on any
/// executor; [`test`](Self::test) and [`wait`](Self::wait) do so without one.
///
/// If it is dropped, the collective goes on, for the other members rely on it, and its buffers are
/// freed at its end. Its result is given once: [`Error::OutOfTurn`](crate::Error::OutOfTurn) after
/// that. If a function that the program gave panicked, so does who asks for the result.
#[must_use = "only the handle gives the result"]
pub struct Begun<R> {
    progress: Arc<Progress>,
    slot: Arc<Slot<R>>,
}

/// Where the end of a collective is left for its handle.
pub(super) struct Slot<R>(Mutex<State<R>>);

enum State<R> {
    /// It is not over. Whom to wake when it is.
    Open(Option<Waker>),
    /// It is over, and nobody was told.
    Ended(End<R>),
    /// Its result was given.
    Told,
}

impl<R> Begun<R> {
    pub(super) fn new(progress: &Arc<Progress>, slot: Arc<Slot<R>>) -> Self {
        Self {
            progress: Arc::clone(progress),
            slot,
        }
    }

    /// Whether the collective is over. Looks after messages, and goes on with it.
    ///
    /// # Errors
    /// What befell the collective.
    ///
    /// # Panics
    /// If a function that the collective was given did.
    pub fn test(&mut self) -> Result<bool> {
        self.look();
        match &*self.slot.0.lock() {
            State::Open(_) => return Ok(false),
            State::Told | State::Ended(Ok(Ok(_))) => return Ok(true),
            State::Ended(Ok(Err(_)) | Err(_)) => {}
        }
        self.slot.tell().map(|_| true)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// As the blocking call of the same name; [`Error::InHandler`](crate::Error::InHandler).
    ///
    /// # Panics
    /// If a function that the collective was given did.
    pub fn wait(self) -> Result<R> {
        progress::may_wait("wait")?;
        // Whatever becomes of the members, it ends.
        let is_over = || !self.slot.is_open();
        self.progress.wait(On::Nobody, For::Message, is_over)?;
        self.slot.tell()
    }

    /// Who is in a handler, as a waker is, looks at what is known and no more.
    fn look(&self) {
        if self.slot.is_open() && progress::may_wait("a look").is_ok() {
            self.progress.look_round();
        }
    }
}

impl<R> Future for Begun<R> {
    type Output = Result<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
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
        if !self.progress.is_looked_after() {
            // Nobody else will look whether anything has arrived.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<R> Slot<R> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Open(None))))
    }

    /// The collective is over: whom to wake.
    pub(super) fn end(&self, end: End<R>) -> Option<Waker> {
        let before = std::mem::replace(&mut *self.0.lock(), State::Ended(end));
        match before {
            State::Open(waker) => waker,
            State::Ended(_) | State::Told => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(&*self.0.lock(), State::Open(_))
    }

    /// Gives the result of a collective that is over, once.
    fn tell(&self) -> Result<R> {
        let before = std::mem::replace(&mut *self.0.lock(), State::Told);
        match before {
            State::Ended(Ok(result)) => result,
            State::Ended(Err(cause)) => resume_unwind(cause),
            State::Open(_) | State::Told => Err(taken()),
        }
    }
}
