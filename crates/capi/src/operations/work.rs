//! The kinds of operations in flight.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hydrant::{BackgroundHandle, Pod, RawOperation};

use crate::status::Result;

/// An operation in flight.
pub(crate) trait Work: Send {
    /// Polls, and returns whether it is over. Its error, if any, is that of `finish`.
    fn test(&mut self) -> bool;
    /// As `test`, and otherwise wakes the task at the end.
    fn poll(&mut self, context: &mut Context<'_>) -> bool;
    /// Waits until the source may be used again.
    fn wait_local(&mut self) -> Result<()>;
    /// Waits for the end, and stores the results where C wants them.
    fn finish(self: Box<Self>) -> Result<()>;
    /// Lets the operation go on without a handle, a put or a get by `keep`. Returns it if it may not.
    fn detach(self: Box<Self>, keep: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>>;
}

/// A place of C that is written when an operation ends.
pub(crate) struct ResultPlace<T>(pub(crate) *mut T);

// SAFETY: C allows any thread that completes the operation to write to the place (C2).
unsafe impl<T> Send for ResultPlace<T> {}

impl<T> ResultPlace<T> {
    /// Writes a value, unless the place is null.
    ///
    /// # Safety
    /// 1. The place is null, or writable for a `T`, which need not be aligned. No other code uses it.
    pub(crate) unsafe fn store(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller's condition 1.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl ResultPlace<u8> {
    /// Writes elements.
    ///
    /// # Safety
    /// 1. The place is writable for as many bytes, unless there are none. No other code uses it.
    pub(crate) unsafe fn store_all<T: Pod>(&self, elements: &[T]) {
        if !elements.is_empty() {
            let from = elements.as_ptr().cast::<u8>();
            // SAFETY: the caller's condition 1; `elements` lie elsewhere.
            unsafe { self.0.copy_from_nonoverlapping(from, size_of_val(elements)) };
        }
    }
}

/// Keeps the outcome of a poll. Returns whether there is one.
pub(crate) fn keep_outcome<T>(
    outcome: &mut Option<hydrant::Result<T>>,
    polled: Poll<hydrant::Result<T>>,
) -> bool {
    if let Poll::Ready(ended) = polled {
        *outcome = Some(ended);
    }
    outcome.is_some()
}

/// Keeps the failure of a test. Returns whether the operation is over.
pub(crate) fn keep_failure<T>(
    outcome: &mut Option<hydrant::Result<T>>,
    tested: hydrant::Result<bool>,
) -> bool {
    match tested {
        Ok(over) => over,
        Err(cause) => {
            *outcome = Some(Err(cause));
            true
        }
    }
}

/// A put or a get.
pub(super) struct RmaWork {
    operation: RawOperation,
    outcome: Option<hydrant::Result<()>>,
}

impl RmaWork {
    pub(super) fn new(operation: RawOperation) -> Self {
        Self {
            operation,
            outcome: None,
        }
    }
}

impl Work for RmaWork {
    fn test(&mut self) -> bool {
        self.outcome.is_some() || keep_failure(&mut self.outcome, self.operation.test())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        self.outcome.is_some() || {
            let polled = Pin::new(&mut self.operation).poll(context);
            keep_outcome(&mut self.outcome, polled)
        }
    }

    fn wait_local(&mut self) -> Result<()> {
        match self.outcome {
            None => Ok(self.operation.wait_local()?),
            Some(_) => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let outcome = self.outcome.take();
        Ok(outcome.unwrap_or_else(|| self.operation.wait())?)
    }

    fn detach(self: Box<Self>, keep: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>> {
        match self.outcome {
            None => keep(self.operation),
            Some(Ok(())) => {}
            Some(Err(_)) => return Some(self),
        }
        None
    }
}

/// An operation in the background, whose result `store` gives to C.
pub(super) struct BackgroundWork<R, F> {
    handle: BackgroundHandle<R>,
    store: F,
    outcome: Option<hydrant::Result<R>>,
}

impl<R, F> BackgroundWork<R, F> {
    pub(super) fn new(handle: BackgroundHandle<R>, store: F) -> Self {
        Self {
            handle,
            store,
            outcome: None,
        }
    }
}

impl<R, F> Work for BackgroundWork<R, F>
where
    R: Send + 'static,
    F: FnOnce(R) + Send + 'static,
{
    fn test(&mut self) -> bool {
        self.outcome.is_some() || keep_failure(&mut self.outcome, self.handle.test())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        self.outcome.is_some() || {
            let polled = Pin::new(&mut self.handle).poll(context);
            keep_outcome(&mut self.outcome, polled)
        }
    }

    fn wait_local(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let result = match self.outcome {
            Some(outcome) => outcome?,
            None => self.handle.wait()?,
        };
        (self.store)(result);
        Ok(())
    }

    fn detach(self: Box<Self>, _: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>> {
        // The operation goes on, and its result is dropped.
        None
    }
}
