//! Own memory that is registered before it is needed, and given up after it was: what a helper asks of the
//! engine, under the engine's rules.

use std::{sync::Arc, time::Duration};

use hydrant_pinning::{
    AccessVerdict, Attached, CrowdedOut, Detached, Direction, GivenUp, Message, Region, Run,
    wire::Move,
};
use parking_lot::Mutex;

use super::Registration;
use crate::{
    Rank,
    uses::{Stood, Use, UseKind, Uses, site_or_peer},
};

/// What became of memory that was to be registered ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Foreseen {
    Registered,
    /// There is no room, or it is not there to be registered.
    Refused,
    /// Another thread is about it; to be [asked for](Registration::is_foreseen) under this number.
    UnderWay(u64),
}

/// How many bytes were registered, and from when on.
#[derive(Default)]
pub(super) struct Series(Mutex<Vec<(Duration, u64)>>);

impl Registration {
    /// Has all uses of own memory told from now on. Called once at most, when the job is composed.
    pub(crate) fn tell_uses_to(&self, uses: Arc<dyn Uses>) {
        let set = self.uses.set(uses);
        debug_assert!(set.is_ok(), "uses are told to two");
    }

    /// Who is told of uses, if anybody is.
    #[inline]
    pub(crate) fn uses(&self) -> Option<&dyn Uses> {
        self.uses.get().map(|it| &**it)
    }

    /// How own memory stands that an operation is going to use.
    pub(crate) fn stood(&self, addr: u64, len: u64) -> Stood {
        if self.hot.is_registered(addr, len) {
            Stood::Registered
        } else {
            Stood::Absent
        }
    }

    /// The use of own memory that a peer's message asks for, if uses are told.
    pub(super) fn served(
        &self,
        peer: Rank,
        message: &Message,
        verdict: AccessVerdict,
    ) -> Option<Use> {
        self.uses()?;
        let region = match message {
            Message::Move(Move { region, .. }) | Message::Pull { region, .. } => region.0,
            _ => return None,
        };
        if self.lent.is_quiet(region) {
            return None;
        }
        let geometry = self.geometry;
        let (kind, addr, len) = match message {
            Message::Move(Move { write, needs, .. }) => {
                let (first, last) = (needs.first()?, needs.last()?);
                let start = geometry.address_of(first.run.first);
                let kind = if *write {
                    UseKind::Written
                } else {
                    UseKind::Read
                };
                let end = geometry.address_of(last.run.end());
                (kind, start, end.saturating_sub(start))
            }
            Message::Pull { from, to, .. } => {
                let len = to
                    .iter()
                    .fold(0_u64, |sum, place| sum.saturating_add(place.len));
                (UseKind::Read, *from, len)
            }
            _ => return None,
        };
        let stood = match verdict {
            AccessVerdict::Fine => self.stood(addr, len),
            AccessVerdict::Copy | AccessVerdict::Refused(_) => Stood::Elsewhere,
        };
        Some(Use {
            kind,
            addr,
            len,
            stood,
            begun: self.progress.conduit().now(),
            site: site_or_peer(peer),
        })
    }

    /// Does not tell of uses of a loan, because somebody else does.
    pub(crate) fn say_nothing_of(&self, key: hydrant_conduit::Key) {
        if self.uses().is_some() {
            self.lent.quieten(key.0);
        }
    }

    /// Registers own memory that is expected to be needed soon.
    pub(crate) fn foresee(&self, addr: u64, len: u64) -> Foreseen {
        let judged = self.lent.ends();
        let lasts = |run: Run| self.lent.lasts_until(self.geometry, run) == run.end();
        // Memory that may go unseen is not kept registered beyond its use.
        if !self.geometry.span(addr, len).is_ok_and(lasts) {
            return Foreseen::Refused;
        }
        let id = self.name();
        let mut begun = false;
        self.step(&[], |engine, out| {
            // As with what peers ask for: memory that goes is taken off first and then taken back by the
            // engine, so that either is seen.
            if self.lent.ends() == judged {
                begun = engine.foresee(id, addr, len, out).is_ok();
            }
        });
        if !begun {
            return Foreseen::Refused;
        }
        match self.is_foreseen(id) {
            Some(true) => Foreseen::Registered,
            Some(false) => Foreseen::Refused,
            None => Foreseen::UnderWay(id),
        }
    }

