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
    answer::{coded, status},
    route,
};
use crate::{
    Rank,
    progress::{Progress, kind},
};

/// The handler of a function.
pub(crate) fn handler_of<A: DeserializeOwned, R: Serialize>(
    function: impl Fn(Rank, A) -> R + Send + Sync + 'static,
) -> impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static {
    move |context, args, payload| {
        let argument = postcard::from_bytes(payload).map_err(|cause| cause.to_string());
        let result = argument.map(|argument| function(context.source(), argument));
        if let [id, ..] = args {
            let outcome = result.and_then(|result| encoded_result(&result));
            return answer(context, *id, outcome);
        }
        // Nobody waits. The sender's `am_quiet` says what a panic says.
        if let Err(cause) = result {
            panic!("the argument of a one-way call cannot be decoded: {cause}");
        }
    }
}

/// The handler of a function that takes its time: the call is a task of this rank, and its result
/// goes back as a message when there is one.
pub(crate) fn handler_of_async<A, R, F>(
    progress: &Arc<Progress>,
    function: impl Fn(Rank, A) -> F + Send + Sync + 'static,
) -> impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static
where
    A: DeserializeOwned,
    R: Serialize,
    F: Future<Output = R> + Send + 'static,
{
    // The task goes with the job, and does not keep it.
    let here = Arc::downgrade(progress);
    move |context, args, payload| {
        let Some(progress) = here.upgrade() else {
            return;
        };
        let here = Weak::clone(&here);
        let call = Caller {
            rank: context.source(),
            id: args.first().copied(),
            handler: context.handler,
        };
        let outcome = match postcard::from_bytes(payload) {
            Ok(argument) => Ok(function(call.rank, argument)),
            Err(cause) => Err(cause.to_string()),
        };
        progress.spawn(async move {
            let outcome = match outcome {
                Ok(future) => caught(future).await.map(|result| encoded_result(&result)),
                Err(cause) => Ok(Err(cause)),
            };
            if let Some(progress) = here.upgrade() {
                call.answer(&progress, outcome);
            }
        });
    }
}

/// What a future gives, or what the panic said that it ended by.
async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = Box::pin(future);
    let polled = poll_fn(
        move |context| match route::catch(|| future.as_mut().poll(context)) {
            Ok(polled) => polled.map(Ok),
            Err(cause) => Poll::Ready(Err(route::said(cause))),
        },
    );
    polled.await
}

/// Whom a task answers.
struct Caller {
    rank: Rank,
    /// None: nobody waits.
    id: Option<u64>,
    /// The number of the function that was called.
    handler: u16,
}

impl Caller {
    /// Sends the result of a task, or why there is none.
    fn answer(&self, progress: &Progress, outcome: Result<Result<Vec<u8>, String>, String>) {
        let (code, bytes) = match outcome {
            Ok(outcome) => coded(progress, outcome),
            Err(said) => (status::PANICKED, said.into_bytes()),
        };
        let Some(id) = self.id else {
            if code != status::DONE {
                let cause = String::from_utf8_lossy(&bytes);
                tracing::error!(caller = %self.rank, %cause, "a one-way call failed");
            }
            return;
        };
        let limit = progress.conduit().caps().max_payload;
        let message = Message {
            kind: kind::RESULT,
            tag: code,
            args: &[id, u64::from(self.handler)],
            payload: &bytes[..bytes.len().min(limit)],
        };
        // Who called is gone, else it is sent at some time: nobody waits here for that.
        let _ = progress.send_result(self.rank, &message);
    }
}

/// Replies with the result of a function, or with why there is none.
fn answer(context: &mut HandlerContext<'_>, id: u64, outcome: Result<Vec<u8>, String>) {
    let limit = context.progress.conduit().caps().max_payload;
    let (code, bytes) = coded(context.progress, outcome);
    // Without a port it was requested as a plain reply, and nobody waits.
    let _ = context.send(&Message {
        kind: kind::CALL,
        tag: code,
        args: &[id],
        payload: &bytes[..bytes.len().min(limit)],
    });
}

fn encoded_result<R: Serialize>(result: &R) -> Result<Vec<u8>, String> {
    postcard::to_stdvec(result).map_err(|cause| cause.to_string())
}
