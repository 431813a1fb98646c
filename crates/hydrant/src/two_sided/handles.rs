//! Sends and receives as users hold them: with borrowed buffers in a scope, and with owned buffers.

#![allow(unsafe_code)] // lends buffers to requests that end before the handles are dropped

use std::{
    mem,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytemuck::Pod;

use super::{
    MessageRequest, RawBuffer, Source, Status, Tag, TwoSided, direct::PollCount,
    matching::PostedId, pattern::Pattern,
};
use crate::{
    Rank, Refused, Result,
    progress::{self, For, On, already_taken},
};

/// A send or a receive of a [scope](crate::Job::scope). It may be dropped, because the scope
/// completes it. Its failure is returned once, here or by the scope.
///
/// It is a future of its end, on any executor. A receive ends when the message is there. A
/// [send](crate::Scope::send) ends when its source may be used again, and a [synchronous
/// send](crate::Scope::send_synchronous) when the message was received.
pub struct Transit<'scope> {
    two_sided: &'scope TwoSided,
    stage: TransitStage,
}

/// The stage of a send or a receive of a scope.
enum TransitStage {
    /// The request is open.
    Open(Arc<MessageRequest>),
    /// It was complete when the call returned. `None` once its status was returned.
    Over(Option<Status>),
}

/// A send in flight, which owns its source. It is a future, on any executor, that returns the
/// buffer when the message was received. [`test`](Self::test) and [`wait`](Self::wait) do so
/// without an executor.
///
/// If the handle is dropped, the send goes on, and its buffer is freed at its end. The result is
/// returned once. Later attempts get [`Error::OutOfTurn`](crate::Error::OutOfTurn).
#[must_use = "only the handle says whether the send failed"]
pub struct SendHandle<T: Pod>(OwnedRequest<T>);

/// A receive in flight, which owns its buffer. It is a future, on any executor, that returns the
/// buffer and the status of the message. [`test`](Self::test) and [`wait`](Self::wait) do so
/// without an executor.
///
/// If the handle is dropped before a message was matched, the receive is withdrawn and takes none.
/// Later, the message is lost. The result is returned once. Later attempts get
/// [`Error::OutOfTurn`](crate::Error::OutOfTurn).
#[must_use = "only the handle gives the message"]
pub struct ReceiveHandle<T: Pod> {
    owner: OwnedRequest<T>,
    at: Option<PostedId>,
}

/// A scope's part of a send or a receive, until the end of the scope.
pub(crate) struct ScopedMessage {
    request: Arc<MessageRequest>,
    at: Option<PostedId>,
}

/// A request and the buffer that it uses.
struct OwnedRequest<T: Pod> {
    two_sided: Arc<TwoSided>,
    request: Arc<MessageRequest>,
    /// Untouched while the request is open.
    buffer: Vec<T>,
}

impl TwoSided {
    /// Begins to send a buffer that the handle owns.
    ///
    /// # Errors
    /// As [`Job::send_nb`](crate::Job::send_nb).
    pub(crate) fn send_owned<T: Pod>(
        self: &Arc<Self>,
        to: Rank,
        tag: u64,
        data: Vec<T>,
        site: &'static Location<'static>,
    ) -> Result<SendHandle<T>, Refused<Vec<T>>> {
        let buffer = source(bytemuck::cast_slice(&data));
        // SAFETY: 1., 2. The handle owns the buffer, and does not touch it until the request is
        // over.
        match unsafe { self.begin_send(to, tag, buffer, true, site) } {
            Ok(request) => Ok(SendHandle(OwnedRequest {
                two_sided: Arc::clone(self),
                request,
                buffer: data,
            })),
            // There is no request.
            Err(cause) => Err(Refused::buffer(data, cause)),
        }
    }

