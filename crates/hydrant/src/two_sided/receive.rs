//! Receiving: a message that is here already, or a posted receive that waits for one.

#![allow(unsafe_code)] // keeps the addresses of buffers until their requests end, and copies into them

use std::{
    panic::Location,
    ptr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{
    Buffer, Envelope, Posted, Request, TwoSided, Unexpected,
    matching::{PostedAt, Taken},
    pattern::Pattern,
    request::Status,
    wire::Said,
};
use crate::{Error, Rank, Result, counters::Count, progress, uses::UseKind};

impl TwoSided {
    /// Begins to receive the first message that fits, and where the receive waits if it does.
    ///
    /// # Safety
    /// Until the request [is over](Request::is_over):
    /// 1. The buffer is there.
    /// 2. Nobody else uses it.
    ///
    /// # Errors
    /// What is found at once: nothing is under way then, and a message that is too long stays where it is.
    pub(super) unsafe fn begin_receive(
        &self,
        pattern: Pattern,
        buffer: Buffer,
        site: &'static Location<'static>,
    ) -> Result<(Arc<Request>, Option<PostedAt>)> {
        progress::may_wait("a receive")?;
        self.check(pattern.source, pattern.tag)?;
        // It may find its message kept, or be taken back before it ever waits.
        self.found_one(pattern);
        // SAFETY: the caller's promise.
        unsafe { self.take_or_post(pattern, buffer, site) }
    }

    /// As [`begin_receive`](Self::begin_receive), but looks at nothing that arrives before.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub(super) unsafe fn take_or_post(
        &self,
        pattern: Pattern,
        buffer: Buffer,
        site: &'static Location<'static>,
    ) -> Result<(Arc<Request>, Option<PostedAt>)> {
        let request = Arc::new(Request::new());
        self.begins(UseKind::Received, buffer, &request, site);
        let posted = Posted {
            source: pattern.source,
            buffer,
            request: Arc::clone(&request),
        };
        let mut state = self.state.lock();
        if state.refuses {
            return Err(Error::JobOver);
        }
        if let Some((envelope, message)) = state.matching.first(pattern) {
            if message.len() > buffer.len as u64 {
                return Err(too_long(envelope, message.len(), buffer.len));
            }
            if let Some(taken) = state.matching.take(pattern) {
                drop(state);
                // SAFETY: the caller's promise.
                unsafe { self.deliver(taken, posted) };
                return Ok((request, None));
            }
        }
        let at = state.matching.post(pattern, posted);
        drop(state);
        self.look_for_change_here();
        // The receive may wait in vain from the start.
        if self.why_none_comes(pattern.source).is_some() {
            self.look_for_ends();
        }
        Ok((request, Some(at)))
    }

    /// Hands a message that was taken to a receive, whose buffer has room for it.
    ///
    /// # Safety
    /// As [`begin_receive`](Self::begin_receive), of the receive.
    pub(super) unsafe fn deliver(&self, taken: Taken<Unexpected>, posted: Posted) {
        let Taken {
            envelope, message, ..
        } = taken;
        let from = Rank(envelope.source);
        match message {
            Unexpected::Here { data, send } => {
                // SAFETY: 1. The caller's promise. 2. As it was matched. 3. The receive is in no table any more.
                unsafe { self.land(envelope, &data, posted) };
                self.took_out(from, data.len(), send);
            }
            Unexpected::Own { data, request } => {
                // SAFETY: as above.
                unsafe { self.land(envelope, &data, posted) };
                let status = self.sent(envelope.tag, data.len());
                request.end(&self.progress, Ok(status));
            }
            Unexpected::Announced { send, len, copied } => {
                self.took_out(from, 0, 0);
                posted.request.is_under_way(&self.under_way);
                self.clear(envelope, (send, len as usize, copied), posted);
            }
        }
    }

    /// Copies a message into the buffer of a receive, which it ends.
    ///
    /// # Safety
    /// 1. The buffer is there and nobody else uses it.
    /// 2. It has room.
    /// 3. Nobody else ends the request.
    pub(super) unsafe fn land(&self, envelope: Envelope, data: &[u8], posted: Posted) {
        // SAFETY: the caller's promise.
        unsafe { copy_into(posted.buffer, 0, data) };
        let status = status(envelope, data.len());
        posted.request.end(&self.progress, Ok(status));
    }

    /// Gives a message to the first receive that it fits, or keeps it.
    pub(super) fn match_message(&self, envelope: Envelope, message: Unexpected) {
        let mut short = None;
        let len = message.len();
        let mut message = Some(message);
        let found = {
            let mut state = self.state.lock();
            let found = state.matching.fitting(envelope, len, &mut short);
            if found.is_none()
                && !state.refuses
                && let Some(message) = message.take()
            {
                state.matching.keep(envelope, message);
                self.keeps.store(true, Relaxed);
            }
            found
        };
        match (found, message) {
            (Some(posted), Some(message)) => {
                let taken = Taken::new(envelope, message);
                // SAFETY: a receive that was posted, whose request is not over and which is in no table
                // any more.
                unsafe { self.deliver(taken, posted) };
            }
            (None, Some(message)) => self.turn_away(envelope, message),
            _ => self.is_unexpected(),
        }
        self.refuse(envelope, len, short);
    }

    /// A message came that nobody has asked for.
    pub(super) fn is_unexpected(&self) {
        self.progress.tally.one(Count::MessagesUnexpected);
        self.tell_probing();
    }

    /// Ends receives whose buffers were too short for a message of so many bytes.
    #[inline]
    pub(super) fn refuse(&self, envelope: Envelope, len: u64, short: Option<Box<Short>>) {
        if let Some(short) = short {
            self.refuse_each(envelope, len, short);
        }
    }

    #[cold]
    fn refuse_each(&self, envelope: Envelope, len: u64, short: Box<Short>) {
        let mut next = Some(short);
        while let Some(short) = next {
            let Short { posted, before } = *short;
            let cause = too_long(envelope, len, posted.buffer.len);
            posted.request.end(&self.progress, Err(cause));
            next = before;
        }
    }

    /// A message of a peer leaves the buffers for unexpected ones, or did not need them. `send`: its
    /// number there, if its sender wants to know.
    pub(super) fn took_out(&self, from: Rank, bytes: usize, send: u64) {
        let credit = self.state.lock().peer(from).account.took(bytes as u64);
        self.say_taken(from, credit, send);
    }

    /// Tells a peer what it may know of a message of its own that was taken: that there is credit again, and the
    /// number of the send, if it wants to know of its end.
    #[inline]
    pub(super) fn say_taken(&self, from: Rank, credit: Option<(u64, u64)>, send: u64) {
        if let Some((messages, bytes)) = credit {
            self.say(from, Said::Credit { messages, bytes }, &[]);
        }
        if send != 0 {
            self.say(from, Said::Received { send }, &[]);
        }
    }

    /// Takes a receive back that waits: whether it did.
    pub(super) fn withdraw(&self, at: PostedAt) -> bool {
        if self.progress.is_forked() {
            return false;
        }
        let posted = self.state.lock().matching.withdraw(at);
        let Some(posted) = posted else { return false };
        let cause = Error::OutOfTurn {
            what: "a receive",
            why: "it was taken back",
        };
        posted.request.end(&self.progress, Err(cause));
        true
    }
}

