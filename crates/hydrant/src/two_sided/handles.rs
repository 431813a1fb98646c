//! Sends and receives as users hold them: those of a scope on borrowed buffers, and those that own their buffers.

#![allow(unsafe_code)] // lends buffers to requests, which are over before these go

use std::{
    mem,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytemuck::Pod;

use super::{
    Buffer, Request, Source, Status, Tag, TwoSided, direct::Patience, matching::PostedAt,
    pattern::Pattern,
};
use crate::{
    Rank, Refused, Result,
    progress::{self, For, On, taken},
};

/// A send or a receive of a [scope](crate::Job::scope). It may be dropped: the scope completes it. What
/// befell it is said once, here if it is asked for here, else by the scope.
///
/// It is a future, on any executor, that ends when it is over: a receive when the message is there, a
/// [send](crate::Scope::send) when its source may be used again, and a [synchronous
/// one](crate::Scope::send_synchronous) when the message was received.
pub struct Transit<'scope> {
    two_sided: &'scope TwoSided,
    stage: Stage,
}

/// How far a send or a receive of a scope is.
enum Stage {
    /// It goes on.
    Open(Arc<Request>),
    /// It was over when the call returned, and went well. What is known of it, unless that was told.
    Over(Option<Status>),
}

/// A send under way, which owns its source. It is a future that gives the buffer back when the message was
/// received, on any executor; [`test`](Self::test) and [`wait`](Self::wait) do so without one.
///
/// If it is dropped, the send goes on, and its buffer is freed at its end. Its result is given once:
/// [`Error::OutOfTurn`](crate::Error::OutOfTurn) after that.
#[must_use = "only the handle says whether the send failed"]
pub struct SendHandle<T: Pod>(Owner<T>);

/// A receive under way, which owns its buffer. It is a future that gives the buffer and what is known of
/// the message, on any executor; [`test`](Self::test) and [`wait`](Self::wait) do so without one.
///
/// If it is dropped before a message was matched, the receive is taken back and gets none; after that the
/// message is lost. Its result is given once: [`Error::OutOfTurn`](crate::Error::OutOfTurn) after that.
#[must_use = "only the handle gives the message"]
pub struct ReceiveHandle<T: Pod> {
    owner: Owner<T>,
    at: Option<PostedAt>,
}

/// What a scope keeps of a send or a receive until its end.
pub(crate) struct Lent {
    request: Arc<Request>,
    at: Option<PostedAt>,
}

/// A request and the buffer that it uses.
struct Owner<T: Pod> {
    two_sided: Arc<TwoSided>,
    request: Arc<Request>,
    /// Left alone while the request is open.
    buffer: Vec<T>,
}

