//! Own memory outside operations: registered for good, held for a transfer, foreseen, evicted, or
//! taken back from peers.

use super::{CrowdedOut, Engine, GivenUp};
use crate::{Decisions, Error, Run, Use, strategy::LocalPolicy};

impl Engine {
    /// Registers memory for good, all of it or none; [`Action::Pinned`](crate::Action::Pinned) returns the outcome.
    pub fn pin(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.local.pin(id, run, out);
        self.pump(out);
    }

    /// Registers memory for good for the rank's own operations, all of it or none, within
    /// MAXVICTIM. [`Action::Pinned`](crate::Action::Pinned) returns the outcome.
    pub fn keep(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.local.keep(id, run, out);
        self.pump(out);
    }

    /// Reserves a few buckets of MAXVICTIM for [`hold_own`](Self::hold_own), which then finds room
    /// whatever operations are in flight. Returns false if there are too few.
    pub fn reserve_for_own(&mut self) -> bool {
        self.local.set_reserve()
    }

    /// Holds own memory that [`Hot::hit_local`](crate::Hot::hit_local) did not find, for the own NIC to change it.
    /// [`Action::Pinned`](crate::Action::Pinned) returns its key, or a lack of room.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn hold_own(
        &mut self,
        id: u64,
        addr: u64,
        len: u64,
        out: &mut Decisions,
    ) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, len)?;
        self.local.hold_own(id, run, out);
        self.pump(out);
        Ok(())
    }

    /// Gives back the memory that [`hold_own`](Self::hold_own) or [`hold`](Self::hold) held. It
    /// stays registered as a victim. Transient memory is deregistered instead, at once if no
    /// operation uses a part of it.
    pub fn release_own(&mut self, id: u64, out: &mut Decisions) {
        self.local.release_own(id, out);
        self.pump(out);
    }

    /// Holds own memory registered for a transfer outside [`begin`](Self::begin), such as one by a
    /// peer that is told the keys. [`Action::Pinned`](crate::Action::Pinned) returns the keys, or a lack of room. With
    /// `lasts`, the memory stays what it is until [`revoke`](Self::revoke).
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn hold(
        &mut self,
        id: u64,
        (addr, len): (u64, u64),
        (used, lasts): (Use, bool),
        out: &mut Decisions,
    ) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, len)?;
        // Some strategies keep no own memory registered beyond its use.
        let lasts = lasts && self.common.policy().local != LocalPolicy::PerOperation;
        self.local.hold_for(id, run, (used, lasts), out);
        self.pump(out);
        Ok(())
    }

    /// Registers own memory that is expected to be needed soon, where it is not registered yet.
    /// [`Action::Pinned`](crate::Action::Pinned) returns the outcome. Nothing holds the memory then: it is a victim until
    /// an operation uses it.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn foresee(
        &mut self,
        id: u64,
        addr: u64,
        len: u64,
        out: &mut Decisions,
    ) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, len)?;
        self.local.foresee(id, run, out);
        self.pump(out);
        Ok(())
    }

    /// Registers own memory in the background, before its first use, as [`foresee`](Self::foresee) does. Nothing is
    /// evicted for it, and with all else that is registered it fits into M. Returns false if there is no room, or if the
    /// strategy keeps no own memory registered. Then there is no answer.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn register_ahead(
        &mut self,
        id: u64,
        addr: u64,
        len: u64,
        out: &mut Decisions,
    ) -> Result<bool, Error> {
        let run = self.limits().geometry.span(addr, len)?;
        if self.common.policy().local != LocalPolicy::Cached {
            return Ok(false);
        }
        let begun = self.local.register_ahead(id, run, out);
        self.pump(out);
        Ok(begun)
    }

    /// Evicts own memory that is not expected to be needed soon: the extents that lie within it and
    /// are not in use. An extent that reaches beyond it was registered for others, and stays.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn give_up(&mut self, addr: u64, len: u64, out: &mut Decisions) -> Result<GivenUp, Error> {
        let run = self.limits().geometry.span(addr, len)?;
        let given_up = self.local.give_up_unused(run, out);
        self.pump(out);
        Ok(given_up)
    }

    /// Sets the bucket of an address apart, because two buffers share it; or ends that. A bucket
    /// that is apart is registered by itself, and stays when its neighbours are
    /// [evicted](Self::give_up). At most 1,024 buckets can be apart. A present registration stays
    /// as it is until it is evicted.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn set_apart(&mut self, addr: u64, is_apart: bool) -> Result<(), Error> {
        let run = self.limits().geometry.span(addr, 1)?;
        self.local.set_apart(run.first, is_apart);
        Ok(())
    }

    /// Evicts the bucket of an address that is [apart](Self::set_apart) and registered by itself,
    /// unless it is in use. The bucket stays apart.
    ///
    /// # Errors
    /// [`Error::Overflow`].
    pub fn give_up_apart(&mut self, addr: u64, out: &mut Decisions) -> Result<GivenUp, Error> {
        let run = self.limits().geometry.span(addr, 1)?;
        let given_up = self.local.give_up_apart(run, out);
        self.pump(out);
        Ok(given_up)
    }

    /// BucketLimits the registered own memory to `bytes`: operations evict unused memory as soon as more
    /// is registered. The initial value is `u64::MAX`, no limit of this kind.
    pub fn keep_within(&mut self, bytes: u64) {
        let bucket = self.limits().geometry.bucket();
        self.local.keep_within(bytes / bucket);
    }

    /// Returns the memory evicted for that limit since the last call.
    pub fn take_crowded_out(&mut self) -> CrowdedOut {
        self.local.take_crowded_out()
    }

    /// Returns the own memory, as address and length, that is registered together with some bytes.
    /// That is the extent with all their buckets, or these buckets where it takes several. `None`
    /// if not all of it is registered.
    pub fn registered_with(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let geometry = self.limits().geometry;
        let run = geometry.span(addr, len).ok()?;
        let reach = self.local.covered(run)?;
        let start = geometry.address_of(reach.first);
        Some((start, geometry.address_of(reach.end()) - start))
    }

    /// Returns true if own memory is not registered as a whole, and no part of it is about to be
    /// registered or evicted.
    pub fn is_gone(&self, addr: u64, len: u64) -> bool {
        let run = self.limits().geometry.span(addr, len);
        run.is_ok_and(|run| self.local.covered(run).is_none() && !self.local.is_changing(run))
    }

    /// Takes own memory back. When [`Action::Revoked`](crate::Action::Revoked) names `id`, no peer holds a bucket of the
    /// run and none is registered. `id` is the driver's choice, not in use.
    pub fn revoke(&mut self, id: u64, run: Run, out: &mut Decisions) {
        let (_, target, cx) = &mut self.rooms(out);
        target.revoke(id, run, cx);
        self.pump(out);
    }

    /// Takes own memory back because it was unmapped, moved or emptied. When this returns, no operation hits it, and the
    /// messages to peers that reach it are decided. [`Hot::is_unsettled`](crate::Hot::is_unsettled) stays true until
    /// these peers have answered. Each run has a name of the driver's choice, not in use. `count` is the number of
    /// [changes](crate::Hot::change_begins) that the engine knows of by this call.
    pub fn changed(&mut self, runs: &[(u64, Run)], count: u32, out: &mut Decisions) {
        let (_, target, cx) = &mut self.rooms(out);
        for (id, run) in runs {
            target.revoke_changed(*id, *run, cx);
        }
        self.pump(out);
        self.hot.changes_known(count);
    }

    /// Ends the registrations of own memory whose changes are heard from now on, and were not before. As
    /// [`changed`](Self::changed), but memory that is kept for good stays. `name` gives names, as there.
    pub fn unheard(&mut self, run: Run, name: &mut dyn FnMut() -> u64, out: &mut Decisions) {
        let (_, target, cx) = &mut self.rooms(out);
        target.revoke_unheard(run, name, cx);
        self.pump(out);
    }
}
