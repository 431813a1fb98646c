//! Handing messages of users to their handlers.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use hydrant_conduit::{Delivery, ReplyPort};

use super::{HandlerContext, Messages, call, failure, failure::Failure};
use crate::{
    Rank,
    counters::Count,
    progress::{self, Progress, Route, kind},
};

/// Who gets requests, calls, their replies and results, and reports of failures.
pub(crate) struct Users(pub(crate) Arc<Messages>);

impl Route for Users {
    #[inline]
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        if delivery.kind == kind::FAILURE {
            return progress.malformed(delivery.from, "a request of unknown kind");
        }
        // A call is handled by its function's handler, which replies with the result.
        progress.tally.one(Count::Handled);
        if let Some((failure, Some(port))) = run(&self.0, progress, delivery, Some(port)) {
            failure.report(port, delivery, progress);
        }
    }

    #[inline]
    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        progress.tally.one(Count::Replies);
        match delivery.kind {
            kind::USER => {
                if let Some((failure, _)) = run(&self.0, progress, delivery, None) {
                    // The reply was ours to handle: the failure is, too.
                    (self.0).fail(failed_here(progress.rank, delivery.tag, failure));
                }
            }
            kind::CALL => call::returned(&self.0, progress, delivery),
            _ => failure::received(&self.0, progress, delivery),
        }
    }
}

/// How a handler failed, and the way to say so, if it was not used.
type Failed<'a> = Option<(Failure, Option<&'a mut dyn ReplyPort>)>;

/// Runs a user's handler.
#[inline]
fn run<'a>(
    messages: &Messages,
    progress: &'a Progress,
    delivery: &Delivery<'_>,
    port: Option<&'a mut dyn ReplyPort>,
) -> Failed<'a> {
    let Some(handler) = messages.handler(delivery.tag) else {
        return Some((Failure::Unknown, port));
    };
    let mut context = HandlerContext {
        progress,
        source: delivery.from,
        port,
    };
    let outcome = catch(|| handler(&mut context, delivery.args, delivery.payload));
    match outcome {
        Ok(()) => None,
        Err(message) => {
            progress.tally.one(Count::Panics);
            Some((Failure::Panicked(message), context.port))
        }
    }
}

/// Runs something of the user's as a handler; a panic becomes its message.
#[inline]
fn catch<R>(act: impl FnOnce() -> R) -> Result<R, String> {
    panic::catch_unwind(AssertUnwindSafe(|| progress::in_handler(act))).map_err(said)
}

/// What a panic said. The payload is the user's, and so is what happens when it is dropped: a panic
/// there must not unwind into the thread that polls, which may wait for something quite different.
fn said(cause: Box<dyn Any + Send>) -> String {
    let said = text(&*cause);
    let dropped = panic::catch_unwind(AssertUnwindSafe(|| progress::in_handler(|| drop(cause))));
    if let Err(another) = dropped {
        // Dropping that may panic, too, and so on without end.
        std::mem::forget(another);
    }
    said
}

fn text(cause: &(dyn Any + Send)) -> String {
    (cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

fn failed_here(rank: Rank, handler: u16, failure: Failure) -> crate::Error {
    match failure {
        Failure::Panicked(message) => crate::Error::HandlerPanicked {
            rank,
            handler,
            message,
        },
        _ => crate::Error::UnknownHandler { rank, handler },
    }
}