    /// Begins to receive into a buffer that the handle owns.
    ///
    /// # Errors
    /// As [`Job::receive_nb`](crate::Job::receive_nb).
    pub(crate) fn receive_owned<T: Pod>(
        self: &Arc<Self>,
        (from, tag): (Source, Tag),
        mut buffer: Vec<T>,
        site: &'static Location<'static>,
    ) -> Result<ReceiveHandle<T>, Refused<Vec<T>>> {
        let room = destination(bytemuck::cast_slice_mut(&mut buffer));
        let pattern = Pattern::new(from, tag);
        // SAFETY: 1., 2. The handle owns the buffer, and does not touch it until the request is
        // over.
        let (request, at) = match unsafe { self.begin_receive(pattern, room, site) } {
            Ok(begun) => begun,
            // There is no request.
            Err(cause) => return Err(Refused::buffer(buffer, cause)),
        };
        let owner = OwnedRequest {
            two_sided: Arc::clone(self),
            request,
            buffer,
        };
        Ok(ReceiveHandle { owner, at })
    }

    /// Begins to send a borrowed buffer. A `synchronous` send ends when the message was received,
    /// another one when the buffer may be used again.
    ///
    /// # Safety
    /// Until the returned [`ScopedMessage`], if any, was [completed](Self::complete):
    /// 1. `data` stays allocated.
    /// 2. Nobody writes to `data`.
    ///
    /// # Errors
    /// As [`Scope::send`](crate::Scope::send).
    pub(crate) unsafe fn send_lent(
        &self,
        to: Rank,
        tag: u64,
        data: &[u8],
        synchronous: bool,
        site: &'static Location<'static>,
    ) -> Result<(Transit<'_>, Option<ScopedMessage>)> {
        if !synchronous && self.send_at_once(to, tag, data)? {
            return Ok((
                self.complete_transit(self.status_of_sent(tag, data.len())),
                None,
            ));
        }
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        let request = unsafe { self.begin_send(to, tag, source(data), synchronous, site)? };
        Ok(self.open_transit(request, None))
    }

    /// Begins to receive into a borrowed buffer.
    ///
    /// # Safety
    /// Until the returned [`ScopedMessage`], if any, was [completed](Self::complete):
    /// 1. `data` stays allocated.
    /// 2. Nobody else uses `data`.
    ///
    /// # Errors
    /// As [`Scope::receive`](crate::Scope::receive).
    pub(crate) unsafe fn receive_lent(
        &self,
        (from, tag): (Source, Tag),
        data: &mut [u8],
        site: &'static Location<'static>,
    ) -> Result<(Transit<'_>, Option<ScopedMessage>)> {
        let pattern = Pattern::new(from, tag);
        if let Some(status) = self.receive_at_once(pattern, data, PollCount::Once)? {
            return Ok((self.complete_transit(status), None));
        }
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        let (request, at) = unsafe { self.begin_receive(pattern, destination(data), site)? };
        Ok(self.open_transit(request, at))
    }

    fn open_transit(
        &self,
        request: Arc<MessageRequest>,
        at: Option<PostedId>,
    ) -> (Transit<'_>, Option<ScopedMessage>) {
        let lent = ScopedMessage {
            request: Arc::clone(&request),
            at,
        };
        let transit = Transit {
            two_sided: self,
            stage: TransitStage::Open(request),
        };
        (transit, Some(lent))
    }

