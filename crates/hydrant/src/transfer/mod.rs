//! All one-sided accesses to other ranks, on every conduit: puts, gets and atomic operations of the
//! NIC. The typed interface describes an [access](hydrant_conduit::Access), and this room carries
//! it to its completion.
//!
//! - Without registration, an access goes to the conduit as it is ([`begin`]).
//! - With registration, an access is a [hit](registered) if both sides are registered, and is
//!   posted at once. A small put is [inline](hydrant_pinning::OwnMemory::Inline) in the work
//!   request. A buffer that costs less to copy than to register goes through a slot of the [bounce
//!   memory](bounce). Long messages register a [buffer] for one transfer.
//! - Any other access is a miss. The engine of the [registration](crate::registration) room decides
//!   which pieces are posted instead.
//! - Operations [in flight](in_flight) are in one map, from the post until their outcomes are
//!   taken. Their [holds](held) are given back at their [ends](ended).

mod background;
mod begin;
mod bounce;
mod buffer;
mod ended;
mod held;
mod in_flight;
mod lending;
mod orphan;
mod outcome;
mod registered;
mod run_routes;
mod turns;
mod word;

use std::sync::{Arc, OnceLock};

use hydrant_conduit::{Delivery, Posted, ReplyPort, Ticket};
use hydrant_launch::Bootstrap;
use hydrant_pinning::Strategy;
use parking_lot::Mutex;

use crate::{
    Rank,
    progress::{Operations, Outcome, Progress, Route, kind},
    registration::{Carrier, PieceTransfer, Registration, RegistrationSetup},
};
pub(crate) use begin::{get, put};
use bounce::BounceMemory;
pub(crate) use buffer::{TransferBuffer, Write};
use held::OperationHolds;
pub(crate) use in_flight::OperationState;
use in_flight::{InFlight, OperationFailure};
use run_routes::RunRoutes;
pub(crate) use run_routes::{RunRoute, RunShape};
use turns::TaskTurns;

/// One-sided operations of a rank.
pub(crate) struct Transfer {
    pub(crate) progress: Arc<Progress>,
    /// The registration room, where the network needs registered memory.
    registration: Option<Registration>,
    /// True if the NIC gets by itself. A copy of the conduit's capability, for the fast path.
    reads: bool,
    in_flight: InFlight,
    /// The bounce memory. Set when the job is composed, where it is of use.
    bounce: OnceLock<Arc<BounceMemory>>,
    /// The routes of calls with many runs.
    pub(crate) run_routes: RunRoutes,
    /// The turns of tasks that want a word of a peer registered, by rank. Made on first use.
    words: OnceLock<Box<[TaskTurns]>>,
}

impl Transfer {
    /// Composes the one-sided operations of a rank, and registers their handlers. `setup` is that
    /// of registration, where the network needs it.
    pub(crate) fn new(
        progress: &Arc<Progress>,
        setup: Option<RegistrationSetup>,
        bootstrap: &Arc<Mutex<Box<dyn Bootstrap>>>,
    ) -> Arc<Self> {
        let registration =
            setup.map(|setup| Registration::new(setup, progress, Arc::clone(bootstrap)));
        let transfer = Arc::new(Self {
            progress: Arc::clone(progress),
            registration,
            reads: progress.conduit().caps().reads,
            in_flight: InFlight::default(),
            bounce: OnceLock::new(),
            run_routes: RunRoutes::default(),
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

    /// Returns whether a locally complete put to `peer` is done before all later accesses of this
    /// rank to the same memory, other than atomic operations of a NIC. That holds where all data
    /// goes by messages, which are handled in order.
    pub(crate) fn keeps_order(&self, peer: Rank) -> bool {
        let copies = |it: &Registration| it.strategy() == Strategy::Bounce;
        peer != self.progress.rank && self.registration.as_ref().is_some_and(copies)
    }

    /// Returns the registration room, where memory is registered.
    pub(crate) fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }
}

impl Operations for Transfer {
    fn local(&self, ticket: Ticket) {
        self.in_flight.mark_source_free(ticket);
    }

    fn complete(&self, ticket: Ticket, outcome: Outcome) {
        self.handle_end(ticket, outcome.map_err(OperationFailure::Network));
    }

    fn is_awaited(&self, ticket: Ticket) -> bool {
        self.in_flight.is_awaited(ticket, self.registration())
    }

    fn is_idle(&self) -> bool {
        self.in_flight.is_idle()
    }

    fn flush(&self) {
        if let Some(registration) = &self.registration {
            registration.flush();
        }
    }

    fn settle(&self) {
        if let Some(registration) = &self.registration {
            registration.settle();
        }
    }

    fn has_news_for(&self, rank: Rank) -> bool {
        (self.registration.as_ref()).is_some_and(|registration| registration.has_news_for(rank))
    }

    fn learn_changes(&self) {
        if let Some(registration) = &self.registration {
            registration.learn_changes();
        }
    }

    fn handle_ended_peers(&self, changes: u64) {
        if let Some(registration) = &self.registration {
            registration.handle_ended_peers(changes);
        }
    }
}

#[allow(unsafe_code)] // posts pieces of the engine
impl Carrier for Transfer {
    unsafe fn post(&self, piece: &PieceTransfer) -> Option<Outcome> {
        // SAFETY: 1. and 2. The caller's conditions 1 and 2, which are those of `Conduit::post`.
        match unsafe { self.progress.conduit().post(&piece.access) } {
            Ok(Posted::Pending(ticket)) => {
                self.note_posted(
                    ticket,
                    OperationHolds::piece(piece.id, piece.access.peer),
                    false,
                );
                None
            }
            done => Some(done.map(drop)),
        }
    }

    fn locally_complete(&self, ticket: Ticket) {
        self.in_flight.mark_source_free_if_open(ticket);
    }

    fn ended(&self, ticket: Ticket, outcome: Result<(), hydrant_pinning::Error>) {
        self.handle_end(ticket, outcome.map_err(OperationFailure::Registration));
    }
}

/// The handler of messages of peers' engines.
struct Moves(std::sync::Weak<Transfer>);

/// The handler of messages about exposed buffers.
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
