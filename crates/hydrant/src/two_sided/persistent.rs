//! Persistent sends and receives, which use the same buffer each time.

#![allow(unsafe_code)] // lends its own buffer to requests

use std::{panic::Location, sync::Arc};

use bytemuck::Pod;

use super::{
    MessageRequest, Source, Status, Tag, TwoSided,
    handles::{destination, source},
    matching::PostedId,
    pattern::Pattern,
};
use crate::{Error, Rank, Result, progress};

/// A send from an owned buffer, which each [start](Self::start) repeats.
pub struct PersistentSend<T: Pod> {
    two_sided: Arc<TwoSided>,
    to: Rank,
    tag: u64,
    buffer: Vec<T>,
    open: Option<Arc<MessageRequest>>,
}

/// A receive into an owned buffer, which each [start](Self::start) repeats.
pub struct PersistentReceive<T: Pod> {
    two_sided: Arc<TwoSided>,
    pattern: Pattern,
    buffer: Vec<T>,
    open: Option<(Arc<MessageRequest>, Option<PostedId>)>,
}

impl<T: Pod> PersistentSend<T> {
    pub(crate) fn new(two_sided: &Arc<TwoSided>, to: Rank, tag: u64, buffer: Vec<T>) -> Self {
        Self {
            two_sided: Arc::clone(two_sided),
            to,
            tag,
            buffer,
            open: None,
        }
    }

    /// Returns the buffer, to be filled before the next start.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`] between a start and the [`wait`](Self::wait) for it.
    pub fn buffer(&mut self) -> Result<&mut [T]> {
        match self.open {
            None => Ok(&mut self.buffer),
            Some(_) => Err(started("the buffer of a persistent send")),
        }
    }

    /// Begins to send the content of the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`] if it was started and not waited for; as
    /// [`Job::send`](crate::Job::send).
    #[track_caller]
    pub fn start(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Err(started("a persistent send"));
        }
        let buffer = source(bytemuck::cast_slice(&self.buffer));
        let site = Location::caller();
        // SAFETY: 1., 2. This owns the buffer, and neither lends nor drops it until the request is
        // over.
        let request =
            unsafe { (self.two_sided).begin_send(self.to, self.tag, buffer, false, site)? };
        self.open = Some(request);
        Ok(())
    }

    /// Waits until the buffer may be used again.
    ///
    /// # Errors
    /// The failure of the send; [`Error::OutOfTurn`] if it was not started; [`Error::InHandler`].
    pub fn wait(&mut self) -> Result<()> {
        progress::may_wait("wait")?;
        let request = self
            .open
            .as_ref()
            .ok_or_else(|| idle("a persistent send"))?;
        let end = self.two_sided.finish(request).map(drop);
        self.open = None;
        end
    }
}

impl<T: Pod> PersistentReceive<T> {
    pub(crate) fn new(
        two_sided: &Arc<TwoSided>,
        (from, tag): (Source, Tag),
        buffer: Vec<T>,
    ) -> Self {
        Self {
            two_sided: Arc::clone(two_sided),
            pattern: Pattern::new(from, tag),
            buffer,
            open: None,
        }
    }

    /// Returns the buffer, with the last message that was waited for.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`] between a start and the [`wait`](Self::wait) for it.
    pub fn buffer(&mut self) -> Result<&mut [T]> {
        match self.open {
            None => Ok(&mut self.buffer),
            Some(_) => Err(started("the buffer of a persistent receive")),
        }
    }

    /// Begins to receive a message.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`] if it was started and not waited for; as
    /// [`Job::receive`](crate::Job::receive).
    #[track_caller]
    pub fn start(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Err(started("a persistent receive"));
        }
        let room = destination(bytemuck::cast_slice_mut(&mut self.buffer));
        let site = Location::caller();
        // SAFETY: 1., 2. This owns the buffer, and neither lends nor drops it until the request is
        // over.
        let begun = unsafe { (self.two_sided).begin_receive(self.pattern, room, site)? };
        self.open = Some(begun);
        Ok(())
    }

    /// Waits for the message.
    ///
    /// # Errors
    /// The failure of the receive; [`Error::OutOfTurn`] if it was not started;
    /// [`Error::InHandler`].
    pub fn wait(&mut self) -> Result<Status> {
        progress::may_wait("wait")?;
        let open = self.open.as_ref();
        let (request, _) = open.ok_or_else(|| idle("a persistent receive"))?;
        let end = self.two_sided.finish(request);
        self.open = None;
        end
    }
}

impl<T: Pod> Drop for PersistentSend<T> {
    fn drop(&mut self) {
        if let Some(request) = self.open.take() {
            self.two_sided
                .leave_buffer(&request, std::mem::take(&mut self.buffer));
        }
    }
}

impl<T: Pod> Drop for PersistentReceive<T> {
    fn drop(&mut self) {
        if let Some((request, at)) = self.open.take() {
            if let Some(at) = at {
                self.two_sided.withdraw(at);
            }
            self.two_sided
                .leave_buffer(&request, std::mem::take(&mut self.buffer));
        }
    }
}

fn started(what: &'static str) -> Error {
    Error::OutOfTurn {
        what,
        why: "it was started, and not waited for",
    }
}

fn idle(what: &'static str) -> Error {
    Error::OutOfTurn {
        what,
        why: "it was not started",
    }
}
