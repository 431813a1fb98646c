//! Probes: they show a message before it is received, or take it so that no other thread receives
//! it.

#![allow(unsafe_code)] // copies into a borrowed buffer

use std::{
    panic::Location,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
};

use bytemuck::Pod;

use super::{
    MessageRequest, PostedReceive, Source, Status, Tag, TwoSided, TwoSidedState, Unexpected,
    handles::destination,
    matching::UnexpectedMessage,
    pattern::Pattern,
    receive::{status, too_long},
};
use crate::{
    Error, Rank, Result,
    progress::{self, For, On},
    uses::UseKind,
};

/// A message taken by a probe: no other receive gets it. If this is dropped before the receive, the
/// message returns to its position among the others.
#[must_use = "if it is dropped the message goes back"]
pub struct MatchedMessage {
    two_sided: Arc<TwoSided>,
    taken: Option<UnexpectedMessage<Unexpected>>,
    status: Status,
}

impl TwoSided {
    /// Returns the status of the first message that fits, if there is one.
    ///
    /// # Errors
    /// As [`Job::try_probe`](crate::Job::try_probe).
    pub(crate) fn try_probe(&self, from: Source, tag: Tag) -> Result<Option<Status>> {
        let pattern = Pattern::new(from, tag);
        self.check(pattern.source, pattern.tag)?;
        self.check_receives()?;
        let found = self.peek(pattern);
        if self.is_probe_over(found.is_some(), pattern) {
            return Ok(found);
        }
        self.progress.make_progress();
        self.search_last_time(pattern, || self.peek(pattern))
    }

    /// Waits for a message that fits.
    ///
    /// # Errors
    /// As [`Job::probe`](crate::Job::probe).
    pub(crate) fn probe(&self, from: Source, tag: Tag) -> Result<Status> {
        self.wait_for_match(from, tag, |two_sided, pattern| two_sided.peek(pattern))
    }

    /// Takes the first message that fits, if there is one.
    ///
    /// # Errors
    /// As [`Job::try_probe_matched`](crate::Job::try_probe_matched).
    pub(crate) fn try_probe_matched(
        self: &Arc<Self>,
        from: Source,
        tag: Tag,
    ) -> Result<Option<MatchedMessage>> {
        let pattern = Pattern::new(from, tag);
        self.check(pattern.source, pattern.tag)?;
        self.check_receives()?;
        let found = self.take_matched(pattern);
        if self.is_probe_over(found.is_some(), pattern) {
            return Ok(found);
        }
        self.progress.make_progress();
        self.search_last_time(pattern, || self.take_matched(pattern))
    }

    /// Returns whether a probe without a wait is over before it polls.
    fn is_probe_over(&self, found: bool, pattern: Pattern) -> bool {
        if progress::may_wait("a look").is_err() {
            return true;
        }
        if found {
            self.note_found(pattern);
        }
        found
    }

    /// Returns the result of a last look, or the reason why no message that fits can come any more.
    fn search_last_time<R>(
        &self,
        pattern: Pattern,
        look: impl FnOnce() -> Option<R>,
    ) -> Result<Option<R>> {
        // The reason is read before the look at the messages: all messages sent before the end have
        // arrived by then.
        let in_vain = (self.why_none_comes(pattern.source))
            .or_else(|| (self.progress).poll_failure(self.awaits(pattern), For::Message));
        match (look(), in_vain) {
            (None, Some(cause)) => Err(cause),
            (found, _) => Ok(found),
        }
    }

    /// Waits for a message that fits and takes it.
    ///
    /// # Errors
    /// As [`Job::probe_matched`](crate::Job::probe_matched).
    pub(crate) fn probe_matched(
        self: &Arc<Self>,
        from: Source,
        tag: Tag,
    ) -> Result<MatchedMessage> {
        self.wait_for_match(from, tag, |_, pattern| self.take_matched(pattern))
    }

    fn wait_for_match<R>(
        &self,
        from: Source,
        tag: Tag,
        look: impl Fn(&Self, Pattern) -> Option<R>,
    ) -> Result<R> {
        progress::may_wait("a probe")?;
        let pattern = Pattern::new(from, tag);
        self.check(pattern.source, pattern.tag)?;
        self.check_receives()?;
        self.note_found(pattern);
        let on = self.awaits(pattern);
        self.probing.fetch_add(1, SeqCst);
        let (mut found, mut in_vain) = (None, None);
        let waited = self.progress.wait(on, For::Message, || {
            // The reason is read before the look at the messages: all messages sent before the end
            // have arrived by then.
            in_vain = self.why_none_comes(pattern.source);
            found = look(self, pattern);
            found.is_some() || in_vain.is_some()
        });
        self.probing.fetch_sub(1, SeqCst);
        match found {
            Some(found) => Ok(found),
            None => Err(in_vain.or(waited.err()).unwrap_or(Error::JobOver)),
        }
    }