impl TwoSided {
    /// Begins to send a buffer, which the handle owns.
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
        // SAFETY: the buffer goes into the owner, which keeps it until the request is over.
        match unsafe { self.begin_send(to, tag, buffer, true, site) } {
            Ok(request) => Ok(SendHandle(Owner {
                two_sided: Arc::clone(self),
                request,
                buffer: data,
            })),
            // There is no request.
            Err(cause) => Err(Refused::buffer(data, cause)),
        }
    }

    /// Begins to receive into a buffer, which the handle owns.
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
        // SAFETY: as in `send_owned`; nobody else has the buffer.
        let (request, at) = match unsafe { self.begin_receive(pattern, room, site) } {
            Ok(begun) => begun,
            // There is no request.
            Err(cause) => return Err(Refused::buffer(buffer, cause)),
        };
        let owner = Owner {
            two_sided: Arc::clone(self),
            request,
            buffer,
        };
        Ok(ReceiveHandle { owner, at })
    }

    /// Begins to send a borrowed buffer. `synchronous`: the send is over when the message was received, not when
    /// the buffer may be used again.
    ///
    /// # Safety
    /// Until what is kept, if anything, was [completed](Self::complete):
    /// 1. `data` is there.
    /// 2. Nobody writes to it.
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
    ) -> Result<(Transit<'_>, Option<Lent>)> {
        if !synchronous && self.send_at_once(to, tag, data)? {
            return Ok((self.over(self.sent(tag, data.len())), None));
        }
        // SAFETY: 1., 2.
        let request = unsafe { self.begin_send(to, tag, source(data), synchronous, site)? };
        Ok(self.lent_out(request, None))
    }

    /// Begins to receive into a borrowed buffer.
    ///
    /// # Safety
    /// Until what is kept, if anything, was [completed](Self::complete):
    /// 1. `data` is there.
    /// 2. Nobody else uses it.
    ///
    /// # Errors
    /// As [`Scope::receive`](crate::Scope::receive).
    pub(crate) unsafe fn receive_lent(
        &self,
        (from, tag): (Source, Tag),
        data: &mut [u8],
        site: &'static Location<'static>,
    ) -> Result<(Transit<'_>, Option<Lent>)> {
        let pattern = Pattern::new(from, tag);
        if let Some(status) = self.receive_at_once(pattern, data, Patience::Look)? {
            return Ok((self.over(status), None));
        }
        // SAFETY: 1., 2.
        let (request, at) = unsafe { self.begin_receive(pattern, destination(data), site)? };
        Ok(self.lent_out(request, at))
    }

    fn lent_out(&self, request: Arc<Request>, at: Option<PostedAt>) -> (Transit<'_>, Option<Lent>) {
        let lent = Lent {
            request: Arc::clone(&request),
            at,
        };
        let transit = Transit {
            two_sided: self,
            stage: Stage::Open(request),
        };
        (transit, Some(lent))
    }

    fn over(&self, status: Status) -> Transit<'_> {
        Transit {
            two_sided: self,
            stage: Stage::Over(Some(status)),
        }
    }

    /// Completes what a scope began. `failed`: its body did, so that nothing is waited for that others
    /// may never do.
    ///
    /// # Errors
    /// What befell it, if that was not told.
    pub(crate) fn complete(&self, lent: &Lent, failed: bool) -> Result<()> {
        if failed {
            match lent.at {
                Some(at) => _ = self.withdraw(at),
                None => self.detach(&lent.request),
            }
            if lent.request.has_left() {
                // What is still to come, if anything, is that the message is received.
                return Ok(());
            }
        }
        self.wait_over(&lent.request);
        lent.request.tell_if_untold()
    }

    /// Waits until a request is over, and tells how it ended.
    pub(super) fn finish(&self, request: &Request) -> Result<Status> {
        if !request.is_over() {
            self.progress.check_origin()?;
            self.wait_over(request);
        }
        self.ends(request);
        request.tell()
    }

    /// Waits until a request is over, as it will be whatever becomes of the peers and the job. Does not
    /// return before, nor unwind: its buffer is in use until then.
    pub(super) fn wait_over(&self, request: &Request) {
        self.progress.to_the_end(|| {
            while !request.is_over() && !self.progress.is_forked() {
                let _ = (self.progress).wait(On::Nobody, For::Message, || request.is_over());
            }
        });
    }

    /// Waits until the source of a send may be used again.
    pub(super) fn wait_left(&self, request: &Request) -> Result<()> {
        self.progress.may_wait("wait_local")?;
        (self.progress).wait(On::Nobody, For::Message, || request.has_left())
    }

    /// Whether a request is over. What befell it is said once.
    pub(super) fn test(&self, request: &Request) -> Result<bool> {
        self.progress.check_origin()?;
        if !request.is_over() && progress::may_wait("a look").is_ok() {
            self.progress.look_round();
        }
        if request.is_over() {
            self.ends(request);
        }
        match request.is_over() {
            true if request.is_good() || request.is_told() => Ok(true),
            true => request.tell().map(|_| true),
            false => Ok(false),
        }
    }

    /// Leaves a request to itself, with its buffer, which is freed when it is over.
    pub(super) fn leave_to<T: Pod>(&self, request: &Request, buffer: Vec<T>) {
        if self.progress.is_forked() {
            // Nothing uses it here.
            return;
        }
        let buffer = Box::new(Leftover { _buffer: buffer });
        request.keep(&self.progress, buffer);
    }

    fn poll(&self, request: &Request, context: &mut Context<'_>) -> Poll<Result<Status>> {
        self.progress.check_origin()?;
        if !request.is_over() && progress::may_wait("a look").is_ok() {
            self.progress.look_round();
        }
        if !request.wake_at_end(&self.progress, context.waker()) {
            self.ends(request);
            return Poll::Ready(request.tell());
        }
        self.progress.poll_again_unless_looked_after(context);
        Poll::Pending
    }
}