impl<U> super::Matching<Posted, U> {
    /// Takes the first posted receive for a message that has room for it; those before it that have not
    /// are taken out.
    #[inline]
    pub(super) fn fitting(
        &mut self,
        envelope: Envelope,
        len: u64,
        short: &mut Option<Box<Short>>,
    ) -> Option<Posted> {
        match self.has_posted_none() {
            true => None,
            false => self.fitting_posted(envelope, len, short),
        }
    }

    fn fitting_posted(
        &mut self,
        envelope: Envelope,
        len: u64,
        short: &mut Option<Box<Short>>,
    ) -> Option<Posted> {
        loop {
            let posted = self.receive_for(envelope)?;
            if posted.buffer.len as u64 >= len {
                return Some(posted);
            }
            let before = short.take();
            *short = Some(Box::new(Short { posted, before }));
        }
    }
}

/// A receive that was taken out, for its buffer is too short for a message, and those that were before it.
pub(super) struct Short {
    posted: Posted,
    before: Option<Box<Short>>,
}

/// What is known of a message that was received.
#[inline]
pub(super) fn status(envelope: Envelope, bytes: usize) -> Status {
    Status {
        source: Rank(envelope.source),
        tag: envelope.tag,
        bytes,
    }
}

/// The error of a receive whose buffer is too short.
pub(super) fn too_long(envelope: Envelope, len: u64, room: usize) -> Error {
    Error::ReceiveTooShort {
        from: Rank(envelope.source),
        tag: envelope.tag,
        len,
        room,
    }
}

/// Copies bytes to a place in a buffer.
///
/// # Safety
/// 1. The buffer is there, and nobody else uses it.
/// 2. It has room for them there.
pub(super) unsafe fn copy_into(buffer: Buffer, offset: usize, data: &[u8]) {
    debug_assert!(offset + data.len() <= buffer.len);
    if !data.is_empty() {
        // SAFETY: 2.
        let to = unsafe { buffer.at.add(offset) };
        // SAFETY: 1.; what came by a message, or was kept, lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }
}
