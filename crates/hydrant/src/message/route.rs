//! Handing messages of users to their handlers.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
};

use hydrant_conduit::{Delivery, ReplyPort};

use super::{HandlerContext, Messages, answer, failure, failure::Failure};
use crate::{
    Rank,
    counters::Count,
    progress::{self, Progress, Route, kind},
};

/// Gets requests, calls, their replies and results, and reports of failures.
impl Route for Messages {
    #[inline]
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        match delivery.kind {
            kind::USER | kind::CALL => {}
            kind::RESULT => return answer::returned(self, progress, delivery),
            _ => return progress.malformed(delivery.from, "a request of unknown kind"),
        }
        // A call is handled by its function's handler, which replies with the result.
        progress.tally.one(Count::Handled);
        if let Some(failed) = run(self, progress, delivery, Some(port)) {
            report(*failed, delivery, progress);
        }
    }

    #[inline]
    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        progress.tally.one(Count::Replies);
        match delivery.kind {
            kind::USER => {
                if let Some(failed) = run(self, progress, delivery, None) {
                    // The reply was ours to handle: the failure is, too.
                    self.fail(failed_here(
                        self,
                        progress.rank,
                        delivery.tag,
                        failed.failure,
                    ));
                }
            }
            kind::CALL => answer::returned(self, progress, delivery),
            kind::RESULT => progress.malformed(delivery.from, "a result as a reply"),
            _ => failure::received(self, progress, delivery),
        }
    }
}

/// A handler that failed.
struct Failed<'a> {
    failure: Failure,
    /// The way to say so, if there is one and it was not used.
    port: Option<&'a mut dyn ReplyPort>,
}

#[cold]
fn report(failed: Failed<'_>, delivery: &Delivery<'_>, progress: &Progress) {
    if let Some(port) = failed.port {
        failed.failure.report(port, delivery, progress);
    }
}

/// Runs a user's handler. How it failed, if it did, comes in a box, for a message pays for what is
/// handed back.
#[inline(always)]
fn run<'a>(
    messages: &'a Messages,
    progress: &'a Progress,
    delivery: &Delivery<'_>,
    port: Option<&'a mut dyn ReplyPort>,
) -> Option<Box<Failed<'a>>> {
    let Some(handler) = messages.handler(delivery.tag) else {
        return Some(unknown(port));
    };
    progress.flush_along();
    let mut context = HandlerContext {
        progress,
        source: delivery.from,
        handler: delivery.tag,
        large: messages.large(),
        port,
    };
    match catch(|| handler(&mut context, delivery.args, delivery.payload)) {
        Ok(()) => None,
        Err(cause) => Some(panicked(context, cause)),
    }
}

#[cold]
fn unknown(port: Option<&mut dyn ReplyPort>) -> Box<Failed<'_>> {
    let failure = Failure::Unknown;
    Box::new(Failed { failure, port })
}

#[cold]
fn panicked(context: HandlerContext<'_>, cause: Box<dyn Any + Send>) -> Box<Failed<'_>> {
    context.progress.tally.one(Count::Panics);
    Box::new(Failed {
        failure: Failure::Panicked(said(cause)),
        port: context.port,
    })
}

/// Runs something of the user's as a handler.
#[inline(always)]
pub(super) fn catch<R>(act: impl FnOnce() -> R) -> std::thread::Result<R> {
    panic::catch_unwind(AssertUnwindSafe(|| progress::in_handler(act)))
}

/// What a panic said. The payload is the user's, and so is what happens when it is dropped: a panic
/// there must not unwind into the thread that polls, which may wait for something quite different.
pub(super) fn said(cause: Box<dyn Any + Send>) -> String {
    let said = text(&*cause);
    if let Err(another) = catch(|| drop(cause)) {
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

fn failed_here(messages: &Messages, rank: Rank, handler: u16, failure: Failure) -> crate::Error {
    match failure {
        Failure::Panicked(message) => crate::Error::HandlerPanicked {
            rank,
            handler,
            name: messages.name(handler),
            message,
        },
        _ => crate::Error::UnknownHandler { rank, handler },
    }
}
