//! Hands the messages of users to their handlers.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
};

use hydrant_conduit::{Delivery, ReplyPort};

use super::{HandlerContext, Messages, answer, failure, failure::HandlerFailure, late::ReplyTurn};
use crate::{
    Rank,
    counters::Count,
    progress::{self, Progress, Route, kind},
};

/// Takes requests, calls, their replies and results, and reports of failures.
impl Route for Messages {
    #[inline]
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        match delivery.kind {
            kind::USER | kind::CALL => {}
            kind::RESULT => return answer::received_result(self, progress, delivery),
            kind::LATE_REPLY => {
                let turn = self.late().has_come(delivery);
                return self.reply_in_turn(progress, delivery, turn);
            }
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
        match delivery.kind {
            kind::USER => match self.late().precede(delivery) {
                ReplyTurn::Now => return self.reply_of_user(progress, delivery),
                turn => return self.reply_in_turn(progress, delivery, turn),
            },
            kind::CALL => answer::received_result(self, progress, delivery),
            kind::RESULT => progress.malformed(delivery.from, "a result as a reply"),
            kind::LATE_REPLY => {
                if let Some(come) = self.late().announced(delivery.from) {
                    self.reply_of_user(progress, &come.delivery(delivery.from));
                }
                return;
            }
            _ => failure::received(self, progress, delivery),
        }
        progress.tally.one(Count::Replies);
    }
}

impl Messages {
    /// Handles a late reply and those that waited for it, or one that waits, by its turn.
    #[cold]
    fn reply_in_turn(&self, progress: &Progress, delivery: &Delivery<'_>, turn: ReplyTurn) {
        match turn {
            ReplyTurn::Now => {
                self.reply_of_user(progress, delivery);
                while let Some(waited) = self.late().next(delivery.from) {
                    self.reply_of_user(progress, &waited.delivery(delivery.from));
                }
            }
            ReplyTurn::Later => {}
            ReplyTurn::TooMany => {
                progress.malformed(delivery.from, "it announces replies that do not come");
            }
        }
    }

    /// Handles the reply of a user's handler.
    fn reply_of_user(&self, progress: &Progress, delivery: &Delivery<'_>) {
        progress.tally.one(Count::Replies);
        if let Some(failed) = run(self, progress, delivery, None) {
            // This rank handled the reply, so it keeps the failure, too.
            let failure = failed.failure;
            self.fail(failed_here(self, progress.rank, delivery.tag, failure));
        }
    }
}

/// A handler that failed.
struct FailedHandler<'a> {
    failure: HandlerFailure,
    /// The port to report the failure, unless there is none or a reply was sent.
    port: Option<&'a mut dyn ReplyPort>,
}

#[cold]
fn report(failed: FailedHandler<'_>, delivery: &Delivery<'_>, progress: &Progress) {
    if let Some(port) = failed.port {
        failed.failure.report(port, delivery, progress);
    }
}

/// Runs a user's handler, and returns its failure. The failure is boxed, since every message pays
/// for the size of the returned value.
#[inline(always)]
fn run<'a>(
    messages: &'a Messages,
    progress: &'a Progress,
    delivery: &Delivery<'_>,
    port: Option<&'a mut dyn ReplyPort>,
) -> Option<Box<FailedHandler<'a>>> {
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
    match catch_panic(|| handler(&mut context, delivery.args, delivery.payload)) {
        Ok(()) => None,
        Err(cause) => Some(panicked(context, cause)),
    }
}

#[cold]
fn unknown(port: Option<&mut dyn ReplyPort>) -> Box<FailedHandler<'_>> {
    let failure = HandlerFailure::Unknown;
    Box::new(FailedHandler { failure, port })
}

#[cold]
fn panicked(context: HandlerContext<'_>, cause: Box<dyn Any + Send>) -> Box<FailedHandler<'_>> {
    context.progress.tally.one(Count::Panics);
    Box::new(FailedHandler {
        failure: HandlerFailure::Panicked(panic_message(cause)),
        port: context.port,
    })
}

/// Runs code of the user as a handler, and catches its panic.
#[inline(always)]
pub(super) fn catch_panic<R>(act: impl FnOnce() -> R) -> std::thread::Result<R> {
    panic::catch_unwind(AssertUnwindSafe(|| progress::in_handler(act)))
}

/// Returns the message of a panic. The payload is the user's, and its drop may panic. Such a panic
/// must not unwind into the polling thread, which may wait for something unrelated.
pub(super) fn panic_message(cause: Box<dyn Any + Send>) -> String {
    let message = text(&*cause);
    if let Err(another) = catch_panic(|| drop(cause)) {
        // The drop of this payload may panic, too, and so on without end.
        std::mem::forget(another);
    }
    message
}

fn text(cause: &(dyn Any + Send)) -> String {
    (cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

fn failed_here(
    messages: &Messages,
    rank: Rank,
    handler: u16,
    failure: HandlerFailure,
) -> crate::Error {
    match failure {
        HandlerFailure::Panicked(message) => crate::Error::HandlerPanicked {
            rank,
            handler,
            name: messages.name(handler),
            message,
        },
        _ => crate::Error::UnknownHandler { rank, handler },
    }
}
