//! What is held for an operation, and given back at its end, before or after those who wait for it
//! know of the end.

use hydrant_conduit::Ticket;
use hydrant_pinning::{Hit, KeptHit};

use super::{
    Transfer,
    bounce::Bounced,
    under_way::{Completed, End, Failure},
};
use crate::{
    Rank,
    registration::{Lease, Registration},
};

/// What is held for an operation that a ticket is the end of.
pub(crate) struct Held {
    what: What,
    /// The loan that it accesses.
    lease: Option<Lease>,
}

/// What is held for an operation, or whose it is.
enum What {
    Nothing,
    /// Both sides are registered and referenced, or the remote one.
    Hit(KeptHit),
    /// A slot of the bounce memory holds the data.
    Bounced(Bounced),
    /// Both.
    BouncedHit(KeptHit, Bounced),
    /// A transfer of the engine's, by its number there, and with whom.
    Piece(u64, Rank),
}

impl Held {
    /// Nothing is held for it.
    pub(super) fn nothing() -> Self {
        Self::new(None, None, None)
    }

    /// A transfer of the engine's.
    pub(super) fn piece(id: u64, peer: Rank) -> Self {
        Self {
            what: What::Piece(id, peer),
            lease: None,
        }
    }

    pub(super) fn new(
        hit: Option<KeptHit>,
        bounced: Option<Bounced>,
        lease: Option<Lease>,
    ) -> Self {
        let what = match (hit, bounced) {
            (None, None) => What::Nothing,
            (Some(hit), None) => What::Hit(hit),
            (None, Some(bounced)) => What::Bounced(bounced),
            (Some(hit), Some(bounced)) => What::BouncedHit(hit, bounced),
        };
        Self { what, lease }
    }

    /// Whether what is to be done at its end comes before anybody knows of it: data that was read is
    /// not where it belongs yet.
    pub(super) fn comes_first(&self) -> bool {
        match &self.what {
            What::Bounced(bounced) | What::BouncedHit(_, bounced) => bounced.is_read(),
            What::Piece(..) => true,
            What::Nothing | What::Hit(_) => false,
        }
    }

    /// Whether it is a transfer of the engine's, which nobody waits for.
    pub(super) fn is_piece(&self) -> bool {
        matches!(self.what, What::Piece(..))
    }

    /// Whether a peer may wait until it is given back.
    pub(super) fn is_awaited(&self, registration: &Registration) -> bool {
        let refers = matches!(self.what, What::Hit(_) | What::BouncedHit(..));
        let lent = self.lease.as_ref();
        self.is_piece()
            || refers && registration.is_asked_back()
            || lent.is_some_and(|lease| registration.is_over(lease))
    }
}

impl Transfer {
    /// An operation was posted to the conduit, or begun at the engine. `left`: it needs its source
    /// no longer.
    pub(super) fn posted(&self, ticket: Ticket, held: Held, left: bool) {
        if let Some((held, outcome)) = self.under_way.post(ticket, held, left) {
            self.end_first(ticket, held, outcome);
            self.progress.wake_sleepers();
        }
    }

    /// The conduit, or the engine, ended an operation.
    pub(super) fn completed(&self, ticket: Ticket, outcome: End) {
        let Completed { first, rest, asked } = self.under_way.complete(ticket, outcome);
        if let Some((held, outcome)) = first {
            self.end_first(ticket, held, outcome);
        }
        if let Some(held) = rest {
            self.give_back(held, true);
        }
        self.tell(asked);
    }

    fn end_first(&self, ticket: Ticket, held: Held, outcome: End) {
        if let What::Piece(id, peer) = held.what {
            // Nobody waits for it, and its place is free.
            let _ = self.under_way.forget(ticket);
            let outcome = match outcome {
                Ok(()) => Ok(()),
                Err(Failure::Network(cause)) => Err(cause),
                Err(Failure::Registration(cause)) => {
                    debug_assert!(false, "the engine ended a transfer: {cause}");
                    Err(hydrant_conduit::Error::PeerLost(peer))
                }
            };
            if let Some(registration) = &self.registration {
                registration.transferred(id, peer, outcome);
            }
            return;
        }
        self.give_back(held, outcome.is_ok());
        let asked = self.under_way.end(ticket, outcome);
        self.tell(asked);
    }

    /// Gives back what was held for an operation; what it read goes where it belongs, if it went
    /// well.
    pub(super) fn give_back(&self, held: Held, fine: bool) {
        // Nothing is held where nothing is registered.
        let Some(registration) = &self.registration else {
            return;
        };
        let Held { what, lease } = held;
        match what {
            What::Nothing | What::Piece(..) => {}
            What::Hit(hit) => registration.release_kept(&hit),
            What::Bounced(bounced) => self.give_back_slot(bounced, fine),
            What::BouncedHit(hit, bounced) => {
                self.give_back_slot(bounced, fine);
                registration.release_kept(&hit);
            }
        }
        registration.let_go(lease);
    }

    /// As [`give_back`](Self::give_back), for a hit that was over before anybody waited for it.
    #[inline(always)]
    pub(super) fn give_back_hit(
        &self,
        registration: &Registration,
        hit: &Hit<'_>,
        bounced: Option<Bounced>,
        fine: bool,
    ) {
        if let Some(bounced) = bounced {
            self.give_back_slot(bounced, fine);
        }
        registration.release(hit);
    }

    fn give_back_slot(&self, bounced: Bounced, fine: bool) {
        if let Some(bounce) = self.bounce.get() {
            (self.progress.conduit()).copied(bounce.give_back(bounced, fine));
        }
    }
}
