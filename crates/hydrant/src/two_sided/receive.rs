//! Receives: of a message that is here already, or posted to wait for one.

#![allow(unsafe_code)] // keeps the addresses of buffers until their requests end, and copies into them

use std::{
    panic::Location,
    ptr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{
    Envelope, MessageRequest, PostedReceive, RawBuffer, TwoSided, Unexpected,
    matching::{PostedId, UnexpectedMessage},
    pattern::Pattern,
    request::Status,
    wire::WireMessage,
};
use crate::{Error, Rank, Result, counters::Count, progress, uses::UseKind};

impl TwoSided {
    /// Begins to receive the first message that fits. Also returns the id of the posted receive, if
    /// it waits.
    ///
    /// # Safety
    /// Until the request [is over](MessageRequest::is_over):
    /// 1. The buffer stays allocated.
    /// 2. Nobody else uses the buffer.
    ///
    /// # Errors
    /// Errors found at once. Then no request is open, and a message that is too long stays kept.
    pub(super) unsafe fn begin_receive(
        &self,
        pattern: Pattern,
        buffer: RawBuffer,
        site: &'static Location<'static>,
    ) -> Result<(Arc<MessageRequest>, Option<PostedId>)> {
        progress::may_wait("a receive")?;
        self.check(pattern.source, pattern.tag)?;
        // The receive may find its message kept, or be withdrawn before it waits, so the poll is
        // noted here.
        self.note_found(pattern);
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        unsafe { self.take_or_post(pattern, buffer, site) }
    }

    /// As [`begin_receive`](Self::begin_receive), without a poll before.
    ///
    /// # Safety
    /// 1., 2. As [`begin_receive`](Self::begin_receive).
    ///
    /// # Errors
    /// As [`begin_receive`](Self::begin_receive).
    pub(super) unsafe fn take_or_post(
        &self,
        pattern: Pattern,
        buffer: RawBuffer,
        site: &'static Location<'static>,
    ) -> Result<(Arc<MessageRequest>, Option<PostedId>)> {
        let request = Arc::new(MessageRequest::new());
        self.record_start(UseKind::Received, buffer, &request, site);
        let posted = PostedReceive {
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
                // SAFETY: 1., 2. The caller's conditions 1 and 2. 3. The buffer has room, as
                // checked above.
                unsafe { self.deliver(taken, posted) };
                return Ok((request, None));
            }
        }
        let at = state.matching.post(pattern, posted);
        drop(state);
        self.check_for_ended_peers_now();
        // The receive may wait in vain from the start.
        if self.why_none_comes(pattern.source).is_some() {
            self.fail_vain_receives();
        }
        Ok((request, Some(at)))
    }

    /// Hands a taken message to a receive.
    ///
    /// # Safety
    /// 1., 2. As [`begin_receive`](Self::begin_receive), for the posted receive, which is in no
    /// table any more.
    /// 3. Its buffer has room for the message.
    pub(super) unsafe fn deliver(
        &self,
        taken: UnexpectedMessage<Unexpected>,
        posted: PostedReceive,
    ) {
        let UnexpectedMessage {
            envelope, message, ..
        } = taken;
        let from = Rank(envelope.source);
        match message {
            Unexpected::Here { data, send } => {
                // SAFETY: 1. The caller's conditions 1 and 2. 2. The caller's condition 3. 3. The
                // receive is in no table.
                unsafe { self.land(envelope, &data, posted) };
                self.release_credit(from, data.len(), send);
            }
            Unexpected::Own { data, request } => {
                // SAFETY: 1. The caller's conditions 1 and 2. 2. The caller's condition 3. 3. The
                // receive is in no table.
                unsafe { self.land(envelope, &data, posted) };
                let status = self.status_of_sent(envelope.tag, data.len());
                request.end(&self.progress, Ok(status));
            }
            Unexpected::Announced { send, len, copied } => {
                self.release_credit(from, 0, 0);
                posted.request.count_in(&self.in_flight);
                self.clear(envelope, (send, len as usize, copied), posted);
            }
        }
    }

    /// Copies a message into the buffer of a receive, and ends the receive.
    ///
    /// # Safety
    /// 1. The buffer is allocated, and nobody else uses it.
    /// 2. The buffer has room for the message.
    /// 3. Nobody else ends the request.
    pub(super) unsafe fn land(&self, envelope: Envelope, data: &[u8], posted: PostedReceive) {
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
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
            let found = state.matching.take_fitting(envelope, len, &mut short);
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
                let taken = UnexpectedMessage::new(envelope, message);
                // SAFETY: 1., 2. The receive was posted, its request is open, and it was taken out
                // of its table.
                // 3. The buffer has room, as was matched.
                unsafe { self.deliver(taken, posted) };
            }
            (None, Some(message)) => self.turn_away(envelope, message),
            _ => self.note_unexpected(),
        }
        self.fail_short(envelope, len, short);
    }

    /// Counts a message without a receive, and wakes probes.
    pub(super) fn note_unexpected(&self) {
        self.progress.tally.one(Count::MessagesUnexpected);
        self.wake_probes();
    }

    /// Ends receives whose buffers are too short for a message of `len` bytes.
    #[inline]
    pub(super) fn fail_short(&self, envelope: Envelope, len: u64, short: Option<Box<Short>>) {
        if let Some(short) = short {
            self.fail_each_short(envelope, len, short);
        }
    }

    #[cold]
    fn fail_each_short(&self, envelope: Envelope, len: u64, short: Box<Short>) {
        let mut next = Some(short);
        while let Some(short) = next {
            let Short { posted, before } = *short;
            let cause = too_long(envelope, len, posted.buffer.len);
            posted.request.end(&self.progress, Err(cause));
            next = before;
        }
    }

    /// Notes that a message has left the memory for unexpected messages, or did not need it.
    /// `send`: its number at the sender, if the sender waits for the receive.
    pub(super) fn release_credit(&self, from: Rank, bytes: usize, send: u64) {
        let credit = self.state.lock().peer(from).account.release(bytes as u64);
        self.tell_taken(from, credit, send);
    }

    /// Tells a peer about its message that was taken: the credit that is due, and the number of the
    /// send, if the sender waits for the receive.
    #[inline]
    pub(super) fn tell_taken(&self, from: Rank, credit: Option<(u64, u64)>, send: u64) {
        if let Some((messages, bytes)) = credit {
            self.tell(from, WireMessage::Credit { messages, bytes }, &[]);
        }
        if send != 0 {
            self.tell(from, WireMessage::Received { send }, &[]);
        }
    }

    /// Withdraws a waiting receive. Returns whether it was still waiting.
    pub(super) fn withdraw(&self, at: PostedId) -> bool {
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

impl<U> super::Matching<PostedReceive, U> {
    /// Takes the first posted receive with room for a message. Also takes earlier ones without room
    /// out, into `short`.
    #[inline]
    pub(super) fn take_fitting(
        &mut self,
        envelope: Envelope,
        len: u64,
        short: &mut Option<Box<Short>>,
    ) -> Option<PostedReceive> {
        if self.has_posted_none() {
            None
        } else {
            self.take_fitting_posted(envelope, len, short)
        }
    }

    fn take_fitting_posted(
        &mut self,
        envelope: Envelope,
        len: u64,
        short: &mut Option<Box<Short>>,
    ) -> Option<PostedReceive> {
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

/// A receive taken out because its buffer is too short for a message, and the earlier ones like it.
pub(super) struct Short {
    posted: PostedReceive,
    before: Option<Box<Short>>,
}

/// Returns the status of a received message.
#[inline]
pub(super) fn status(envelope: Envelope, bytes: usize) -> Status {
    Status {
        source: Rank(envelope.source),
        tag: envelope.tag,
        bytes,
    }
}

/// Returns the error of a receive whose buffer is too short.
pub(super) fn too_long(envelope: Envelope, len: u64, room: usize) -> Error {
    Error::ReceiveTooShort {
        from: Rank(envelope.source),
        tag: envelope.tag,
        len,
        room,
    }
}

/// Copies bytes into a buffer at an offset.
///
/// # Safety
/// 1. The buffer is allocated, and nobody else uses it.
/// 2. The buffer has room for the bytes at this offset.
pub(super) unsafe fn copy_into(buffer: RawBuffer, offset: usize, data: &[u8]) {
    debug_assert!(offset + data.len() <= buffer.len);
    if !data.is_empty() {
        // SAFETY: The offset lies in the buffer (2).
        let to = unsafe { buffer.at.add(offset) };
        // SAFETY: The target may be written (1, 2). The data came by a message, or was kept, so it
        // lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }
}
