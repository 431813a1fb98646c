//! Sends and receives on memory whose lifetime only the caller knows. For the runtimes of other
//! languages.

#![allow(unsafe_code)] // only the caller can keep the conditions

use std::{
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    MessageRequest, Source, Status, Tag, TwoSided,
    direct::PollCount,
    handles::{destination, source},
    matching::PostedId,
    pattern::Pattern,
};
use crate::{
    Rank, Result,
    progress::{self, already_taken},
};

/// A send or a receive on memory of the caller; see [`Job::send_raw_nb`](crate::Job::send_raw_nb).
/// If it is dropped before its end, a receive without a message is withdrawn. Anything else is waited
/// for, because it uses that memory. In a handler it goes on. It is a future for any executor.
#[must_use = "a drop waits for the end"]
pub struct RawMessage {
    two_sided: Arc<TwoSided>,
    stage: RawStage,
}

enum RawStage {
    Open(Arc<MessageRequest>, Option<PostedId>),
    /// It has ended. `None` once its status was returned.
    Over(Option<Status>),
}

impl RawMessage {
    /// Begins to send.
    ///
    /// # Errors
    /// As [`Job::send_raw_nb`](crate::Job::send_raw_nb).
    ///
    /// # Safety
    /// 1. and 2. as [`Job::send_raw_nb`](crate::Job::send_raw_nb).
    pub(crate) unsafe fn send(
        two_sided: &Arc<TwoSided>,
        (to, tag, data): (Rank, u64, &[u8]),
        synchronous: bool,
        site: &'static Location<'static>,
    ) -> Result<Self> {
        let stage = if !synchronous && two_sided.send_at_once(to, tag, data)? {
            RawStage::Over(Some(two_sided.status_of_sent(tag, data.len())))
        } else {
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            let begun = unsafe { two_sided.begin_send(to, tag, source(data), synchronous, site)? };
            RawStage::Open(begun, None)
        };
        Ok(Self {
            two_sided: Arc::clone(two_sided),
            stage,
        })
    }

    /// Begins to receive.
    ///
    /// # Errors
    /// As [`Job::receive_raw_nb`](crate::Job::receive_raw_nb).
    ///
    /// # Safety
    /// 1. and 2. as [`Job::receive_raw_nb`](crate::Job::receive_raw_nb).
    pub(crate) unsafe fn receive(
        two_sided: &Arc<TwoSided>,
        (from, tag): (Source, Tag),
        data: &mut [u8],
        site: &'static Location<'static>,
    ) -> Result<Self> {
        let pattern = Pattern::new(from, tag);
        let at_once = two_sided.receive_at_once(pattern, data, PollCount::Once)?;
        let stage = match at_once {
            Some(status) => RawStage::Over(Some(status)),
            None => {
                // SAFETY: 1., 2. The caller's conditions 1 and 2.
                let begun = unsafe { two_sided.begin_receive(pattern, destination(data), site)? };
                RawStage::Open(begun.0, begun.1)
            }
        };
        Ok(Self {
            two_sided: Arc::clone(two_sided),
            stage,
        })
    }

    /// Polls, and returns whether it has ended.
    ///
    /// # Errors
    /// The failure of the send or receive.
    pub fn test(&mut self) -> Result<bool> {
        match &self.stage {
            RawStage::Open(request, _) => self.two_sided.test(request),
            RawStage::Over(_) => Ok(true),
        }
    }

    /// Waits for the end, and returns the status of the message.
    ///
    /// # Errors
    /// The failure of the send or receive; [`Error::OutOfTurn`](crate::Error::OutOfTurn) if the
    /// result was returned before; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(&mut self) -> Result<Status> {
        progress::may_wait("wait")?;
        match &mut self.stage {
            RawStage::Open(request, _) => {
                let ended = self.two_sided.finish(request);
                self.stage = RawStage::Over(None);
                ended
            }
            RawStage::Over(status) => status.take().ok_or_else(already_taken),
        }
    }

    /// Withdraws a receive that no message was matched with. Returns whether it did.
    pub fn cancel(&mut self) -> bool {
        let RawStage::Open(_, at) = &mut self.stage else {
            return false;
        };
        let withdrawn = at.take().is_some_and(|at| self.two_sided.withdraw(at));
        if withdrawn {
            self.stage = RawStage::Over(None);
        }
        withdrawn
    }
}

impl Future for RawMessage {
    type Output = Result<Status>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let ended = match &mut this.stage {
            RawStage::Open(request, _) => this.two_sided.poll(request, context),
            RawStage::Over(status) => return Poll::Ready(status.take().ok_or_else(already_taken)),
        };
        if ended.is_ready() {
            this.stage = RawStage::Over(None);
        }
        ended
    }
}

impl Drop for RawMessage {
    fn drop(&mut self) {
        if self.cancel() {
            return;
        }
        if let RawStage::Open(request, _) = &self.stage
            && progress::may_wait("the end of a message").is_ok()
        {
            self.two_sided.wait_over(request);
        }
    }
}
