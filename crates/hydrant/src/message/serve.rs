//! Functions as handlers: the side of the callee.

use std::{
    future::poll_fn,
    sync::{Arc, Weak},
    task::Poll,
};

use hydrant_conduit::Message;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    HandlerContext,
    answer::CallOutcome,
    large::{BoxedFuture, Large},
    route, status,
};
use crate::{
    Rank, Result,
    progress::{Progress, kind},
};

/// Returns the handler of a function. A task runs the function if its argument is to be fetched,
/// and sends its result if that exceeds a message. Otherwise the reply brings the result.
pub(crate) fn serve<A: DeserializeOwned, R: Serialize>(
    function: impl Fn(Rank, A) -> R + Send + Sync + 'static,
) -> impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static {
    let function = Arc::new(function);
    move |context, args, payload| {
        if let Some((call, argument)) = Caller::with_lent_argument(context, args) {
            let function = Arc::clone(&function);
            return context.progress.spawn(async move {
                let bytes = argument.await.map_err(|cause| cause.to_string());
                let outcome = run(|| match bytes.and_then(|bytes| decoded(&bytes)) {
                    Ok(argument) => encoded(&function(call.rank, argument)),
                    Err(cause) => CallOutcome::Unfit(cause),
                });
                call.answer(outcome).await;
            });
        }
        let outcome = match decoded(payload) {
            Ok(argument) => encoded(&function(context.source, argument)),
            Err(cause) => CallOutcome::Unfit(cause),
        };
        if !args.is_empty() {
            return answer(context, args, outcome);
        }
        // No caller waits. The sender's `am_quiet` reports the panic.
        if let CallOutcome::Unfit(cause) = outcome {
            panic!("a one-way call failed: {cause}");
        }
    }
}

