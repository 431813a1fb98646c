//! What is done when an operation ends, before or after those who wait for it are told.

use hydrant_conduit::Ticket;
use hydrant_pinning::Hit;

use super::{Registration, bounce::Bounced, drive};
use crate::{
    job::Core,
    progress::{Completed, Outcome},
};

/// What a ticket is the end of.
pub(crate) enum Flight {
    /// Nothing is held for it.
    Plain,
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
    pub(super) fn new(hit: Option<Hit>, bounced: Option<Bounced>) -> Self {
        match (hit, bounced) {
            (None, None) => Self::Plain,
            (Some(hit), None) => Self::Hit(hit),
            (None, Some(bounced)) => Self::Bounced(bounced),
            (Some(hit), Some(bounced)) => Self::BouncedHit(hit, bounced),
        }
    }

    /// Whether what is to be done at its end comes before anybody is told: data that was read is
    /// not where it belongs yet.
    pub(crate) fn comes_first(&self) -> bool {
        match self {
            Self::Bounced(bounced) | Self::BouncedHit(_, bounced) => bounced.is_read(),
            Self::Leg(_) => true,
            Self::Plain | Self::Hit(_) => false,
        }
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
            self.conduit.ring(self.rank);
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
        if let Flight::Leg(id) = flight {
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
        match flight {
            Flight::Plain | Flight::Leg(_) => {}
            Flight::Hit(hit) => self.hit_over(registration, &hit),
            Flight::Bounced(bounced) => self.bounced_over(registration, bounced, fine),
            Flight::BouncedHit(hit, bounced) => {
                self.bounced_over(registration, bounced, fine);
                self.hit_over(registration, &hit);
            }
        }
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
