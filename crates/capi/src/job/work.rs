//! Operations in flight that C has handles of.

use hydrant::{BackgroundHandle, Pod, RawMessage, RawOperation};

use super::types::hydrant_status;
use crate::status::Result;

/// An operation in flight.
pub(super) trait Work: Send {
    /// Polls, and returns whether it is over. Its error, if any, is that of `finish`.
    fn test(&mut self) -> bool;
    /// Waits until the source may be used again.
    fn wait_local(&mut self) -> Result<()>;
    /// Waits for the end, and stores the results where C wants them.
    fn finish(self: Box<Self>) -> Result<()>;
    /// Lets the operation go on without a handle, a put or a get by `keep`. Returns it if it may not.
    fn detach(self: Box<Self>, keep: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>>;
}

/// A place of C that is written when an operation ends.
pub(super) struct ResultPlace<T>(pub(super) *mut T);

// SAFETY: C allows any thread that completes the operation to write to the place (C2).
unsafe impl<T> Send for ResultPlace<T> {}

impl<T> ResultPlace<T> {
    /// Writes a value, unless the place is null.
    ///
    /// # Safety
    /// 1. The place is null, or writable for a `T`, which need not be aligned. No other code uses it.
    pub(super) unsafe fn store(&self, value: T) {
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
    pub(super) unsafe fn store_all<T: Pod>(&self, elements: &[T]) {
        if !elements.is_empty() {
            let from = elements.as_ptr().cast::<u8>();
            // SAFETY: the caller's condition 1; `elements` lie elsewhere.
            unsafe { self.0.copy_from_nonoverlapping(from, size_of_val(elements)) };
        }
    }
}

/// A put or a get.
pub(super) struct RmaWork {
    operation: RawOperation,
    failed: Option<hydrant::Error>,
}

impl RmaWork {
    pub(super) fn new(operation: RawOperation) -> Self {
        Self {
            operation,
            failed: None,
        }
    }
}

impl Work for RmaWork {
    fn test(&mut self) -> bool {
        match self.operation.test() {
            Ok(over) => over,
            Err(cause) => {
                self.failed = Some(cause);
                true
            }
        }
    }

    fn wait_local(&mut self) -> Result<()> {
        Ok(self.operation.wait_local()?)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        match self.failed {
            Some(cause) => Err(cause.into()),
            None => Ok(self.operation.wait()?),
        }
    }

    fn detach(self: Box<Self>, keep: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>> {
        if self.failed.is_some() {
            return Some(self);
        }
        keep(self.operation);
        None
    }
}

/// A send or a receive.
pub(super) struct MessageWork {
    pub(super) message: RawMessage,
    pub(super) failed: Option<hydrant::Error>,
    pub(super) status: ResultPlace<hydrant_status>,
}

impl Work for MessageWork {
    fn test(&mut self) -> bool {
        match self.message.test() {
            Ok(over) => over,
            Err(cause) => {
                self.failed = Some(cause);
                true
            }
        }
    }

    fn wait_local(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if let Some(cause) = self.failed.take() {
            return Err(cause.into());
        }
        let status = self.message.wait()?;
        // SAFETY: 1. C1 and C2, for the status of a receive.
        unsafe { self.status.store(status.into()) };
        Ok(())
    }

    fn detach(self: Box<Self>, _: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>> {
        Some(self)
    }
}

impl From<hydrant::Status> for hydrant_status {
    fn from(status: hydrant::Status) -> Self {
        Self {
            tag: status.tag(),
            bytes: status.bytes(),
            source: status.source().0,
        }
    }
}

/// An operation in the background, whose result `store` gives to C.
pub(super) struct BackgroundWork<R, F> {
    handle: BackgroundHandle<R>,
    store: F,
    failed: Option<hydrant::Error>,
}

impl<R, F> BackgroundWork<R, F> {
    pub(super) fn new(handle: BackgroundHandle<R>, store: F) -> Self {
        Self {
            handle,
            store,
            failed: None,
        }
    }
}

impl<R: Send + 'static, F: FnOnce(R) + Send + 'static> Work for BackgroundWork<R, F> {
    fn test(&mut self) -> bool {
        match self.handle.test() {
            Ok(over) => over,
            Err(cause) => {
                self.failed = Some(cause);
                true
            }
        }
    }

    fn wait_local(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        if let Some(cause) = self.failed {
            return Err(cause.into());
        }
        (self.store)(self.handle.wait()?);
        Ok(())
    }

    fn detach(self: Box<Self>, _: &mut dyn FnMut(RawOperation)) -> Option<Box<dyn Work>> {
        // The operation goes on, and its result is dropped.
        None
    }
}
