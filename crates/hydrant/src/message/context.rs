//! The interface of a running handler.

use std::sync::Arc;

use hydrant_conduit::{Message, ReplyPort};

use super::{Handler, large::Large};
use crate::{
    Error, Rank, Result,
    progress::{Progress, kind},
};

/// A handler's view of the message it handles.
pub struct HandlerContext<'a> {
    pub(super) progress: &'a Progress,
    pub(super) source: Rank,
    /// The handler's number.
    pub(super) handler: u16,
    pub(super) large: &'a Arc<Large>,
    /// `None` in the handler of a reply, and after a reply was sent.
    pub(super) port: Option<&'a mut dyn ReplyPort>,
}

impl HandlerContext<'_> {
    /// Returns the sender of the message.
    pub fn source(&self) -> Rank {
        self.source
    }

    /// Returns this rank.
    pub fn rank(&self) -> Rank {
        self.progress.rank
    }

    /// Returns `true` while a reply ([`reply_short`](Self::reply_short) or another) may be sent.
    pub fn may_reply(&self) -> bool {
        self.port.is_some()
    }

    /// Replies with arguments alone.
    ///
    /// # Errors
    /// [`Error::NoReply`] in the handler of a reply, or after a reply; [`Error::TooManyArgs`],
    /// [`Error::ForeignHandle`].
    pub fn reply_short(&mut self, handler: Handler, args: &[u64]) -> Result<()> {
        self.reply_medium(handler, args, &[])
    }

    /// Replies with arguments and a payload.
    ///
    /// # Errors
    /// As [`reply_short`](Self::reply_short); [`Error::MessageTooLong`].
    pub fn reply_medium(&mut self, handler: Handler, args: &[u64], payload: &[u8]) -> Result<()> {
        if handler.job != self.progress.id {
            return Err(Error::ForeignHandle { what: "handler" });
        }
        self.send(&Message {
            kind: kind::USER,
            tag: handler.number,
            args,
            payload,
        })
    }

    /// Returns the progress engine of this rank.
    pub(crate) fn progress(&self) -> &Progress {
        self.progress
    }

    pub(super) fn send(&mut self, message: &Message<'_>) -> Result<()> {
        let port = self.port.as_mut().ok_or(Error::NoReply)?;
        // The reply may tell of memory that the handler has mapped.
        if self.progress.settle_if_needed() {
            // It follows the messages that tell the peer of changed memory. The port's reply could overtake them.
            let kind = match message.kind {
                kind::CALL => kind::RESULT,
                _ => kind::LATE_REPLY,
            };
            let late = Message { kind, ..*message };
            self.progress.send_result(self.source, &late)?;
            if kind == kind::LATE_REPLY {
                // It announces the other.
                port.reply(&Message {
                    args: &[],
                    payload: &[],
                    ..late
                })?;
            }
        } else {
            port.reply(message)?;
        }
        self.port = None;
        Ok(())
    }
}
