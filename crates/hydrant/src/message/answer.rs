//! What the answer to a call says.

use std::sync::Arc;

use hydrant_conduit::Delivery;

use super::Messages;
use crate::{Error, progress::Progress};

/// How a function ended.
pub(super) enum Outcome {
    /// Its result, encoded.
    Done(Vec<u8>),
    /// Its argument cannot be had or decoded, or its result not be encoded: why.
    Unfit(String),
    /// What it said.
    Panicked(String),
}

impl Outcome {
    /// The status that a message says, and what belongs to that.
    pub(super) fn coded(&self) -> (u16, &[u8]) {
        match self {
            Self::Done(bytes) => (status::DONE, bytes),
            Self::Unfit(cause) => (status::UNFIT, cause.as_bytes()),
            Self::Panicked(said) => (status::PANICKED, said.as_bytes()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.coded().1.len()
    }
}

/// What a result's tag says.
pub(super) mod status {
    pub(in super::super) const DONE: u16 = 0;
    pub(in super::super) const UNFIT: u16 = 1;
    pub(in super::super) const PANICKED: u16 = 2;
    /// The result is to be got.
    pub(in super::super) const LENT: u16 = 3;
    /// A result was got.
    pub(in super::super) const RELEASED: u16 = 4;
    /// The argument was got, and the function has begun and may take its time.
    pub(in super::super) const BEGUN: u16 = 5;
}

/// The result of a call arrived, or a caller has got one.
pub(super) fn returned(messages: &Messages, progress: &Progress, delivery: &Delivery<'_>) {
    let from = delivery.from;
    let (id, handler) = match (delivery.tag, delivery.args) {
        (status::LENT, &[id, _, key, len]) => {
            return fetch(messages, progress, id, (from, key, len));
        }
        (status::RELEASED, &[key]) => {
            if !messages.large().released(progress.conduit(), from, key) {
                progress.malformed(from, "the release of a result that it was not given");
            }
            return;
        }
        (status::BEGUN, &[id]) => {
            if !messages.calls.begun(progress, from, id) {
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
    let said = || String::from_utf8_lossy(delivery.payload).into_owned();
    let result = match delivery.tag {
        status::DONE => Ok(delivery.payload.to_vec()),
        status::PANICKED => {
            let handler = handler.unwrap_or(u16::MAX);
            Err(Error::HandlerPanicked {
                rank: from,
                handler,
                name: messages.name(handler),
                message: said(),
            })
        }
        _ => Err(Error::Codec {
            what: "argument or result",
            cause: said(),
        }),
    };
    if !messages.end_call(progress, from, id, result) {
        progress.malformed(from, "the result of a call that nobody made");
    }
}

/// Gets a result that no message takes.
fn fetch(messages: &Messages, progress: &Progress, id: u64, place: (crate::Rank, u64, u64)) {
    let from = place.0;
    let Some(here) = progress.weak().upgrade() else {
        return;
    };
    if !messages.calls.begin_to_end(from, id) {
        return progress.malformed(from, "the result of a call that nobody made");
    }
    let (large, calls) = (Arc::clone(messages.large()), Arc::clone(&messages.calls));
    progress.spawn(async move {
        let result = large.result(Arc::clone(&here), place).await;
        calls.end(&here, from, id, result);
    });
}
