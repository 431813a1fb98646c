//! Looking at messages before they are received, and taking one out so that no other thread receives it.

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
    Posted, Request, Source, State, Status, Tag, TwoSided, Unexpected,
    handles::destination,
    matching::Taken,
    pattern::Pattern,
    receive::{status, too_long},
};
use crate::{
    Error, Rank, Result,
    progress::{self, For, On},
    uses::UseKind,
};

/// A message that was taken out and is to be received here: no other receive gets it. If this is dropped
/// before, the message goes back to its place among the others.
#[must_use = "if it is dropped the message goes back"]
pub struct MatchedMessage {
    two_sided: Arc<TwoSided>,
    taken: Option<Taken<Unexpected>>,
    status: Status,
}

impl TwoSided {
    /// What is known of the first message that fits, if there is one.
    ///
    /// # Errors
    /// As [`Job::try_probe`](crate::Job::try_probe).
    pub(crate) fn try_probe(&self, from: Source, tag: Tag) -> Result<Option<Status>> {
        let pattern = Pattern::new(from, tag);
        self.check(pattern.source, pattern.tag)?;
        self.check_receives()?;
        let found = self.seen(pattern);
        if self.needs_no_look(found.is_some(), pattern) {
            return Ok(found);
        }
        self.progress.look_round();
        self.found_or_in_vain(pattern, || self.seen(pattern))
    }

    /// Waits for a message that fits.
    ///
    /// # Errors
    /// As [`Job::probe`](crate::Job::probe).
    pub(crate) fn probe(&self, from: Source, tag: Tag) -> Result<Status> {
        self.until_there(from, tag, |two_sided, pattern| two_sided.seen(pattern))
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
        let found = self.taken(pattern);
        if self.needs_no_look(found.is_some(), pattern) {
            return Ok(found);
        }
        self.progress.look_round();
        self.found_or_in_vain(pattern, || self.taken(pattern))
    }

    /// Whether a look without a wait is over before it looks at what arrives.
    fn needs_no_look(&self, found: bool, pattern: Pattern) -> bool {
        if progress::may_wait("a look").is_err() {
            return true;
        }
        if found {
            self.found_one(pattern);
        }
        found
    }

    /// The result of a last look, or the reason why no message that fits can come any more.
    fn found_or_in_vain<R>(
        &self,
        pattern: Pattern,
        look: impl FnOnce() -> Option<R>,
    ) -> Result<Option<R>> {
        // Read before the look at the messages: whatever was sent before the end has arrived by then.
        let in_vain = (self.why_none_comes(pattern.source))
            .or_else(|| (self.progress).why_looked_in_vain(self.awaits(pattern), For::Message));
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
        self.until_there(from, tag, |_, pattern| self.taken(pattern))
    }

    fn until_there<R>(
        &self,
        from: Source,
        tag: Tag,
        look: impl Fn(&Self, Pattern) -> Option<R>,
    ) -> Result<R> {
        progress::may_wait("a probe")?;
        let pattern = Pattern::new(from, tag);
        self.check(pattern.source, pattern.tag)?;
        self.check_receives()?;
        self.found_one(pattern);
        let on = self.awaits(pattern);
        self.probing.fetch_add(1, SeqCst);
        let (mut found, mut in_vain) = (None, None);
        let waited = self.progress.wait(on, For::Message, || {
            // Read before the look at the messages: whatever was sent before the end has arrived by then.
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
        match self.state.lock().refuses {
            true => Err(Error::JobOver),
            false => Ok(()),
        }
    }

    fn seen(&self, pattern: Pattern) -> Option<Status> {
        let mut state = self.state.lock();
        let (envelope, message) = state.matching.first(pattern)?;
        Some(status(envelope, message.len() as usize))
    }

    fn taken(self: &Arc<Self>, pattern: Pattern) -> Option<MatchedMessage> {
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

    /// Puts a message back that was taken, unless a receive waits for it by now.
    fn put_back(&self, taken: Taken<Unexpected>) {
        let mut short = None;
        let mut state = self.state.lock();
        state.is_held_no_more(&taken);
        if state.refuses && !state.closed {
            // Its sender was told before.
            let (from, bytes) = (Rank(taken.envelope.source), taken.message.held_bytes());
            drop(state);
            return match taken.message {
                Unexpected::Own { request, .. } => {
                    request.end(&self.progress, Err(Error::JobOver));
                }
                _ => self.took_out(from, bytes, 0),
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
        let found = state.matching.fitting(envelope, len, &mut short);
        match found {
            Some(posted) => {
                drop(state);
                // SAFETY: a receive that was posted, whose request is not over, with room, and in no table
                // any more.
                unsafe { self.deliver(taken, posted) };
            }
            None => {
                state.matching.put_back(taken);
                self.keeps.store(true, Relaxed);
                drop(state);
                self.tell_probing();
            }
        }
        self.refuse(envelope, len, short);
        self.look_for_change();
    }
}

impl State {
    /// Receives a message that was taken out, or puts it back.
    fn is_held_no_more(&mut self, taken: &Taken<Unexpected>) {
        if let Some(send) = taken.message.awaited() {
            self.held.remove(&(taken.envelope.source, send));
        }
    }
}

impl MatchedMessage {
    /// What is known of it.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it into `buffer`, which may be longer.
    ///
    /// # Errors
    /// [`Error::ReceiveTooShort`], and the message is still here; [`Error::OutOfTurn`] if it was received
    /// before; [`Error::PeerLost`], [`Error::JobOver`], [`Error::InHandler`].
    #[track_caller]
    pub fn receive<T: Pod>(&mut self, buffer: &mut [T]) -> Result<Status> {
        self.two_sided.progress.may_wait("a receive")?;
        let site = Location::caller();
        let room = destination(bytemuck::cast_slice_mut(buffer));
        let Some(taken) = self.taken.take_if(|it| it.message.len() <= room.len as u64) else {
            return Err(match &self.taken {
                Some(taken) => too_long(taken.envelope, taken.message.len(), room.len),
                None => progress::taken(),
            });
        };
        let request = Arc::new(Request::new());
        let posted = Posted {
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
            state.is_held_no_more(&taken);
        }
        two_sided.begins(UseKind::Received, room, &request, site);
        two_sided.progress.to_the_end(|| {
            // SAFETY: `buffer` is borrowed mutably until the request is over.
            unsafe { two_sided.deliver(taken, posted) };
            two_sided.finish(&request)
        })
    }

    /// Receives it into a vector of its own.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if it is no whole number of elements, and it goes back; as
    /// [`receive`](Self::receive).
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
