//! Everything one-sided that leaves the process, on every conduit: puts, gets and atomic operations
//! of the NIC, from the [access](hydrant_conduit::Access) that the typed interface describes to its completion.
//!
//! - Where the network needs no registered memory, an access goes to the conduit as it is
//!   ([`begin`]).
//! - Where it does, it is a [hit](registered) if both sides are registered, and is posted at once:
//!   with the data in the work request itself if that is small ([inline](hydrant_pinning::Own::Inline)),
//!   through a slot of the [bounce memory](bounce) if that costs less than to register the buffer.
//!   Else it is a miss, which goes to the room of [registration](crate::registration), whose engine
//!   says what is to be posted instead.
//! - What is [under way](under_way) is one map: an operation is there from when it was posted until
//!   its end was asked for. What is [held] for it is given back at its end.

mod asked;
mod begin;
mod bounce;
mod buffer;
mod held;
mod lending;
mod orphan;
mod registered;
mod turns;
mod under_way;
mod ways;
mod word;

use std::sync::{Arc, OnceLock};

use hydrant_conduit::{Delivery, Posted, ReplyPort, Ticket};
use hydrant_launch::Bootstrap;
use hydrant_pinning::Strategy;
use parking_lot::Mutex;

use crate::{
    Rank,
    progress::{Operations, Outcome, Progress, Route, kind},
    registration::{Carrier, Piece, Registration, Setup},
};
pub(crate) use begin::{get, put};
use bounce::Bounce;
pub(crate) use buffer::{Buffer, Write};
use held::Held;
use turns::Turns;
pub(crate) use under_way::Look;
use under_way::{Failure, UnderWay};
use ways::Ways;
pub(crate) use ways::{Shape, Way};

/// One-sided operations of a rank.
pub(crate) struct Transfer {
    pub(crate) progress: Arc<Progress>,
    /// Where the network needs registered memory.
    registration: Option<Registration>,
    /// Whether the NIC gets by itself: what the conduit says, without asking it for each get.
    reads: bool,
    under_way: UnderWay,
    /// Registered memory through which data goes; set when the job is composed, where it is of use.
    bounce: OnceLock<Arc<Bounce>>,
    /// How calls of many runs go.
    pub(crate) ways: Ways,
    /// Of tasks that want a word of a peer registered, by rank; made when there is one.
    words: OnceLock<Box<[Turns]>>,
}

impl Transfer {
    /// Composes the one-sided operations of a rank, and hands them in to the rooms below. `setup`: of
    /// registration, where the network needs it.
    pub(crate) fn new(
        progress: &Arc<Progress>,
        setup: Option<Setup>,
        bootstrap: &Arc<Mutex<Box<dyn Bootstrap>>>,
    ) -> Arc<Self> {
        let registration =
            setup.map(|setup| Registration::new(setup, progress, Arc::clone(bootstrap)));
        let transfer = Arc::new(Self {
            progress: Arc::clone(progress),
            registration,
            reads: progress.conduit().caps().reads,
            under_way: UnderWay::default(),
            bounce: OnceLock::new(),
            ways: Ways::default(),
            words: OnceLock::new(),
        });
        let operations: Arc<dyn Operations> = transfer.clone();
        progress.report_to(Arc::downgrade(&operations));
        if let Some(registration) = &transfer.registration {
            let carrier: Arc<dyn Carrier> = transfer.clone();
            registration.carry_by(Arc::downgrade(&carrier));
            let weak = Arc::downgrade(&transfer);
            progress.route(kind::REGISTRATION, Arc::new(Moves(weak.clone())));
            progress.route(kind::LOAN, Arc::new(Loans(weak)));
            transfer.set_up_bounce(registration);
        }
        transfer
    }

    /// Whether a put to `peer` that is locally complete is there before anything that this rank does to
    /// the same memory afterwards, but by a NIC's atomic operation: all of it goes by messages, which are
    /// handled in order.
    pub(crate) fn keeps_order(&self, peer: Rank) -> bool {
        let copies = |it: &Registration| it.strategy() == Strategy::Bounce;
        peer != self.progress.rank && self.registration.as_ref().is_some_and(copies)
    }

    /// What the engine did, where memory is registered.
    pub(crate) fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }
}

impl Operations for Transfer {
    fn local(&self, ticket: Ticket) {
        self.under_way.left(ticket);
    }

    fn complete(&self, ticket: Ticket, outcome: Outcome) {
        self.completed(ticket, outcome.map_err(Failure::Network));
    }

    fn is_awaited(&self, ticket: Ticket) -> bool {
        self.under_way.is_awaited(ticket, self.registration())
    }

    fn is_idle(&self) -> bool {
        self.under_way.is_idle()
    }

    fn flush(&self) {
        if let Some(registration) = &self.registration {
            registration.flush();
        }
    }

    fn handle_ended_peers(&self, changes: u64) {
        if let Some(registration) = &self.registration {
            registration.handle_ended_peers(changes);
        }
    }
}

#[allow(unsafe_code)] // hands the promise of who has the piece on
impl Carrier for Transfer {
    unsafe fn post(&self, piece: &Piece) -> Option<Outcome> {
        // SAFETY: the caller's promise.
        match unsafe { self.progress.conduit().post(&piece.access) } {
            Ok(Posted::Pending(ticket)) => {
                self.posted(ticket, Held::piece(piece.id, piece.access.peer), false);
                None
            }
            done => Some(done.map(drop)),
        }
    }

    fn locally_complete(&self, ticket: Ticket) {
        self.under_way.left_if_open(ticket);
    }

    fn ended(&self, ticket: Ticket, outcome: Result<(), hydrant_pinning::Error>) {
        self.completed(ticket, outcome.map_err(Failure::Registration));
    }
}

/// Who gets the messages of peers' engines.
struct Moves(std::sync::Weak<Transfer>);

/// Who gets messages about exposed buffers.
struct Loans(std::sync::Weak<Transfer>);

impl Route for Moves {
    fn request(&self, _: &Progress, delivery: &Delivery<'_>, _: &mut dyn ReplyPort) {
        let transfer = self.0.upgrade();
        if let Some(registration) = transfer.as_ref().and_then(|it| it.registration()) {
            registration.messages(delivery);
        }
    }
}

impl Route for Loans {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        let transfer = self.0.upgrade();
        let known = (transfer.as_ref().and_then(|it| it.registration()))
            .is_none_or(|registration| registration.loan_asked(delivery, port));
        if !known {
            progress.malformed(delivery.from, "a message about no loan");
        }
    }

    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        let transfer = self.0.upgrade();
        let known = (transfer.as_ref().and_then(|it| it.registration()))
            .is_none_or(|registration| registration.loan_answered(delivery));
        if !known {
            let what = "an answer about a loan that was not asked for";
            progress.malformed(delivery.from, what);
        }
    }
}