    fn complete_transit(&self, status: Status) -> Transit<'_> {
        Transit {
            two_sided: self,
            stage: TransitStage::Over(Some(status)),
        }
    }

    /// Completes a send or a receive of a scope. If the scope's body `failed`, this waits for
    /// nothing that peers may never do.
    ///
    /// # Errors
    /// The failure of the send or receive, if it was not returned before.
    pub(crate) fn complete(&self, lent: &ScopedMessage, failed: bool) -> Result<()> {
        if failed {
            match lent.at {
                Some(at) => _ = self.withdraw(at),
                None => self.detach(&lent.request),
            }
            if lent.request.is_source_free() {
                // Only the receive by the peer is still to come.
                return Ok(());
            }
        }
        self.wait_over(&lent.request);
        lent.request.take_failure()
    }

    /// Waits until a request is over, and returns its result.
    pub(super) fn finish(&self, request: &MessageRequest) -> Result<Status> {
        if !request.is_over() {
            self.progress.check_origin()?;
            self.wait_over(request);
        }
        self.record_end(request);
        request.take_result()
    }

    /// Waits until a request is over. Every request ends, with lost peers and at the end of the
    /// job. Neither returns nor unwinds before, because the buffer is in use until then.
    pub(super) fn wait_over(&self, request: &MessageRequest) {
        self.progress.abort_on_unwind(|| {
            while !request.is_over() && !self.progress.is_forked() {
                let _ = (self.progress).wait(On::Nobody, For::Message, || request.is_over());
            }
        });
    }

    /// Waits until the source of a send may be used again.
    pub(super) fn wait_source_free(&self, request: &MessageRequest) -> Result<()> {
        self.progress.may_wait("wait_local")?;
        (self.progress).wait(On::Nobody, For::Message, || request.is_source_free())
    }

    /// Returns whether a request is over. Returns its failure once.
    pub(super) fn test(&self, request: &MessageRequest) -> Result<bool> {
        self.progress.check_origin()?;
        if !request.is_over() && progress::may_wait("a look").is_ok() {
            self.progress.make_progress();
        }
        if request.is_over() {
            self.record_end(request);
        }
        if !request.is_over() {
            return Ok(false);
        }
        if request.has_succeeded() || request.is_taken() {
            return Ok(true);
        }
        request.take_result().map(|_| true)
    }

    /// Leaves a request its buffer, which is freed when the request is over.
    pub(super) fn leave_buffer<T: Pod>(&self, request: &MessageRequest, buffer: Vec<T>) {
        if self.progress.is_forked() {
            // Nothing uses the buffer in the forked process.
            return;
        }
        let buffer = Box::new(KeptBuffer { _buffer: buffer });
        request.keep_buffer(&self.progress, buffer);
    }

    pub(super) fn poll(
        &self,
        request: &MessageRequest,
        context: &mut Context<'_>,
    ) -> Poll<Result<Status>> {
        self.progress.check_origin()?;
        if !request.is_over() && progress::may_wait("a look").is_ok() {
            self.progress.make_progress();
        }
        if !request.wake_at_end(&self.progress, context.waker()) {
            self.record_end(request);
            return Poll::Ready(request.take_result());
        }
        self.progress.poll_again_unless_served(context);
        Poll::Pending
    }
}

impl Transit<'_> {
    /// Returns whether it is over.
    ///
    /// # Errors
    /// The failure of the send or receive.
    pub fn test(&mut self) -> Result<bool> {
        match &self.stage {
            TransitStage::Open(request) => self.two_sided.test(request),
            TransitStage::Over(_) => Ok(true),
        }
    }

    /// Waits until it is over, and returns the status of the message.
    ///
    /// # Errors
    /// The failure of the send or receive; [`Error::OutOfTurn`](crate::Error::OutOfTurn) if the
    /// result was returned before; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(&mut self) -> Result<Status> {
        progress::may_wait("wait")?;
        match &mut self.stage {
            TransitStage::Open(request) => self.two_sided.finish(request),
            TransitStage::Over(status) => status.take().ok_or_else(already_taken),
        }
    }

    /// Waits until the source of a send may be used again, as far as the scope's borrow allows.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&self) -> Result<()> {
        match &self.stage {
            TransitStage::Open(request) => self.two_sided.wait_source_free(request),
            TransitStage::Over(_) => progress::may_wait("wait_local"),
        }
    }
}

impl Future for Transit<'_> {
    type Output = Result<Status>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match &mut this.stage {
            TransitStage::Open(request) => this.two_sided.poll(request, context),
            TransitStage::Over(status) => Poll::Ready(status.take().ok_or_else(already_taken)),
        }
    }
}

