//! Receives that are not posted: one that finds its message kept, and one that takes it where it arrives, past
//! the memory for unexpected ones. Neither needs a request, for its end is known when the call returns.

use std::sync::atomic::Ordering::Relaxed;

use hydrant_conduit::Delivery;

use super::{
    Envelope, TwoSided, Unexpected, matching::Taken, pattern::Pattern, receive::status,
    request::Status,
};
use crate::{
    Error, Rank, Result,
    progress::{self, kind},
};

/// A receive that looks at what arrives.
pub(super) struct Direct<'a> {
    pub(super) pattern: Pattern,
    buffer: &'a mut [u8],
    /// It is over, or another message is before what arrives.
    stage: Stage,
}

/// How far a receive is that looks at what arrives.
#[derive(Clone, Copy)]
enum Stage {
    Open,
    /// A message that fits was kept: the receive takes the first of those.
    Kept,
    Over(Status),
}

/// What a receive does for its message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// It looks once at what has arrived.
    Look,
    /// It looks again for a moment, for it is to wait in any case.
    Wait,
}

/// Whether a message that fits is kept.
enum Kept {
    None,
    /// It is whole, and was received.
    Received(Status),
    /// It is at its sender, or longer than the buffer.
    Other,
}

impl Direct<'_> {
    /// Whether it would take a message, if that is the first that fits.
    #[inline]
    pub(super) fn fits(&self, envelope: Envelope, len: usize) -> bool {
        matches!(self.stage, Stage::Open) && self.pattern.fits(envelope) && len <= self.buffer.len()
    }

    /// It gets a message that it fits.
    #[inline]
    pub(super) fn land(&mut self, envelope: Envelope, data: &[u8]) {
        self.buffer[..data.len()].copy_from_slice(data);
        self.stage = Stage::Over(status(envelope, data.len()));
    }

    /// A message is kept, or goes to a receive before. If it fits, what comes later is not for this one.
    #[inline]
    pub(super) fn is_kept(&mut self, envelope: Envelope) {
        if matches!(self.stage, Stage::Open) && self.pattern.fits(envelope) {
            self.stage = Stage::Kept;
        }
    }
}

impl TwoSided {
    /// Receives the first message that fits if all of it is here: what is known of it. Else the receive is to
    /// [begin](Self::begin_receive).
    ///
    /// # Errors
    /// As there.
    pub(super) fn receive_at_once(
        &self,
        pattern: Pattern,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Option<Status>> {
        progress::may_wait("a receive")?;
        self.check(pattern.source, pattern.tag)?;
        if self.are_told() {
            return Ok(None);
        }
        // Where none seems to be kept the ring is looked at first, and this once more with the message.
        if self.keeps.load(Relaxed) {
            match self.receive_kept(pattern, buffer)? {
                Kept::Received(status) => {
                    self.found_one(pattern);
                    return Ok(Some(status));
                }
                Kept::Other => return Ok(None),
                Kept::None => {}
            }
        }
        if !self.progress.may_take() {
            return Ok(None);
        }
        let looks = match patience {
            Patience::Look => 1,
            Patience::Wait => self.progress.looks(),
        };
        let mut direct = Direct {
            pattern,
            buffer,
            stage: Stage::Open,
        };
        for _ in 0..looks {
            let others = (self.progress).take(kind::TWO_SIDED, |it| self.shown(it, &mut direct));
            match direct.stage {
                Stage::Over(status) => {
                    let is_due = others || self.progress.has_backlog();
                    match is_due {
                        true => _ = self.progress.look_round(),
                        false => self.found_one(direct.pattern),
                    }
                    return Ok(Some(status));
                }
                Stage::Kept => {
                    let kept = self.receive_kept(pattern, direct.buffer)?;
                    return Ok(match kept {
                        Kept::Received(status) => {
                            self.found_one(pattern);
                            Some(status)
                        }
                        _ => None,
                    });
                }
                Stage::Open if others => return Ok(None),
                Stage::Open => {}
            }
        }
        Ok(None)
    }

    /// A receive or a look by this pattern found its message, or may, without a look at what arrives.
    #[inline]
    pub(super) fn found_one(&self, pattern: Pattern) {
        let of = pattern.source.map(Rank);
        self.progress.found_one(kind::TWO_SIDED, of);
    }

    /// Receives the first message that fits among those that were kept.
    fn receive_kept(&self, pattern: Pattern, buffer: &mut [u8]) -> Result<Kept> {
        let mut state = self.state.lock();
        if state.refuses {
            return Err(Error::JobOver);
        }
        let taken = state.matching.take_if(pattern, |message| {
            matches!(message, Unexpected::Here { data, .. } if data.len() <= buffer.len())
        });
        let Some(Taken {
            envelope,
            message: Unexpected::Here { data, send },
            ..
        }) = taken
        else {
            let keeps = state.refuses || !state.matching.has_kept_none();
            self.keeps.store(keeps, Relaxed);
            return Ok(match state.matching.first(pattern) {
                None => Kept::None,
                Some(_) => Kept::Other,
            });
        };
        let from = Rank(envelope.source);
        let credit = state.peer(from).account.took(data.len() as u64);
        drop(state);
        buffer[..data.len()].copy_from_slice(&data);
        self.say_taken(from, credit, send);
        Ok(Kept::Received(status(envelope, data.len())))
    }

    /// Does what a message asks for, which is shown to a receive first: whether that looks on.
    fn shown(&self, delivery: &Delivery<'_>, direct: &mut Direct<'_>) -> bool {
        self.follow(&self.progress, delivery, Some(direct));
        matches!(direct.stage, Stage::Open)
    }
}
