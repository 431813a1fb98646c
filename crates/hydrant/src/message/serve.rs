//! Functions as handlers: what runs where a call arrives.

use std::{
    future::poll_fn,
    sync::{Arc, Weak},
    task::Poll,
};

use hydrant_conduit::Message;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    HandlerContext,
    answer::{Outcome, status},
    large::{Large, Later},
    route,
};
use crate::{
    Rank, Result,
    progress::{Progress, kind},
};

/// The handler of a function. Where its argument is in the message and its result fits into one, the
/// reply brings that; what else there is to do a task does.
pub(crate) fn handler_of<A: DeserializeOwned, R: Serialize>(
    function: impl Fn(Rank, A) -> R + Send + Sync + 'static,
) -> impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static {
    let function = Arc::new(function);
    move |context, args, payload| {
        if let Some((call, argument)) = Caller::lending(context, args) {
            let function = Arc::clone(&function);
            return context.progress.spawn(async move {
                let bytes = argument.await.map_err(|cause| cause.to_string());
                let outcome = run(|| match bytes.and_then(|bytes| decoded(&bytes)) {
                    Ok(argument) => encoded(&function(call.rank, argument)),
                    Err(cause) => Outcome::Unfit(cause),
                });
                call.answer(outcome).await;
            });
        }
        let outcome = match decoded(payload) {
            Ok(argument) => encoded(&function(context.source, argument)),
            Err(cause) => Outcome::Unfit(cause),
        };
        if !args.is_empty() {
            return answer(context, args, outcome);
        }
        // Nobody waits. The sender's `am_quiet` says what a panic says.
        if let Outcome::Unfit(cause) = outcome {
            panic!("a one-way call failed: {cause}");
        }
    }
}

/// The handler of a function that takes its time: the call is a task of this rank, and its result
/// goes back as a message when there is one.
pub(crate) fn handler_of_async<A, R, F>(
    function: impl Fn(Rank, A) -> F + Send + Sync + 'static,
) -> impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static
where
    A: DeserializeOwned,
    R: Serialize,
    F: Future<Output = R> + Send + 'static,
{
    let function = Arc::new(function);
    move |context, args, payload| {
        if let Some((call, argument)) = Caller::lending(context, args) {
            let function = Arc::clone(&function);
            return context.progress.spawn(async move {
                let mut call = call;
                let bytes = argument.await.map_err(|cause| cause.to_string());
                // What is decoded is not kept while the future is awaited: it may be tied to a thread.
                let future = caught(|| {
                    let argument = bytes.and_then(|bytes| decoded(&bytes))?;
                    Ok(function(call.rank, argument))
                });
                let outcome = match future {
                    Ok(Ok(future)) => {
                        call.has_begun();
                        run_to_its_end(future).await
                    }
                    Ok(Err(cause)) => Outcome::Unfit(cause),
                    Err(said) => Outcome::Panicked(said),
                };
                call.answer(outcome).await;
            });
        }
        let call = Caller::of(context, args);
        match decoded(payload) {
            Ok(argument) => {
                let future = function(call.rank, argument);
                (context.progress).spawn(async move {
                    let outcome = run_to_its_end(future).await;
                    call.answer(outcome).await;
                });
            }
            Err(cause) => context.progress.spawn(call.answer(Outcome::Unfit(cause))),
        }
    }
}

/// The arguments in the message of a one-way call whose long argument is to be got.
const ONE_WAY_ARGS: usize = 4;

fn decoded<A: DeserializeOwned>(bytes: &[u8]) -> Result<A, String> {
    postcard::from_bytes(bytes).map_err(|cause| cause.to_string())
}

fn encoded<R: Serialize>(result: &R) -> Outcome {
    match postcard::to_stdvec(result) {
        Ok(bytes) => Outcome::Done(bytes),
        Err(cause) => Outcome::Unfit(cause.to_string()),
    }
}

/// What something of the user's gives, or what the panic said that it ended by.
fn caught<R>(act: impl FnOnce() -> R) -> Result<R, String> {
    route::catch(act).map_err(route::said)
}

fn run(function: impl FnOnce() -> Outcome) -> Outcome {
    caught(function).unwrap_or_else(Outcome::Panicked)
}