impl<T: Pod> SendHandle<T> {
    /// Returns whether the message was received.
    ///
    /// # Errors
    /// The failure of the send.
    pub fn test(&mut self) -> Result<bool> {
        self.0.two_sided.test(&self.0.request)
    }

    /// Waits until the source is free, which may be long before the message is received.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&mut self) -> Result<()> {
        self.0.two_sided.wait_source_free(&self.0.request)
    }

    /// Waits until the message was received, and returns the buffer.
    ///
    /// # Errors
    /// The failure of the send; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(mut self) -> Result<Vec<T>> {
        progress::may_wait("wait")?;
        self.0.two_sided.finish(&self.0.request)?;
        Ok(mem::take(&mut self.0.buffer))
    }
}

impl<T: Pod> ReceiveHandle<T> {
    /// Returns whether the message is there.
    ///
    /// # Errors
    /// The failure of the receive.
    pub fn test(&mut self) -> Result<bool> {
        self.owner.two_sided.test(&self.owner.request)
    }

    /// Waits for the message. Returns the buffer, which begins with the message, and the status of
    /// the message.
    ///
    /// # Errors
    /// The failure of the receive; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(mut self) -> Result<(Vec<T>, Status)> {
        progress::may_wait("wait")?;
        let status = self.owner.two_sided.finish(&self.owner.request)?;
        Ok((mem::take(&mut self.owner.buffer), status))
    }

    /// Withdraws the receive if no message was matched, and returns the buffer.
    ///
    /// # Errors
    /// The handle, if a message was matched.
    pub fn cancel(mut self) -> std::result::Result<Vec<T>, Self> {
        match self.at.take() {
            Some(at) if self.owner.two_sided.withdraw(at) => Ok(mem::take(&mut self.owner.buffer)),
            _ => Err(self),
        }
    }
}

impl<T: Pod> Future for SendHandle<T> {
    type Output = Result<Vec<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let owner = &mut self.get_mut().0;
        let ended = owner.two_sided.poll(&owner.request, context);
        ended.map_ok(|_| mem::take(&mut owner.buffer))
    }
}

impl<T: Pod> Future for ReceiveHandle<T> {
    type Output = Result<(Vec<T>, Status)>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let owner = &mut self.get_mut().owner;
        let ended = owner.two_sided.poll(&owner.request, context);
        ended.map_ok(|status| (mem::take(&mut owner.buffer), status))
    }
}

// Nothing is pinned: the buffer of a vector stays in place when the vector moves.
impl<T: Pod> Unpin for SendHandle<T> {}
impl<T: Pod> Unpin for ReceiveHandle<T> {}

impl<T: Pod> Drop for ReceiveHandle<T> {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            self.owner.two_sided.withdraw(at);
        }
    }
}

impl<T: Pod> Drop for OwnedRequest<T> {
    fn drop(&mut self) {
        if self.request.is_over() {
            // The request's end has freed the buffer and woken the waiter.
            return;
        }
        self.two_sided
            .leave_buffer(&self.request, mem::take(&mut self.buffer));
    }
}

/// The buffer of a dropped handle, kept until its request is over.
struct KeptBuffer<T: Pod> {
    _buffer: Vec<T>,
}

// SAFETY: The elements are plain data, and are neither read nor dropped. Any thread may free their
// memory.
unsafe impl<T: Pod> Send for KeptBuffer<T> {}

/// The source of a message, which is only read.
pub(super) fn source(data: &[u8]) -> RawBuffer {
    RawBuffer {
        at: data.as_ptr().cast_mut(),
        len: data.len(),
    }
}

/// The destination of a message.
pub(super) fn destination(data: &mut [u8]) -> RawBuffer {
    RawBuffer {
        at: data.as_mut_ptr(),
        len: data.len(),
    }
}
