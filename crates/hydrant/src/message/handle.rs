//! Calls in flight.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use serde::de::DeserializeOwned;

use super::{Calls, call};
use crate::{
    Error, Rank, Result,
    progress::{self, For, On, Progress, already_taken},
};

/// A call in flight. It is a future of the function's result, on any executor. [`test`](Self::test)
/// and [`wait`](Self::wait) give the result without an executor.
///
/// If the handle is dropped, the function still runs, and its result is dropped. The result is
/// given once. Later attempts get [`Error::OutOfTurn`].
#[must_use = "only the handle gives the result, or says that the call failed"]
pub struct CallHandle<R> {
    /// `None` once the result was given.
    call: Option<CallFuture>,
    _result: PhantomData<fn() -> R>,
}

/// A call in flight, as a future of its encoded answer, which is given once.
pub(crate) struct CallFuture {
    progress: Arc<Progress>,
    calls: Arc<Calls>,
    rank: Rank,
    id: u64,
}

impl<R: DeserializeOwned> CallHandle<R> {
    /// Returns the handle of the call with this id.
    pub(crate) fn new(progress: &Arc<Progress>, calls: &Arc<Calls>, rank: Rank, id: u64) -> Self {
        Self {
            call: Some(CallFuture::new(progress, calls, rank, id)),
            _result: PhantomData,
        }
    }

    /// Returns the result, if it has come.
    ///
    /// # Errors
    /// As [`Job::call`](crate::Job::call).
    pub fn test(&mut self) -> Result<Option<R>> {
        let call = self.call.as_ref().ok_or_else(already_taken)?;
        match call.try_answer() {
            None => Ok(None),
            Some(answer) => self.give(answer).map(Some),
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// As [`Job::call`](crate::Job::call).
    pub fn wait(mut self) -> Result<R> {
        progress::may_wait("wait")?;
        let call = self.call.as_ref().ok_or_else(already_taken)?;
        call.progress.check_origin()?;
        let answer = call.calls.wait(&call.progress, call.rank, call.id);
        self.give(answer)
    }

    /// Decodes the answer. The handle is empty from here on.
    fn give(&mut self, answer: Result<Vec<u8>>) -> Result<R> {
        self.call = None;
        call::result_of(&answer?)
    }
}

impl<R: DeserializeOwned> Future for CallHandle<R> {
    type Output = Result<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(call) = &this.call else {
            return Poll::Ready(Err(already_taken()));
        };
        let polled = call.poll_answer(context);
        polled.map(|answer| this.give(answer))
    }
}

impl Future for CallFuture {
    type Output = Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_answer(context)
    }
}

impl CallFuture {
    /// Returns the future of the call with this id.
    pub(crate) fn new(progress: &Arc<Progress>, calls: &Arc<Calls>, rank: Rank, id: u64) -> Self {
        Self {
            progress: Arc::clone(progress),
            calls: Arc::clone(calls),
            rank,
            id,
        }
    }

    fn poll_answer(&self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>>> {
        loop {
            if let Some(answer) = self.try_answer() {
                return Poll::Ready(answer);
            }
            let (will_be, before) = self.calls.wake_at_end(self.id, context.waker());
            if will_be && before.is_none() {
                self.progress.task_begins();
            }
            drop(before);
            self.progress.watch(self.id, context.waker());
            // The peer may have ended before it was watched.
            if will_be && self.in_vain().is_none() {
                break;
            }
        }
        self.progress.poll_again_unless_served(context);
        Poll::Pending
    }

    /// Returns the answer if there is one, or the reason why none will come.
    fn try_answer(&self) -> Option<Result<Vec<u8>>> {
        if let Err(cause) = self.progress.check_origin() {
            return Some(Err(cause));
        }
        // A handler, and a waker that runs in one, must not poll.
        if progress::may_wait("a look").is_ok() {
            self.progress.make_progress();
        }
        if let Some(answer) = self.calls.take(self.id) {
            return Some(answer);
        }
        let cause = self.in_vain()?;
        // An answer from before the end counts.
        if progress::may_wait("a look").is_ok() {
            self.progress.drain();
        }
        let answer = self.calls.take(self.id);
        Some(answer.unwrap_or(Err(cause)))
    }

    /// Returns the reason why no answer will come.
    fn in_vain(&self) -> Option<Error> {
        self.progress
            .wait_failure(On::Rank(self.rank), For::Message)
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        if self.progress.is_forked() {
            return;
        }
        let waker = self.calls.stop_waiting(&self.progress, self.rank, self.id);
        if waker.is_some() {
            self.progress.task_ends();
        }
        self.progress.unwatch(self.id);
    }
}

impl<R> fmt::Debug for CallHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            Some(call) => write!(f, "CallHandle(call {} at rank {})", call.id, call.rank),
            None => f.write_str("CallHandle(its result was given)"),
        }
    }
}
