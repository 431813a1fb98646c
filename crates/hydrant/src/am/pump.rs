//! Handing arrived messages to their handlers.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
};

use hydrant_conduit::{Delivery, Error, ReplyPort, Sink, Standing, Ticket};

use super::{HandlerContext, call, failure, failure::Failure, kind};
use crate::{Rank, collective, counters::Count, job::Core, progress, rma::atomics};

/// Where a poll puts what it finds.
pub(crate) struct Pump<'a> {
    pub(crate) core: &'a Core,
}

impl Sink for Pump<'_> {
    #[inline]
    fn request(&mut self, delivery: Delivery<'_>, port: &mut dyn ReplyPort) {
        let core = self.core;
        let failed = match delivery.kind {
            // A call is handled by its function's handler, which replies with the result.
            kind::USER | kind::CALL => {
                core.tally.one(Count::Handled);
                run(core, &delivery, Some(port))
            }
            kind::STORE => return collective::stored(core, &delivery),
            kind::ATOMIC => return atomics::asked(core, &delivery, port),
            kind::REGISTRATION => return core.registration_message(&delivery),
            kind::LOAN => {
                if !core.loan_asked(&delivery, port) {
                    core.malformed(delivery.from, "a message about no loan");
                }
                return;
            }
            _ => return core.malformed(delivery.from, "a request of unknown kind"),
        };
        if let Some((failure, Some(port))) = failed {
            failure.report(port, &delivery, core);
        }
    }

    #[inline]
    fn reply(&mut self, delivery: Delivery<'_>) {
        let core = self.core;
        match delivery.kind {
            kind::USER => {
                core.tally.one(Count::Replies);
                if let Some((failure, _)) = run(core, &delivery, None) {
                    // The reply was ours to handle: the failure is, too.
                    core.am.fail(failed_here(core.rank, delivery.tag, failure));
                }
            }
            kind::CALL => {
                core.tally.one(Count::Replies);
                call::returned(core, &delivery);
            }
            kind::FAILURE => {
                core.tally.one(Count::Replies);
                failure::received(core, &delivery);
            }
            kind::ATOMIC => atomics::answered(core, &delivery),
            kind::LOAN => {
                if !core.loan_answered(&delivery) {
                    core.malformed(
                        delivery.from,
                        "an answer about a loan that was not asked for",
                    );
                }
            }
            _ => core.malformed(delivery.from, "a reply of unknown kind"),
        }
    }

    fn local(&mut self, ticket: Ticket) {
        self.core.pending.leave(ticket);
    }

    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>) {
        self.core.completed(ticket, result);
    }

    fn malformed(&mut self, error: Error) {
        self.core.tally.one(Count::Malformed);
        let Error::Malformed { peer: sender, .. } = error else {
            tracing::error!(%error, "a message was thrown away");
            return;
        };
        // What a rank that has ended sent before may be about what was forgotten with it; and to a
        // rank that is lost itself all others look as if they had.
        if self.core.conduit.standing(sender) != Standing::Present || self.core.is_lost_itself() {
            tracing::debug!(%error, "a message of a rank that has ended was thrown away");
            return;
        }
        tracing::error!(%error, "a message was thrown away, and its sender is expelled");
        // Before the loss can be seen: whoever is told of it asks what it follows from.
        self.core.faults.note(error);
        self.core.conduit.expel(sender);
    }

    fn send_waiting(&mut self) -> bool {
        if self.core.is_stuck() {
            self.core.flush();
        }
        self.core.is_stuck()
    }
}

impl Core {
    /// A peer broke a rule of this layer.
    #[cold]
    pub(crate) fn malformed(&self, peer: Rank, what: &'static str) {
        Pump { core: self }.malformed(Error::Malformed { peer, what });
    }
}

/// How a handler failed, and the way to say so, if it was not used.
type Failed<'a> = Option<(Failure, Option<&'a mut dyn ReplyPort>)>;

/// Runs a user's handler.
#[inline]
fn run<'a>(
    core: &'a Core,
    delivery: &Delivery<'_>,
    port: Option<&'a mut dyn ReplyPort>,
) -> Failed<'a> {
    let Some(handler) = core.am.handler(delivery.tag) else {
        return Some((Failure::Unknown, port));
    };
    let mut context = HandlerContext {
        core,
        source: delivery.from,
        port,
    };
    let outcome = catch(|| handler(&mut context, delivery.args, delivery.payload));
    match outcome {
        Ok(()) => None,
        Err(message) => {
            core.tally.one(Count::Panics);
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
