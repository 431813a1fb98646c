//! Own memory that a helper registers before it is needed and evicts afterwards, under the engine's
//! rules.

#![cfg_attr(
    not(feature = "foresight"),
    expect(dead_code, reason = "only the strategy `foresight` reads it")
)]

use std::{sync::Arc, time::Duration};

use hydrant_pinning::{
    AccessVerdict, Attached, CrowdedOut, Decisions, Detached, Direction, Engine, EngineMessage,
    GivenUp, RegionNumber, Run, wire::Move,
};
use parking_lot::Mutex;

use super::Registration;
use crate::{
    Rank,
    uses::{MemoryState, MemoryUse, UseKind, Uses, site_or_peer},
};

/// The outcome of a registration ahead of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Foreseen {
    Registered,
    /// There is no room, or the memory cannot be registered.
    Refused,
    /// Another thread registers it. [`take_foreseen`](Registration::take_foreseen) tells the outcome by
    /// this number.
    InFlight(u64),
}

/// The registered bytes, and the times of their changes.
#[derive(Default)]
pub(super) struct RegisteredSeries(Mutex<Vec<(Duration, u64)>>);

impl Registration {
    /// Reports all uses of own memory from now on. Called at most once, when the job is composed.
    pub(crate) fn tell_uses_to(&self, uses: Arc<dyn Uses>) {
        let set = self.uses.set(uses);
        debug_assert!(set.is_ok(), "uses have two receivers");
    }

    /// Returns the receiver of uses, if there is one.
    #[inline]
    pub(crate) fn uses(&self) -> Option<&dyn Uses> {
        self.uses.get().map(|it| &**it)
    }

    /// Returns the state of own memory that an operation is about to use.
    pub(crate) fn state_of_own(&self, addr: u64, len: u64) -> MemoryState {
        if self.hot.is_registered(addr, len) {
            MemoryState::Registered
        } else {
            MemoryState::Absent
        }
    }

