//! Typed remote calls.

use std::marker::PhantomData;

use hydrant_conduit::{Delivery, Message};
use serde::{Serialize, de::DeserializeOwned};

use super::{Handler, HandlerContext, Messages};
use crate::{
    Error, Rank, Result,
    progress::{Progress, kind},
};

/// How much a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Limits {
    /// 64-bit arguments of a short or medium message.
    pub max_args: usize,
    /// 64-bit arguments of a long message.
    pub max_args_long: usize,
    /// Bytes of payload of a medium message, and of an encoded argument or result of a call.
    pub max_medium: usize,
    /// Bytes of data of a long message: what symmetric memory holds.
    pub max_long: usize,
}

/// A function that every rank can call on every other. Made by [`Job::function`](crate::Job::function).
pub struct Function<A, R> {
    handler: Handler,
    _types: PhantomData<fn(A) -> R>,
}

impl<A, R> Function<A, R> {
    /// A function that answers to `handler`, which every rank has registered.
    pub(crate) fn of(handler: Handler) -> Self {
        Self {
            handler,
            _types: PhantomData,
        }
    }

    pub(crate) fn handler(&self) -> Handler {
        self.handler
    }
}

impl<A, R> Clone for Function<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Function<A, R> {}

impl<A, R> std::fmt::Debug for Function<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.handler.number)
    }
}

/// The handler of a function.
pub(crate) fn handler_of<A: DeserializeOwned, R: Serialize>(
    function: impl Fn(Rank, A) -> R + Send + Sync + 'static,
) -> impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static {
    move |context, args, payload| {
        let argument = postcard::from_bytes(payload).map_err(|cause| cause.to_string());
        let result = argument.map(|argument| function(context.source(), argument));
        if let [id, ..] = args {
            let encoded = |result| postcard::to_stdvec(&result).map_err(|cause| cause.to_string());
            return answer(context, *id, result.and_then(encoded));
        }
        // Nobody waits. The sender's `am_quiet` says what a panic says.
        if let Err(cause) = result {
            panic!("the argument of a one-way call cannot be decoded: {cause}");
        }
    }
}

/// How many bytes a value takes as an argument or a result of a [call](crate::Job::call), which
/// [`Limits::max_medium`] limits. Values are encoded by [`postcard`](https://docs.rs/postcard):
/// integers by seven bits a byte, sequences after their length, structures field by field without
/// names. A slice of bytes costs a pass over each of them both ways: put long data, and send its
/// place.
///
/// # Errors
/// [`Error::Codec`].
pub fn encoded_len<A: Serialize + ?Sized>(value: &A) -> Result<usize> {
    postcard::experimental::serialized_size(value).map_err(|cause| Error::Codec {
        what: "argument",
        cause: cause.to_string(),
    })
}

/// An argument, encoded.
pub(crate) fn encoded<A: Serialize>(argument: &A) -> Result<Vec<u8>> {
    postcard::to_stdvec(argument).map_err(|cause| Error::Codec {
        what: "argument",
        cause: cause.to_string(),
    })
}

/// The result that an answer has.
pub(crate) fn result_of<R: DeserializeOwned>(answer: &[u8]) -> Result<R> {
    postcard::from_bytes(answer).map_err(|cause| Error::Codec {
        what: "result",
        cause: cause.to_string(),
    })
}

/// Replies with the result of a function, or with why there is none.
fn answer(context: &mut HandlerContext<'_>, id: u64, outcome: Result<Vec<u8>, String>) {
    let limit = context.progress.conduit().caps().max_payload;
    let (code, bytes) = match outcome {
        Ok(bytes) if bytes.len() <= limit => (status::DONE, bytes),
        Ok(bytes) => (
            status::TOO_LONG,
            (bytes.len() as u64).to_le_bytes().to_vec(),
        ),
        Err(cause) => (status::CODEC, cause.into_bytes()),
    };
    // Without a port it was requested as a plain reply, and nobody waits.
    let _ = context.send(&Message {
        kind: kind::CALL,
        tag: code,
        args: &[id],
        payload: &bytes[..bytes.len().min(limit)],
    });
}

/// What a result's tag says.
mod status {
    pub(super) const DONE: u16 = 0;
    pub(super) const CODEC: u16 = 1;
    pub(super) const TOO_LONG: u16 = 2;
}

/// A result arrived.
pub(super) fn returned(messages: &Messages, progress: &Progress, delivery: &Delivery<'_>) {
    let &[id] = delivery.args else {
        return progress.malformed(delivery.from, "a result without its call");
    };
    let result = match delivery.tag {
        status::DONE => Ok(delivery.payload.to_vec()),
        status::TOO_LONG => {
            let len = delivery.payload.try_into().map_or(0, u64::from_le_bytes);
            Err(Error::MessageTooLong {
                len: len as usize,
                limit: progress.conduit().caps().max_payload,
            })
        }
        _ => Err(Error::Codec {
            what: "argument or result",
            cause: String::from_utf8_lossy(delivery.payload).into_owned(),
        }),
    };
    if !messages.calls.end(progress, id, result) {
        progress.malformed(delivery.from, "the result of a call that nobody made");
    }
}
