//! Reports to the sender of a request that its handler failed.

use hydrant_conduit::Delivery;

use super::Messages;
use crate::{
    Error,
    progress::{Progress, kind},
};

const UNKNOWN: u64 = 0;
const PANICKED: u64 = 1;

/// The call id in a report about a plain request.
const NO_CALL: u64 = u64::MAX;

/// The reason why a handler failed.
pub(super) enum HandlerFailure {
    Unknown,
    Panicked(String),
}

impl HandlerFailure {
    /// Replies with the failure. The handler must not have replied before.
    pub(super) fn report(
        &self,
        port: &mut dyn hydrant_conduit::ReplyPort,
        request: &Delivery<'_>,
        progress: &Progress,
    ) {
        let call = match request {
            Delivery {
                kind: kind::CALL,
                args: [id, ..],
                ..
            } => *id,
            _ => NO_CALL,
        };
        let (code, text) = match self {
            Self::Unknown => (UNKNOWN, ""),
            Self::Panicked(text) => (PANICKED, text.as_str()),
        };
        let mut end = text
            .len()
            .min(progress.conduit().caps().max_payload)
            .min(1000);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let message = hydrant_conduit::Message {
            kind: kind::FAILURE,
            tag: request.tag,
            args: &[code, call],
            payload: &text.as_bytes()[..end],
        };
        if let Err(cause) = port.reply(&message) {
            tracing::warn!(%cause, to = %request.from, "a failure could not be reported");
        }
    }
}

/// Handles a report of a failure.
pub(super) fn received(messages: &Messages, progress: &Progress, delivery: &Delivery<'_>) {
    let &[code, call] = delivery.args else {
        return progress.malformed(delivery.from, "a report of a failure without its arguments");
    };
    let error = read(messages, delivery, code);
    if call == NO_CALL {
        messages.fail(error);
    } else if !messages.end_call(progress, delivery.from, call, Err(error)) {
        progress.malformed(delivery.from, "the failure of a call that nobody made");
    }
}

fn read(messages: &Messages, delivery: &Delivery<'_>, code: u64) -> Error {
    let (rank, handler) = (delivery.from, delivery.tag);
    match code {
        UNKNOWN => Error::UnknownHandler { rank, handler },
        _ => Error::HandlerPanicked {
            rank,
            handler,
            name: messages.name(handler),
            message: String::from_utf8_lossy(delivery.payload).into_owned(),
        },
    }
}
