//! Answers to calls: how they are encoded, and what the caller does with them.

use std::sync::Arc;

use hydrant_conduit::Delivery;

use super::{Messages, status};
use crate::{Error, progress::Progress};

/// How a function ended.
pub(super) enum CallOutcome {
    /// Its result, encoded.
    Done(Vec<u8>),
    /// The reason why the argument could not be fetched or decoded, or the result not encoded.
    Unfit(String),
    /// The message of the panic.
    Panicked(String),
}

impl CallOutcome {
    /// Returns the tag of the answer, and its payload.
    pub(super) fn encode(&self) -> (u16, &[u8]) {
        match self {
            Self::Done(bytes) => (status::DONE, bytes),
            Self::Unfit(cause) => (status::UNFIT, cause.as_bytes()),
            Self::Panicked(message) => (status::PANICKED, message.as_bytes()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.encode().1.len()
    }
}

/// Handles a result that arrived, or a caller's report that it got one.
pub(super) fn received_result(messages: &Messages, progress: &Progress, delivery: &Delivery<'_>) {
    let from = delivery.from;
    let (id, handler) = match (delivery.tag, delivery.args) {
        (status::LENT, &[id, _, key, len]) => {
            return fetch(messages, progress, id, (from, key, len));
        }
        (status::RELEASED, &[key]) => {
            if !messages.large().release(progress.conduit(), from, key) {
                progress.malformed(from, "the release of a result that it was not given");
            }
            return;
        }
        (status::BEGUN, &[id]) => {
            if !messages.calls.note_begun(progress, from, id) {
                progress.malformed(from, "the beginning of a call that nobody made");
            }
            return;
        }
        (status::DONE | status::UNFIT | status::PANICKED, &[id]) => (id, None),
        (status::DONE | status::UNFIT | status::PANICKED, &[id, handler]) => {
            (id, u16::try_from(handler).ok())
        }
        _ => return progress.malformed(from, "an unreadable result"),
    };
    let message = || String::from_utf8_lossy(delivery.payload).into_owned();
    let result = match delivery.tag {
        status::DONE => Ok(delivery.payload.to_vec()),
        status::PANICKED => {
            let handler = handler.unwrap_or(u16::MAX);
            Err(Error::HandlerPanicked {
                rank: from,
                handler,
                name: messages.name(handler),
                message: message(),
            })
        }
        _ => Err(Error::Codec {
            what: "argument or result",
            cause: message(),
        }),
    };
    if !messages.end_call(progress, from, id, result) {
        progress.malformed(from, "the result of a call that nobody made");
    }
}

/// Gets a result that exceeds a message.
fn fetch(messages: &Messages, progress: &Progress, id: u64, place: (crate::Rank, u64, u64)) {
    let from = place.0;
    let Some(here) = progress.weak().upgrade() else {
        return;
    };
    if !messages.calls.begin_fetch(from, id) {
        return progress.malformed(from, "the result of a call that nobody made");
    }
    let (large, calls) = (Arc::clone(messages.large()), Arc::clone(&messages.calls));
    progress.spawn(async move {
        let result = large.result(Arc::clone(&here), place).await;
        calls.end(&here, from, id, result);
    });
}