/// What a future of the user's comes to. It, and its result, may panic when they are dropped, too.
async fn run_to_its_end<F: Future<Output: Serialize>>(future: F) -> Outcome {
    let mut running = Some(Box::pin(future));
    let polled = poll_fn(move |context| {
        let polled = caught(
            || match running.as_mut().map(|it| it.as_mut().poll(context)) {
                Some(Poll::Pending) => Poll::Pending,
                Some(Poll::Ready(result)) => Poll::Ready(encoded(&result)),
                None => Poll::Ready(Outcome::Panicked("it was polled after its end".into())),
            },
        );
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(said) => Outcome::Panicked(said),
        };
        let over = running.take();
        Poll::Ready(match caught(|| drop(over)) {
            Ok(()) => outcome,
            Err(said) => Outcome::Panicked(said),
        })
    });
    polled.await
}

/// Replies with the result of a function, or with why there is none. One that is too long for that
/// goes as the result of a task.
fn answer(context: &mut HandlerContext<'_>, args: &[u64], outcome: Outcome) {
    if outcome.len() > context.progress.conduit().caps().max_payload {
        let call = Caller::of(context, args);
        return context.progress.spawn(call.answer(outcome));
    }
    let (code, payload) = outcome.coded();
    // Without a port it was requested as a plain reply, and nobody waits.
    let _ = context.send(&Message {
        kind: kind::CALL,
        tag: code,
        args: &args[..1],
        payload,
    });
}

/// Whom a task answers.
struct Caller {
    rank: Rank,
    /// None: nobody waits.
    id: Option<u64>,
    /// The caller waits until the function was run or begun, and for no result.
    one_way: bool,
    /// The number of the function that was called.
    handler: u16,
    large: Arc<Large>,
    /// Not kept by its tasks.
    progress: Weak<Progress>,
}

impl Caller {
    fn of(context: &HandlerContext<'_>, args: &[u64]) -> Self {
        Self {
            rank: context.source,
            id: args.first().copied(),
            one_way: args.len() == ONE_WAY_ARGS,
            handler: context.handler,
            large: Arc::clone(context.large),
            progress: context.progress.weak(),
        }
    }

    /// Who called, and the argument, if the message says where that lies: got by whoever awaits it.
    fn lending(
        context: &HandlerContext<'_>,
        args: &[u64],
    ) -> Option<(Self, Later<Result<Vec<u8>>>)> {
        let (key, len) = match *args {
            [_, key, len] | [_, key, len, 1] => (key, len),
            _ => return None,
        };
        let call = Self::of(context, args);
        let argument = call.large.rendezvous.fetch(call.rank, key, len);
        Some((call, argument))
    }

    /// The function has begun and may take its time, and its argument was got.
    fn has_begun(&mut self) {
        let (Some(id), Some(progress)) = (self.id, self.progress.upgrade()) else {
            return;
        };
        let tag = match self.one_way {
            // The caller waits for nothing more.
            true => status::DONE,
            false => status::BEGUN,
        };
        if self.one_way {
            self.id = None;
        }
        let begun = Message {
            kind: kind::RESULT,
            tag,
            args: &[id],
            payload: &[],
        };
        // The caller may be gone.
        let _ = progress.send_result(self.rank, &begun);
    }

    /// Sends the result of a task, or why there is none.
    async fn answer(self, outcome: Outcome) {
        let Some(id) = self.id else {
            if let Outcome::Unfit(cause) | Outcome::Panicked(cause) = outcome {
                tracing::error!(caller = %self.rank, %cause, "a one-way call failed");
            }
            return;
        };
        let Some(progress) = self.progress.upgrade() else {
            return;
        };
        let handler = u64::from(self.handler);
        // Who called may be gone, else it is sent at some time: nobody waits here for that.
        let send = |tag, args: &[u64], payload: &[u8]| {
            let kind = kind::RESULT;
            let message = Message {
                kind,
                tag,
                args,
                payload,
            };
            let _ = progress.send_result(self.rank, &message);
        };
        let outcome = match outcome {
            Outcome::Done(_) if self.one_way => Outcome::Done(Vec::new()),
            Outcome::Done(bytes) if bytes.len() > progress.conduit().caps().max_payload => {
                let len = bytes.len() as u64;
                match self.large.rendezvous.lend(bytes).await {
                    Ok((key, lent)) => {
                        (self.large).give(progress.conduit(), self.rank, key, lent);
                        return send(status::LENT, &[id, handler, key, len], &[]);
                    }
                    Err(cause) => Outcome::Unfit(cause.to_string()),
                }
            }
            outcome => outcome,
        };
        // What failed since this rank leaves is no fault of the call: the caller hears that it is lost.
        if matches!(outcome, Outcome::Unfit(_)) && progress.is_stopped() {
            return;
        }
        let (code, payload) = outcome.coded();
        let limit = progress.conduit().caps().max_payload;
        send(code, &[id, handler], &payload[..payload.len().min(limit)]);
    }
}
