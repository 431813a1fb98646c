//! What the answer to a call says.

use hydrant_conduit::Delivery;

use super::Messages;
use crate::{Error, Result, progress::Progress};

/// What an answer says: its status, and what belongs to that.
pub(super) fn coded(progress: &Progress, outcome: Result<Vec<u8>, String>) -> (u16, Vec<u8>) {
    match outcome {
        Ok(bytes) if bytes.len() <= progress.conduit().caps().max_payload => (status::DONE, bytes),
        Ok(bytes) => (
            status::TOO_LONG,
            (bytes.len() as u64).to_le_bytes().to_vec(),
        ),
        Err(cause) => (status::CODEC, cause.into_bytes()),
    }
}

/// What a result's tag says.
pub(super) mod status {
    pub(in super::super) const DONE: u16 = 0;
    pub(in super::super) const CODEC: u16 = 1;
    pub(in super::super) const TOO_LONG: u16 = 2;
    pub(in super::super) const PANICKED: u16 = 3;
}

/// The result of a call arrived.
pub(super) fn returned(messages: &Messages, progress: &Progress, delivery: &Delivery<'_>) {
    let (id, handler) = match *delivery.args {
        [id] => (id, None),
        [id, handler] => (id, u16::try_from(handler).ok()),
        _ => return progress.malformed(delivery.from, "a result without its call"),
    };
    let said = || String::from_utf8_lossy(delivery.payload).into_owned();
    let result = match delivery.tag {
        status::DONE => Ok(delivery.payload.to_vec()),
        status::TOO_LONG => {
            let len = delivery.payload.try_into().map_or(0, u64::from_le_bytes);
            Err(Error::MessageTooLong {
                len: len as usize,
                limit: progress.conduit().caps().max_payload,
            })
        }
        status::PANICKED => Err(Error::HandlerPanicked {
            rank: delivery.from,
            handler: handler.unwrap_or(u16::MAX),
            message: said(),
        }),
        _ => Err(Error::Codec {
            what: "argument or result",
            cause: said(),
        }),
    };
    if !messages.calls.end(progress, delivery.from, id, result) {
        progress.malformed(delivery.from, "the result of a call that nobody made");
    }
}
