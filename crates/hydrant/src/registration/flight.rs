//! What is done when an operation ends, before or after those who wait for it are told.

use hydrant_conduit::Ticket;
use hydrant_pinning::Hit;

use super::{Registration, bounce::Bounced, drive, loan::Lease};
use crate::{
    job::Core,
    progress::{Completed, Outcome},
};

/// What a ticket is the end of.
pub(crate) struct Flight {
    held: Held,
    /// The loan that it accesses.
    lease: Option<Lease>,
}

/// What is held for an operation, or whose it is.
enum Held {
    Nothing,
    /// Both sides are held, or the far one.
    Hit(Hit),
    /// A slot of the bounce memory holds the data.
    Bounced(Bounced),
    /// Both.
    BouncedHit(Hit, Bounced),
    /// A transfer of the engine's.
    Leg(u64),
}

impl Flight {
    /// Nothing is held for it.
    pub(crate) fn plain() -> Self {
        Self::new(None, None, None)
    }

    /// A transfer of the engine's.
    pub(super) fn leg(id: u64) -> Self {
        Self {
            held: Held::Leg(id),
            lease: None,
        }
    }

    pub(super) fn new(hit: Option<Hit>, bounced: Option<Bounced>, lease: Option<Lease>) -> Self {
        let held = match (hit, bounced) {
            (None, None) => Held::Nothing,
            (Some(hit), None) => Held::Hit(hit),
            (None, Some(bounced)) => Held::Bounced(bounced),
            (Some(hit), Some(bounced)) => Held::BouncedHit(hit, bounced),
        };
        Self { held, lease }
    }

    /// Whether what is to be done at its end comes before anybody is told: data that was read is
    /// not where it belongs yet.
    pub(crate) fn comes_first(&self) -> bool {
        match &self.held {
            Held::Bounced(bounced) | Held::BouncedHit(_, bounced) => bounced.is_read(),
            Held::Leg(_) => true,
            Held::Nothing | Held::Hit(_) => false,
        }
    }

    /// Whether it is a transfer of the engine's, which nobody waits for.
    pub(crate) fn is_leg(&self) -> bool {
        matches!(self.held, Held::Leg(_))
    }
}

impl Core {
    /// An operation was posted to the conduit, or begun at the engine.
    pub(crate) fn posted(&self, ticket: Ticket, flight: Flight, left: bool) {
        if let Some((flight, outcome)) = self.pending.post(ticket, flight, left) {
            self.end_first(ticket, flight, outcome);
            self.tell_sleepers();
        }
    }

    /// Something ended otherwise than by what a conduit hands up: perhaps another thread sleeps
    /// for it.
    pub(super) fn tell_sleepers(&self) {
        if self.progress.has_sleepers() {
            self.conduit.notify(self.rank);
        }
    }

    /// The conduit, or the engine, ended an operation.
    pub(crate) fn completed(&self, ticket: Ticket, outcome: Outcome) {
        match self.pending.complete(ticket, outcome) {
            Completed::Told => {}
            Completed::Rest(flight) => self.land(flight, true),
            Completed::First(flight, outcome) => self.end_first(ticket, flight, outcome),
        }
    }

    fn end_first(&self, ticket: Ticket, flight: Flight, outcome: Outcome) {
        if let Held::Leg(id) = flight.held {
            let Some(registration) = &self.registration else {
                return;
            };
            // Nobody waits for it, and its place is free.
            let _ = self.pending.forget(ticket);
            let outcome = outcome.map_err(|cause| drive::access_failed(&cause));
            self.step(registration, &[], |engine, out| {
                engine.transferred(id, outcome, out);
            });
            return;
        }
        self.land(flight, outcome.is_ok());
        self.pending.end(ticket, outcome);
    }

    /// Gives back what was held for an operation; what it read goes where it belongs, if it went
    /// well.
    pub(super) fn land(&self, flight: Flight, fine: bool) {
        let Some(registration) = &self.registration else {
            return;
        };
        let Flight { held, lease } = flight;
        match held {
            Held::Nothing | Held::Leg(_) => {}
            Held::Hit(hit) => self.hit_over(registration, &hit),
            Held::Bounced(bounced) => self.bounced_over(registration, bounced, fine),
            Held::BouncedHit(hit, bounced) => {
                self.bounced_over(registration, bounced, fine);
                self.hit_over(registration, &hit);
            }
        }
        self.let_go(lease);
    }

    /// As [`land`](Self::land), for a hit that was over before anybody waited for it.
    #[inline(always)]
    pub(super) fn land_hit(
        &self,
        registration: &Registration,
        hit: Hit,
        bounced: Option<Bounced>,
        fine: bool,
    ) {
        if let Some(bounced) = bounced {
            self.bounced_over(registration, bounced, fine);
        }
        self.hit_over(registration, &hit);
    }

    fn bounced_over(&self, registration: &Registration, bounced: Bounced, fine: bool) {
        if let Some(bounce) = registration.bounce.get() {
            self.conduit.copied(bounce.give_back(bounced, fine));
        }
    }

    #[inline(always)]
    fn hit_over(&self, registration: &Registration, hit: &Hit) {
        if registration.hot.release(hit) {
            self.step(registration, &[], |engine, out| engine.released(hit, out));
        }
    }
}