    /// The ranks of which one may send such a message.
    fn awaits(&self, pattern: Pattern) -> On<'static> {
        pattern
            .source
            .map_or(On::Anyone, |rank| On::Rank(Rank(rank)))
    }

    /// # Errors
    /// [`Error::JobOver`] if the program has come to its end.
    fn check_receives(&self) -> Result<()> {
        if self.state.lock().refuses {
            Err(Error::JobOver)
        } else {
            Ok(())
        }
    }

    fn peek(&self, pattern: Pattern) -> Option<Status> {
        let mut state = self.state.lock();
        let (envelope, message) = state.matching.first(pattern)?;
        Some(status(envelope, message.len() as usize))
    }

    fn take_matched(self: &Arc<Self>, pattern: Pattern) -> Option<MatchedMessage> {
        let mut state = self.state.lock();
        let taken = state.matching.take(pattern)?;
        if let Some(send) = taken.message.awaited() {
            state.held.insert((taken.envelope.source, send));
        }
        drop(state);
        Some(MatchedMessage {
            two_sided: Arc::clone(self),
            status: status(taken.envelope, taken.message.len() as usize),
            taken: Some(taken),
        })
    }

    /// Puts a taken message back to its position, unless a posted receive takes it.
    fn put_back(&self, taken: UnexpectedMessage<Unexpected>) {
        let mut short = None;
        let mut state = self.state.lock();
        state.unhold(&taken);
        if state.refuses && !state.closed {
            // The sender got its refusal before.
            let (from, bytes) = (Rank(taken.envelope.source), taken.message.held_bytes());
            drop(state);
            return match taken.message {
                Unexpected::Own { request, .. } => {
                    request.end(&self.progress, Err(Error::JobOver));
                }
                _ => self.release_credit(from, bytes, 0),
            };
        }
        if state.closed {
            drop(state);
            if let Unexpected::Own { request, .. } = taken.message {
                request.end(&self.progress, Err(Error::JobOver));
            }
            return;
        }
        let (envelope, len) = (taken.envelope, taken.message.len());
        let found = state.matching.take_fitting(envelope, len, &mut short);
        match found {
            Some(posted) => {
                drop(state);
                // SAFETY: 1., 2. The receive was posted, and its request is open. 3. The buffer has
                // room, as was matched.
                unsafe { self.deliver(taken, posted) };
            }
            None => {
                state.matching.put_back(taken);
                self.keeps.store(true, Relaxed);
                drop(state);
                self.wake_probes();
            }
        }
        self.fail_short(envelope, len, short);
        self.check_for_ended_peers();
    }
}

impl TwoSidedState {
    /// Notes that a taken message is received or put back.
    fn unhold(&mut self, taken: &UnexpectedMessage<Unexpected>) {
        if let Some(send) = taken.message.awaited() {
            self.held.remove(&(taken.envelope.source, send));
        }
    }
}

impl MatchedMessage {
    /// Returns the status of the message.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives the message into `buffer`, which may be longer.
    ///
    /// # Errors
    /// [`Error::ReceiveTooShort`], and the message can still be received; [`Error::OutOfTurn`] if
    /// it was received before; [`Error::PeerLost`], [`Error::JobOver`], [`Error::InHandler`].
    #[track_caller]
    pub fn receive<T: Pod>(&mut self, buffer: &mut [T]) -> Result<Status> {
        self.two_sided.progress.may_wait("a receive")?;
        let site = Location::caller();
        let room = destination(bytemuck::cast_slice_mut(buffer));
        let Some(taken) = self.taken.take_if(|it| it.message.len() <= room.len as u64) else {
            return Err(match &self.taken {
                Some(taken) => too_long(taken.envelope, taken.message.len(), room.len),
                None => progress::already_taken(),
            });
        };
        let request = Arc::new(MessageRequest::new());
        let posted = PostedReceive {
            source: Some(taken.envelope.source),
            buffer: room,
            request: Arc::clone(&request),
        };
        let two_sided = &self.two_sided;
        {
            let mut state = two_sided.state.lock();
            if state.refuses {
                self.taken = Some(taken);
                return Err(Error::JobOver);
            }
            state.unhold(&taken);
        }
        two_sided.record_start(UseKind::Received, room, &request, site);
        two_sided.progress.abort_on_unwind(|| {
            // SAFETY: 1., 2. `buffer` is borrowed mutably until `finish` has returned. 3. The
            // message fits the buffer.
            unsafe { two_sided.deliver(taken, posted) };
            two_sided.finish(&request)
        })
    }

    /// Receives the message into a new vector.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if the message is no whole number of elements. The message then
    /// returns to its position. Otherwise as [`receive`](Self::receive).
    #[track_caller]
    pub fn receive_vec<T: Pod>(mut self) -> Result<Vec<T>> {
        let Some(count) = self.status.count::<T>() else {
            return Err(Error::LengthMismatch {
                what: "bytes of a message and of an element",
                left: self.status.bytes,
                right: size_of::<T>(),
            });
        };
        let mut data = vec![T::zeroed(); count];
        self.receive(&mut data)?;
        Ok(data)
    }
}

impl Drop for MatchedMessage {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take()
            && !self.two_sided.progress.is_forked()
        {
            self.two_sided.put_back(taken);
        }
    }
}