impl Transit<'_> {
    /// Whether it is over.
    ///
    /// # Errors
    /// What befell it.
    pub fn test(&mut self) -> Result<bool> {
        match &self.stage {
            Stage::Open(request) => self.two_sided.test(request),
            Stage::Over(_) => Ok(true),
        }
    }

    /// Waits until it is over: what is known of the message.
    ///
    /// # Errors
    /// What befell it; [`Error::OutOfTurn`](crate::Error::OutOfTurn) if that was said before;
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(&mut self) -> Result<Status> {
        progress::may_wait("wait")?;
        match &mut self.stage {
            Stage::Open(request) => self.two_sided.finish(request),
            Stage::Over(status) => status.take().ok_or_else(taken),
        }
    }

    /// Waits until the source of a send may be used again, once the scope's borrow allows it.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&self) -> Result<()> {
        match &self.stage {
            Stage::Open(request) => self.two_sided.wait_left(request),
            Stage::Over(_) => progress::may_wait("wait_local"),
        }
    }
}

impl Future for Transit<'_> {
    type Output = Result<Status>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match &mut this.stage {
            Stage::Open(request) => this.two_sided.poll(request, context),
            Stage::Over(status) => Poll::Ready(status.take().ok_or_else(taken)),
        }
    }
}

impl<T: Pod> SendHandle<T> {
    /// Whether the message was received.
    ///
    /// # Errors
    /// What befell the send.
    pub fn test(&mut self) -> Result<bool> {
        self.0.two_sided.test(&self.0.request)
    }

    /// Waits until the source is read no more, which may be long before the message is received.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&mut self) -> Result<()> {
        self.0.two_sided.wait_left(&self.0.request)
    }

    /// Waits until the message was received, and gives the buffer back.
    ///
    /// # Errors
    /// What befell the send; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(mut self) -> Result<Vec<T>> {
        progress::may_wait("wait")?;
        self.0.two_sided.finish(&self.0.request)?;
        Ok(mem::take(&mut self.0.buffer))
    }
}

impl<T: Pod> ReceiveHandle<T> {
    /// Whether the message is there.
    ///
    /// # Errors
    /// What befell the receive.
    pub fn test(&mut self) -> Result<bool> {
        self.owner.two_sided.test(&self.owner.request)
    }

    /// Waits for the message: the buffer, the first bytes of which are the message, and what is known of
    /// it.
    ///
    /// # Errors
    /// What befell the receive; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(mut self) -> Result<(Vec<T>, Status)> {
        progress::may_wait("wait")?;
        let status = self.owner.two_sided.finish(&self.owner.request)?;
        Ok((mem::take(&mut self.owner.buffer), status))
    }

    /// Takes the receive back, if no message was matched: the buffer, or the handle again.
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

// Nothing is pinned: the buffer of a vector stays where it is when the vector moves.
impl<T: Pod> Unpin for SendHandle<T> {}
impl<T: Pod> Unpin for ReceiveHandle<T> {}

impl<T: Pod> Drop for ReceiveHandle<T> {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            self.owner.two_sided.withdraw(at);
        }
    }
}

impl<T: Pod> Drop for Owner<T> {
    fn drop(&mut self) {
        if self.request.is_over() {
            // Nobody uses the buffer any more, and who was to be woken was.
            return;
        }
        self.two_sided
            .leave_to(&self.request, mem::take(&mut self.buffer));
    }
}

/// A buffer that is only to be freed.
struct Leftover<T: Pod> {
    _buffer: Vec<T>,
}

// SAFETY: its elements are plain data, of which nothing is read or dropped: only their memory is freed,
// which any thread may do.
unsafe impl<T: Pod> Send for Leftover<T> {}

/// The source of a message: it is only read.
pub(super) fn source(data: &[u8]) -> Buffer {
    Buffer {
        at: data.as_ptr().cast_mut(),
        len: data.len(),
    }
}

/// The destination of a message.
pub(super) fn destination(data: &mut [u8]) -> Buffer {
    Buffer {
        at: data.as_mut_ptr(),
        len: data.len(),
    }
}
