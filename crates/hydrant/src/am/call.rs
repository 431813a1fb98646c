//! Typed remote calls.

use std::marker::PhantomData;

use hydrant_conduit::{Delivery, Message};
use serde::{Serialize, de::DeserializeOwned};

use super::{Handler, HandlerContext, kind};
use crate::{
    Error, Job, Rank, Result,
    job::Core,
    progress::{self, For, On},
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

/// A function that every rank can call on every other. Made by [`Job::function`].
pub struct Function<A, R> {
    handler: Handler,
    _types: PhantomData<fn(A) -> R>,
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

impl Job {
    /// How much messages carry.
    pub fn limits(&self) -> Limits {
        let caps = self.core().conduit.caps();
        Limits {
            max_args: caps.max_args,
            max_args_long: caps.max_args - 2,
            max_medium: caps.max_payload,
            max_long: self.settings().heap,
        }
    }

    /// Registers a function for remote calls. Collective, like [`handler`](Self::handler). It
    /// runs as a handler: it may not wait.
    ///
    /// # Errors
    /// As [`handler`](Self::handler).
    pub fn function<A, R>(
        &self,
        function: impl Fn(Rank, A) -> R + Send + Sync + 'static,
    ) -> Result<Function<A, R>>
    where
        A: DeserializeOwned + 'static,
        R: Serialize + 'static,
    {
        let handler = self.handler(move |context, args, payload| {
            let outcome = postcard::from_bytes(payload)
                .map_err(|cause| cause.to_string())
                .and_then(|argument| {
                    let result = function(context.source(), argument);
                    postcard::to_stdvec(&result).map_err(|cause| cause.to_string())
                });
            answer(context, args, outcome);
        })?;
        Ok(Function {
            handler,
            _types: PhantomData,
        })
    }

    /// Calls `function` on `rank` and waits for its result.
    ///
    /// # Errors
    /// [`Error::HandlerPanicked`] if it did, [`Error::Codec`], [`Error::MessageTooLong`] for
    /// an argument or result beyond [`Limits::max_medium`], and as
    /// [`request_short`](Self::request_short).
    pub fn call<A, R>(&self, rank: Rank, function: &Function<A, R>, argument: &A) -> Result<R>
    where
        A: Serialize,
        R: DeserializeOwned,
    {
        progress::may_wait("call")?;
        let core = self.core();
        if function.handler.job != core.id {
            return Err(Error::ForeignHandle { what: "function" });
        }
        core.check_rank(rank)?;
        let argument = postcard::to_stdvec(argument).map_err(|cause| Error::Codec {
            what: "argument",
            cause: cause.to_string(),
        })?;
        let bytes = core.ask(rank, |id, core| {
            let message = Message {
                kind: kind::CALL,
                tag: function.handler.number,
                args: &[id],
                payload: &argument,
            };
            core.request(rank, &message)
        })?;
        postcard::from_bytes(&bytes).map_err(|cause| Error::Codec {
            what: "result",
            cause: cause.to_string(),
        })
    }
}

impl Core {
    /// Asks `rank` by the message that `send` sends under the number given, and waits for what
    /// [`answer`](Self::answer) takes for that number.
    pub(crate) fn ask(
        &self,
        rank: Rank,
        send: impl FnOnce(u64, &Self) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let id = self.am.calls.begin();
        let mut result = None;
        let waited = send(id, self).and_then(|()| {
            self.wait(On::Rank(rank), For::Message, || {
                result = self.am.calls.take(id);
                result.is_some()
            })
        });
        if let Err(error) = waited {
            self.am.calls.forget(id);
            return Err(error);
        }
        result.unwrap_or(Err(Error::PeerLost(rank)))
    }

    /// An answer came; `false` if nobody waits for it.
    pub(crate) fn answer(&self, id: u64, result: Result<Vec<u8>>) -> bool {
        self.am.calls.end(id, result)
    }
}

/// Replies with the result of a function, or with why there is none.
fn answer(context: &mut HandlerContext<'_>, args: &[u64], outcome: Result<Vec<u8>, String>) {
    let id = args.first().copied().unwrap_or(u64::MAX);
    let limit = context.core.conduit.caps().max_payload;
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
pub(super) fn returned(core: &Core, delivery: &Delivery<'_>) {
    let &[id] = delivery.args else {
        return core.malformed(delivery.from, "a result without its call");
    };
    let result = match delivery.tag {
        status::DONE => Ok(delivery.payload.to_vec()),
        status::TOO_LONG => {
            let len = delivery.payload.try_into().map_or(0, u64::from_le_bytes);
            Err(Error::MessageTooLong {
                len: len as usize,
                limit: core.conduit.caps().max_payload,
            })
        }
        _ => Err(Error::Codec {
            what: "argument or result",
            cause: String::from_utf8_lossy(delivery.payload).into_owned(),
        }),
    };
    if !core.am.calls.end(id, result) {
        core.malformed(delivery.from, "the result of a call that nobody made");
    }
}