    /// Whether what was under way has been registered by now; said once.
    pub(crate) fn is_foreseen(&self, id: u64) -> Option<bool> {
        self.pinned.lock().remove(&id).map(|it| it.is_ok())
    }

    /// Gives up what is registered of own memory, unless it is in use.
    pub(crate) fn give_up(&self, addr: u64, len: u64) -> GivenUp {
        let mut outcome = GivenUp::Nothing;
        self.step(&[], |engine, out| {
            outcome = engine.give_up(addr, len, out).unwrap_or(GivenUp::Nothing);
        });
        outcome
    }

    /// Has a page be registered by itself that two buffers share, or no longer.
    pub(crate) fn set_apart(&self, page: u64, is_apart: bool) {
        // An address beyond all pages is nobody's.
        let _ = self.engine.lock().set_apart(page, is_apart);
    }

    /// Gives up a page that is [apart](Self::set_apart), unless it is in use.
    pub(crate) fn give_up_apart(&self, page: u64) {
        self.step(&[], |engine, out| {
            // As above.
            let _ = engine.give_up_apart(page, out);
        });
    }

    /// Has own memory be given up for operations when more than so many bytes are registered.
    pub(crate) fn keep_within(&self, bytes: u64) {
        self.engine.lock().keep_within(bytes);
    }

    /// What was given up for that since this was last asked.
    pub(crate) fn take_crowded_out(&self) -> CrowdedOut {
        self.engine.lock().take_crowded_out()
    }

    /// Moves firehoses to memory of a peer that is expected to be needed soon. `whole`: the key of what it is part of.
    pub(crate) fn attach(&self, peer: Rank, whole: u64, place: (u64, u64)) -> Attached {
        let mut attached = Attached::No;
        self.step(&[], |engine, out| {
            let there = (peer.0, Region(whole));
            // What is granted for writes may be read.
            let outcome = engine.attach(there, place, Direction::Put, out);
            attached = outcome.unwrap_or(Attached::No);
        });
        attached
    }

    /// How the firehoses on memory of a peer stand.
    pub(crate) fn attached(&self, peer: Rank, place: (u64, u64)) -> Attached {
        (self.engine.lock()).attached(peer.0, place, Direction::Put)
    }

    /// Gives the firehoses on memory of a peer back, those in use when they are not any more.
    pub(crate) fn detach(&self, peer: Rank, place: (u64, u64)) -> Detached {
        let mut outcome = Detached::Nothing;
        self.step(&[], |engine, out| {
            outcome = (engine.detach(peer.0, place, out)).unwrap_or(Detached::Nothing);
        });
        outcome
    }

    /// The bounds of what is registered together with own memory, if all of that is.
    pub(crate) fn registered_with(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        self.engine.lock().registered_with(addr, len)
    }

    /// Whether own memory is not registered, and not about to be.
    pub(crate) fn is_gone(&self, addr: u64, len: u64) -> bool {
        self.engine.lock().is_gone(addr, len)
    }

    /// Notes from now on how many bytes are registered.
    pub(crate) fn keep_series(&self) {
        let _ = self.series.set(Series::default());
    }

    /// How many bytes were registered so far, and from when on; empty if that was not kept.
    pub(crate) fn series(&self) -> Vec<(Duration, u64)> {
        let series = self.series.get();
        series.map_or_else(Vec::new, |it| it.0.lock().clone())
    }

    /// So many bytes more are registered, or less.
    pub(super) fn changed_by(&self, bytes: i64) {
        if let Some(series) = self.series.get() {
            let now = self.progress.conduit().now();
            let mut points = series.0.lock();
            let before = points.last().map_or(0, |it| it.1);
            points.push((now, before.saturating_add_signed(bytes)));
        }
    }
}