/// Returns the handler of a function that takes its time. The call is a task of this rank, and a
/// message brings its result back.
pub(crate) fn serve_async<A, R, F>(
    function: impl Fn(Rank, A) -> F + Send + Sync + 'static,
) -> impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static
where
    A: DeserializeOwned,
    R: Serialize,
    F: Future<Output = R> + Send + 'static,
{
    let function = Arc::new(function);
    move |context, args, payload| {
        if let Some((call, argument)) = Caller::with_lent_argument(context, args) {
            let function = Arc::clone(&function);
            return context.progress.spawn(async move {
                let mut call = call;
                let bytes = argument.await.map_err(|cause| cause.to_string());
                // The decoded argument may be `!Send`, so it must not live across the await.
                let future = caught(|| {
                    let argument = bytes.and_then(|bytes| decoded(&bytes))?;
                    Ok(function(call.rank, argument))
                });
                let outcome = match future {
                    Ok(Ok(future)) => {
                        call.report_begun();
                        run_to_its_end(future).await
                    }
                    Ok(Err(cause)) => CallOutcome::Unfit(cause),
                    Err(message) => CallOutcome::Panicked(message),
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
            Err(cause) => context
                .progress
                .spawn(call.answer(CallOutcome::Unfit(cause))),
        }
    }
}

/// The number of arguments in the message of a one-way call with an argument to be fetched.
const ONE_WAY_ARGS: usize = 4;

fn decoded<A: DeserializeOwned>(bytes: &[u8]) -> Result<A, String> {
    postcard::from_bytes(bytes).map_err(|cause| cause.to_string())
}

fn encoded<R: Serialize>(result: &R) -> CallOutcome {
    match postcard::to_stdvec(result) {
        Ok(bytes) => CallOutcome::Done(bytes),
        Err(cause) => CallOutcome::Unfit(cause.to_string()),
    }
}

/// Returns the value of a user's code, or the message of its panic.
fn caught<R>(act: impl FnOnce() -> R) -> Result<R, String> {
    route::catch_panic(act).map_err(route::panic_message)
}

fn run(function: impl FnOnce() -> CallOutcome) -> CallOutcome {
    caught(function).unwrap_or_else(CallOutcome::Panicked)
}

/// Awaits a user's future. The future and its result may panic when they are dropped, too.
async fn run_to_its_end<F: Future<Output: Serialize>>(future: F) -> CallOutcome {
    let mut running = Some(Box::pin(future));
    let polled = poll_fn(move |context| {
        let polled = caught(
            || match running.as_mut().map(|it| it.as_mut().poll(context)) {
                Some(Poll::Pending) => Poll::Pending,
                Some(Poll::Ready(result)) => Poll::Ready(encoded(&result)),
                None => Poll::Ready(CallOutcome::Panicked("it was polled after its end".into())),
            },
        );
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(message) => CallOutcome::Panicked(message),
        };
        let over = running.take();
        Poll::Ready(match caught(|| drop(over)) {
            Ok(()) => outcome,
            Err(message) => CallOutcome::Panicked(message),
        })
    });
    polled.await
}

/// Replies with the result of a function, or with its failure. A task sends a result that exceeds
/// the reply.
fn answer(context: &mut HandlerContext<'_>, args: &[u64], outcome: CallOutcome) {
    if outcome.len() > context.progress.conduit().caps().max_payload {
        let call = Caller::of(context, args);
        return context.progress.spawn(call.answer(outcome));
    }
    let (code, payload) = outcome.encode();
    // There is no port if the call came as a reply. Then no caller waits.
    let _ = context.send(&Message {
        kind: kind::CALL,
        tag: code,
        args: &args[..1],
        payload,
    });
}

/// The caller that a task answers.
struct Caller {
    rank: Rank,
    /// `None` if no caller waits.
    id: Option<u64>,
    /// The caller waits until the function was run or has begun, and takes no result.
    one_way: bool,
    /// The number of the called function.
    handler: u16,
    large: Arc<Large>,
    /// Weak, since the progress engine owns the tasks.
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

    /// Returns the caller and the future that fetches the argument, if the argument is lent.
    fn with_lent_argument(
        context: &HandlerContext<'_>,
        args: &[u64],
    ) -> Option<(Self, BoxedFuture<Result<Vec<u8>>>)> {
        let (key, len) = match *args {
            [_, key, len] | [_, key, len, 1] => (key, len),
            _ => return None,
        };
        let call = Self::of(context, args);
        let argument = call.large.rendezvous.fetch(call.rank, key, len);
        Some((call, argument))
    }

    /// Reports that the argument was fetched and the function, which may take its time, has begun.
    fn report_begun(&mut self) {
        let (Some(id), Some(progress)) = (self.id, self.progress.upgrade()) else {
            return;
        };
        let tag = if self.one_way {
            // The caller waits for nothing more.
            status::DONE
        } else {
            status::BEGUN
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

    /// Sends the result of a task, or its failure.
    async fn answer(self, outcome: CallOutcome) {
        let Some(id) = self.id else {
            if let CallOutcome::Unfit(cause) | CallOutcome::Panicked(cause) = outcome {
                tracing::error!(caller = %self.rank, %cause, "a one-way call failed");
            }
            return;
        };
        let Some(progress) = self.progress.upgrade() else {
            return;
        };
        let handler = u64::from(self.handler);
        // An error means that the caller is gone. A result that finds no room is sent later.
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
            CallOutcome::Done(_) if self.one_way => CallOutcome::Done(Vec::new()),
            CallOutcome::Done(bytes) if bytes.len() > progress.conduit().caps().max_payload => {
                let len = bytes.len() as u64;
                match self.large.rendezvous.lend(bytes).await {
                    Ok((key, lent)) => {
                        (self.large).give(progress.conduit(), self.rank, key, lent);
                        return send(status::LENT, &[id, handler, key, len], &[]);
                    }
                    Err(cause) => CallOutcome::Unfit(cause.to_string()),
                }
            }
            outcome => outcome,
        };
        // A leaving rank causes failures that are not the call's. The caller gets `PeerLost`.
        if matches!(outcome, CallOutcome::Unfit(_)) && progress.is_stopped() {
            return;
        }
        let (code, payload) = outcome.encode();
        let limit = progress.conduit().caps().max_payload;
        send(code, &[id, handler], &payload[..payload.len().min(limit)]);
    }
}