    /// Returns the use of own memory that a peer's message asks for, if uses are reported.
    pub(super) fn use_by_peer(
        &self,
        peer: Rank,
        message: &EngineMessage,
        verdict: AccessVerdict,
    ) -> Option<MemoryUse> {
        self.uses()?;
        let region = match message {
            EngineMessage::Move(Move { region, .. }) | EngineMessage::Pull { region, .. } => {
                region.0
            }
            _ => return None,
        };
        if self.lent.suppresses_uses(region) {
            return None;
        }
        let geometry = self.geometry;
        let (kind, addr, len) = match message {
            EngineMessage::Move(Move { write, needs, .. }) => {
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
            EngineMessage::Pull { from, to, .. } => {
                let len = to
                    .iter()
                    .fold(0_u64, |sum, place| sum.saturating_add(place.len));
                (UseKind::Read, *from, len)
            }
            _ => return None,
        };
        let state = match verdict {
            AccessVerdict::Fine => self.state_of_own(addr, len),
            AccessVerdict::Copy | AccessVerdict::Refused(_) => MemoryState::Elsewhere,
        };
        Some(MemoryUse {
            kind,
            addr,
            len,
            state,
            begun: self.progress.conduit().now(),
            site: site_or_peer(peer),
        })
    }

    /// Suppresses reports of uses of a loan, because the caller reports them.
    pub(crate) fn say_nothing_of(&self, key: hydrant_conduit::Key) {
        if self.uses().is_some() {
            self.lent.suppress_uses(key.0);
        }
    }

    /// Registers own memory that is expected to be needed soon.
    pub(crate) fn foresee(&self, addr: u64, len: u64) -> Foreseen {
        self.register_early(addr, len, |engine, id, out| {
            engine.foresee(id, addr, len, out).is_ok()
        })
    }

    /// Registers own memory before its use. `begin` has the engine begin with it, and returns whether it did.
    pub(super) fn register_early(
        &self,
        addr: u64,
        len: u64,
        begin: impl FnOnce(&mut Engine, u64, &mut Decisions) -> bool,
    ) -> Foreseen {
        let judged = self.lent.ends();
        let geometry = self.geometry;
        let may_stay = |run: Run| {
            let known = self.lent.persistent_until(geometry, run);
            let (start, end) = (geometry.address_of(known), geometry.address_of(run.end()));
            known == run.end() || self.is_heard((start, end - start))
        };
        // Transient memory is not kept registered beyond its use.
        if !geometry.span(addr, len).is_ok_and(may_stay) {
            return Foreseen::Refused;
        }
        let id = self.name();
        let mut begun = false;
        self.step(&[], |engine, out| {
            // As for requests of peers: memory is first withdrawn and then revoked by the engine,
            // so one of the two is seen.
            if self.lent.ends() == judged {
                begun = begin(engine, id, out);
            }
        });
        if !begun {
            return Foreseen::Refused;
        }
        match self.take_foreseen(id) {
            Some(true) => Foreseen::Registered,
            Some(false) => Foreseen::Refused,
            None => Foreseen::InFlight(id),
        }
    }

    /// Takes the outcome of a registration in flight, once it is known: `true` if the memory was
    /// registered.
    pub(crate) fn take_foreseen(&self, id: u64) -> Option<bool> {
        self.pinned.lock().remove(&id).map(|it| it.is_ok())
    }

    /// Evicts the registrations of own memory that are not in use.
    pub(crate) fn evict(&self, addr: u64, len: u64) -> GivenUp {
        let mut outcome = GivenUp::Nothing;
        self.step(&[], |engine, out| {
            outcome = engine.give_up(addr, len, out).unwrap_or(GivenUp::Nothing);
        });
        outcome
    }

    /// Sets whether a page that two buffers share is registered by itself.
    pub(crate) fn set_apart(&self, page: u64, is_apart: bool) {
        // An address beyond all pages belongs to no buffer.
        let _ = self.engine.lock().set_apart(page, is_apart);
    }

    /// Evicts a page that is [apart](Self::set_apart), unless it is in use.
    pub(crate) fn evict_apart(&self, page: u64) {
        self.step(&[], |engine, out| {
            // As above.
            let _ = engine.give_up_apart(page, out);
        });
    }

    /// Sets the registered bytes above which operations evict own memory.
    pub(crate) fn keep_within(&self, bytes: u64) {
        self.engine.lock().keep_within(bytes);
    }

    /// Takes the list of what was evicted for that since the last call.
    pub(crate) fn take_crowded_out(&self) -> CrowdedOut {
        self.engine.lock().take_crowded_out()
    }

    /// Moves firehoses to memory of a peer that is expected to be needed soon. `key`: the key of
    /// the region that holds it.
    pub(crate) fn attach(&self, peer: Rank, key: u64, place: (u64, u64)) -> Attached {
        let mut attached = Attached::No;
        self.step(&[], |engine, out| {
            let there = (peer.0, RegionNumber(key));
            // A grant for writes also allows reads.
            let outcome = engine.attach(there, place, Direction::Put, out);
            attached = outcome.unwrap_or(Attached::No);
        });
        attached
    }

    /// Returns the state of the firehoses on memory of a peer.
    pub(crate) fn attached(&self, peer: Rank, place: (u64, u64)) -> Attached {
        (self.engine.lock()).attached(peer.0, place, Direction::Put)
    }

    /// Releases the firehoses on memory of a peer. Those in use are released after their use.
    pub(crate) fn detach(&self, peer: Rank, place: (u64, u64)) -> Detached {
        let mut outcome = Detached::Nothing;
        self.step(&[], |engine, out| {
            outcome = (engine.detach(peer.0, place, out)).unwrap_or(Detached::Nothing);
        });
        outcome
    }

    /// Returns the bounds of the extents that hold own memory, if all of it is registered.
    pub(crate) fn registered_with(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        self.engine.lock().registered_with(addr, len)
    }

    /// Returns whether own memory is neither registered nor about to be.
    pub(crate) fn is_gone(&self, addr: u64, len: u64) -> bool {
        self.engine.lock().is_gone(addr, len)
    }

    /// Starts to record the registered bytes over time.
    pub(crate) fn keep_series(&self) {
        let _ = self.series.set(RegisteredSeries::default());
    }

    /// Returns the registered bytes so far, each with the time of the change. The list is empty if
    /// they were not recorded.
    pub(crate) fn series(&self) -> Vec<(Duration, u64)> {
        let series = self.series.get();
        series.map_or_else(Vec::new, |it| it.0.lock().clone())
    }

    /// Records a change of the registered bytes.
    pub(super) fn record_change(&self, bytes: i64) {
        if let Some(series) = self.series.get() {
            let now = self.progress.conduit().now();
            let mut points = series.0.lock();
            let before = points.last().map_or(0, |it| it.1);
            points.push((now, before.saturating_add_signed(bytes)));
        }
    }
}
