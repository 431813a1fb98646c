//! Receives without a request: the receive finds its message kept, or takes it on arrival, past the
//! memory for unexpected messages. Their end is known when the call returns.

use std::sync::atomic::Ordering::Relaxed;

use hydrant_conduit::Delivery;

use super::{
    Envelope, TwoSided, Unexpected, matching::UnexpectedMessage, pattern::Pattern, receive::status,
    request::Status,
};
use crate::{
    Error, Rank, Result,
    progress::{self, kind},
};

/// A receive that takes its message on arrival.
pub(super) struct Direct<'a> {
    pub(super) pattern: Pattern,
    buffer: &'a mut [u8],
    /// The receive has ended, or another message comes before those that arrive.
    stage: DirectStage,
}

/// The stage of a direct receive.
#[derive(Clone, Copy)]
enum DirectStage {
    Open,
    /// A message that fits is kept. The receive takes the first of those.
    Kept,
    Over(Status),
}

/// The number of polls of a direct receive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PollCount {
    /// One poll.
    Once,
    /// Several polls, because the receive is to wait in any case.
    Repeated,
}

/// The kept message for a receive.
enum KeptMatch {
    None,
    /// The message was whole, and was received.
    Received(Status),
    /// The message is still at its sender, or longer than the buffer.
    Other,
}

impl Direct<'_> {
    /// Returns whether the receive takes a message, if no message before it fits.
    #[inline]
    pub(super) fn fits(&self, envelope: Envelope, len: usize) -> bool {
        matches!(self.stage, DirectStage::Open)
            && self.pattern.fits(envelope)
            && len <= self.buffer.len()
    }

    /// Copies a message that fits into the buffer.
    #[inline]
    pub(super) fn land(&mut self, envelope: Envelope, data: &[u8]) {
        self.buffer[..data.len()].copy_from_slice(data);
        self.stage = DirectStage::Over(status(envelope, data.len()));
    }

    /// Notes that a message is kept, or goes to an earlier receive. If it fits, later messages are
    /// not for this receive.
    #[inline]
    pub(super) fn note_kept(&mut self, envelope: Envelope) {
        if matches!(self.stage, DirectStage::Open) && self.pattern.fits(envelope) {
            self.stage = DirectStage::Kept;
        }
    }
}

impl TwoSided {
    /// Receives the first message that fits if all of it is here. Otherwise returns `None`, and the
    /// caller [begins](Self::begin_receive) a receive.
    ///
    /// # Errors
    /// As [`begin_receive`](Self::begin_receive).
    pub(super) fn receive_at_once(
        &self,
        pattern: Pattern,
        buffer: &mut [u8],
        polls: PollCount,
    ) -> Result<Option<Status>> {
        progress::may_wait("a receive")?;
        self.check(pattern.source, pattern.tag)?;
        if self.records_uses() {
            return Ok(None);
        }
        // If no message seems to be kept, the ring comes first. Its message is checked against the
        // kept ones again.
        if self.keeps.load(Relaxed) {
            match self.receive_kept(pattern, buffer)? {
                KeptMatch::Received(status) => {
                    self.note_found(pattern);
                    return Ok(Some(status));
                }
                KeptMatch::Other => return Ok(None),
                KeptMatch::None => {}
            }
        }
        if !self.progress.may_take() {
            return Ok(None);
        }
        let looks = match polls {
            PollCount::Once => 1,
            PollCount::Repeated => self.progress.takes_before_wait(),
        };
        let mut direct = Direct {
            pattern,
            buffer,
            stage: DirectStage::Open,
        };
        for _ in 0..looks {
            let others = (self.progress).take(kind::TWO_SIDED, |it| self.offer(it, &mut direct));
            match direct.stage {
                DirectStage::Over(status) => {
                    let is_due = others || self.progress.has_backlog();
                    if is_due {
                        self.progress.make_progress();
                    } else {
                        self.note_found(direct.pattern);
                    }
                    return Ok(Some(status));
                }
                DirectStage::Kept => {
                    let kept = self.receive_kept(pattern, direct.buffer)?;
                    return Ok(match kept {
                        KeptMatch::Received(status) => {
                            self.note_found(pattern);
                            Some(status)
                        }
                        _ => None,
                    });
                }
                DirectStage::Open if others => return Ok(None),
                DirectStage::Open => {}
            }
        }
        Ok(None)
    }

    /// Notes that a receive or a probe has found, or may have found, its message without a poll.
    #[inline]
    pub(super) fn note_found(&self, pattern: Pattern) {
        let of = pattern.source.map(Rank);
        self.progress.note_taken(kind::TWO_SIDED, of);
    }

    /// Receives the first kept message that fits.
    fn receive_kept(&self, pattern: Pattern, buffer: &mut [u8]) -> Result<KeptMatch> {
        let mut state = self.state.lock();
        if state.refuses {
            return Err(Error::JobOver);
        }
        let taken = state.matching.take_if(pattern, |message| {
            matches!(message, Unexpected::Here { data, .. } if data.len() <= buffer.len())
        });
        let Some(UnexpectedMessage {
            envelope,
            message: Unexpected::Here { data, send },
            ..
        }) = taken
        else {
            let keeps = state.refuses || !state.matching.has_kept_none();
            self.keeps.store(keeps, Relaxed);
            return Ok(match state.matching.first(pattern) {
                None => KeptMatch::None,
                Some(_) => KeptMatch::Other,
            });
        };
        let from = Rank(envelope.source);
        let credit = state.peer(from).account.release(data.len() as u64);
        drop(state);
        buffer[..data.len()].copy_from_slice(&data);
        self.tell_taken(from, credit, send);
        Ok(KeptMatch::Received(status(envelope, data.len())))
    }

    /// Handles a message of the ring, and offers it to a receive first. Returns whether the receive
    /// goes on.
    fn offer(&self, delivery: &Delivery<'_>, direct: &mut Direct<'_>) -> bool {
        self.handle(&self.progress, delivery, Some(direct));
        matches!(direct.stage, DirectStage::Open)
    }
}
