//! The conduit of a simulated rank: the cost and the effect of each call.

#![allow(unsafe_code)] // implements the contract's unsafe methods

use std::{sync::Arc, time::Duration};

use hydrant_conduit::{
    Access, AccessKind, Caps, Clock, Conduit, Error, Footprint, Key, Membership, Message,
    OwnedMessage, Permission, Posted, Rank, Segments, Sent, Sink, Sleep, Sleeper, Standing, Ticket,
    WakeWord, Window,
};
use hydrant_pinning::Use;

use crate::{
    Statistics, World,
    call::SimCall,
    deliver,
    memory::{PAGE, Place, take},
    onesided,
    registry::SimExtent,
    time::duration,
    transfer::{NicTransfer, OneSided, Payload},
    turns::News,
};

/// One rank of a [`World`].
pub struct Sim {
    pub(crate) world: Arc<World>,
    pub(crate) rank: Rank,
}

impl Sim {
    pub(crate) fn new(world: Arc<World>, rank: Rank) -> Self {
        Self { world, rank }
    }

    /// The machine that the rank belongs to.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Counts of this rank's work so far.
    pub fn statistics(&self) -> Statistics {
        self.world.statistics(self.rank)
    }

    fn call(&self) -> SimCall<'_> {
        self.world.call(self.rank)
    }

    fn check_segment_range(&self, offset: usize, len: usize) -> Result<(), Error> {
        (self.world.fixed.segments[self.rank.index()]).check(self.rank, offset, len)
    }

    fn reachable(&self, peer: Rank) -> Result<usize, Error> {
        let fixed = &self.world.fixed;
        let there = peer.index() < fixed.segments.len() && fixed.present(peer.index());
        there.then_some(peer.index()).ok_or(Error::PeerLost(peer))
    }

    /// Fails unless the local key covers the place.
    fn check_local_key(
        &self,
        call: &SimCall<'_>,
        key: Key,
        place: Place,
        used: Use,
    ) -> Result<(), Error> {
        if key == Key::ANY {
            return Ok(());
        }
        let registry = &call.ranks[self.rank.index()].registry;
        (registry.open(key.0, place.addr, place.len, used).map(drop))
            .map_err(|refused| refused.error(self.rank, key, place.addr, place.len))
    }

    /// Writes own memory to a peer's.
    ///
    /// # Safety
    /// As [`Conduit::post`].
    unsafe fn put(&self, access: &Access) -> Result<Posted, Error> {
        let &Access {
            peer, remote, len, ..
        } = access;
        let (from, key) = (access.local.addr, access.local.key);
        let fixed = &self.world.fixed;
        let mut call = self.call();
        let target = self.reachable(peer)?;
        // SAFETY: `place` is only a source of the write; no data is stored into it.
        let place = unsafe { Place::new(from.addr() as u64, len as u64) };
        // SAFETY: under `Key::ANY` the peer tolerates the change of its memory, by condition 2 of
        // `post`.
        let there = unsafe { Place::new(remote.offset, len as u64) };
        let anywhere = (remote.key == Key::ANY).then_some(there);
        if anywhere.is_some() && peer == self.rank {
            // SAFETY: `len` bytes at `from` are readable, by condition 1 of `post`.
            let data = unsafe { take(from, len) };
            return onesided::store(fixed, target, there, &data, peer).map(|()| Posted::Done);
        }
        self.check_local_key(&call, key, place, Use::Read)?;
        call.charge(fixed.profile.host().post.0);
        let own = call.own();
        own.statistics.writes += 1;
        own.statistics.bytes += len as u64;
        let transfer = NicTransfer {
            from: self.rank.index(),
            to: target,
            bytes: len,
            payload: Payload::Write(OneSided {
                remote,
                anywhere,
                local: place,
                local_key: key,
                // SAFETY: `len` bytes at `from` are readable, by condition 1 of `post`.
                data: unsafe { take(from, len) },
                outcome: Ok(()),
                paged: false,
            }),
        };
        let clock = call.clock();
        Ok(Posted::Pending(Ticket(call.post(transfer, clock))))
    }

    /// Reads a peer's memory into the caller's.
    ///
    /// # Safety
    /// As [`Conduit::post`].
    unsafe fn get(&self, access: &Access) -> Result<Posted, Error> {
        let &Access {
            peer, remote, len, ..
        } = access;
        let (to, key) = (access.local.addr, access.local.key);
        let fixed = &self.world.fixed;
        let mut call = self.call();
        let target = self.reachable(peer)?;
        // SAFETY: nothing else uses `to` until the operation has ended, by condition 1 of `post`.
        let place = unsafe { Place::new(to.addr() as u64, len as u64) };
        // SAFETY: `there` is only a source of the read; no data is stored into it.
        let there = unsafe { Place::new(remote.offset, len as u64) };
        let anywhere = (remote.key == Key::ANY).then_some(there);
        if anywhere.is_some() && peer == self.rank {
            let mut data = vec![0; len];
            onesided::load(fixed, target, there, &mut data, peer)?;
            return onesided::store(fixed, target, place, &data, peer).map(|()| Posted::Done);
        }
        if !fixed.caps.reads {
            return Err(Error::Exhausted {
                what: "one-sided reads",
                limit: 0,
                remedy: "this NIC only writes: ask the peer for a write",
            });
        }
        self.check_local_key(&call, key, place, Use::Write)?;
        call.charge(fixed.profile.host().post.0);
        let own = call.own();
        own.statistics.reads += 1;
        own.statistics.bytes += len as u64;
        let transfer = NicTransfer {
            from: self.rank.index(),
            to: target,
            bytes: 0,
            payload: Payload::ReadRequest(OneSided {
                remote,
                anywhere,
                local: place,
                local_key: key,
                data: Box::default(),
                outcome: Ok(()),
                paged: false,
            }),
        };
        let clock = call.clock();
        Ok(Posted::Pending(Ticket(call.post(transfer, clock))))
    }
}

// SAFETY: 1. A write's data is copied when it is posted. A read's data is stored when its transfer
//            lands, and that ends the transfer under its number. `end_transfers` ends the
//            transfers of a rank that is over.
//         2. Data lands only where the registry of its owner opens a key for it; opening checks
//            range and permission. Keys are counted up, and a removed key opens nothing.
//         3. `window` is the rank's segment, and `check_segment_range` checks the range to decommit.
//         4. They come from the fixed part of the world.
unsafe impl Conduit for Sim {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world.fixed.segments.len() as u32
    }

    fn caps(&self) -> &Caps {
        &self.world.fixed.caps
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            per_rank: PAGE,
            per_pair: 0,
        }
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        permission: Permission,
    ) -> Result<Key, Error> {
        let nic = self.world.fixed.profile.nic();
        let costs = self.world.fixed.profile.registration();
        // SAFETY: until the deregistration the memory stays allocated, and only this conduit and
        // shared-memory accesses touch it, by the caller's conditions 1 and 2. Deregistration
        // removes the place from the registry.
        let place = unsafe { Place::new(addr.addr() as u64, len as u64) };
        let (_, pages) = place.pages();
        let bytes = pages as u64 * PAGE as u64;
        let mut call = self.call();
        self.reachable(self.rank)?;
        let own = call.own();
        let exhausted = |what, limit| Error::Exhausted {
            what,
            limit,
            remedy: "a figure of the profile's [nic]",
        };
        if let Some(limit) = nic.max_extents
            && own.registry.len() as u64 >= limit
        {
            return Err(exhausted("extents registered at once", limit));
        }
        if bytes > nic.max_bytes - own.statistics.registered.min(nic.max_bytes) {
            return Err(exhausted("bytes registered at once", nic.max_bytes));
        }
        let time = costs.register_op.0 + costs.register_page.times(pages);
        call.charge(time);
        call.own().registering += time;
        if !place.pin(permission) {
            return Err(Error::BadAddress {
                peer: self.rank,
                addr: place.addr,
                len: place.len,
            });
        }
        let own = call.own();
        own.statistics.registrations += 1;
        own.statistics.registered += bytes;
        let peak = &mut own.statistics.registered_peak;
        *peak = own.statistics.registered.max(*peak);
        Ok(Key(own.registry.insert(SimExtent { place, permission })))
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        let costs = self.world.fixed.profile.registration();
        let mut call = self.call();
        // Data that arrives earlier still lands.
        call.sync();
        let own = call.own();
        let Some(extent) = own.registry.remove(key.0) else {
            return Err(Error::Revoked {
                peer: self.rank,
                key: key.0,
            });
        };
        let (_, pages) = extent.place.pages();
        own.statistics.deregistrations += 1;
        own.statistics.registered -= pages as u64 * PAGE as u64;
        let time = costs.deregister_op.0 + costs.deregister_page.times(pages);
        own.registering += time;
        call.charge(time);
        Ok(())
    }

    unsafe fn post(&self, access: &Access) -> Result<Posted, Error> {
        match access.kind {
            // SAFETY: 1. and 2. The caller's conditions 1 and 2.
            AccessKind::Put => unsafe { self.put(access) },
            // SAFETY: 1. and 2. The caller's conditions 1 and 2.
            AccessKind::Get => unsafe { self.get(access) },
            AccessKind::Atomic(_) => Err(self.world.fixed.caps.no_atomics()),
        }
    }

    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        let fixed = &self.world.fixed;
        fixed.caps.check(message)?;
        let mut call = self.call();
        let (rank, mut target) = (self.rank.index(), self.reachable(peer)?);
        if !call.has_room(fixed, rank, target) {
            // Handled requests may have made room by now.
            call.charge(fixed.profile.host().poll.0);
            call.sync();
            target = self.reachable(peer)?;
            if !call.has_room(fixed, rank, target) {
                return Ok(Sent::Full);
            }
        }
        call.charge(deliver::send_cost(fixed, message));
        let clock = call.clock();
        call.send_request(rank, target, OwnedMessage::new(message), clock);
        Ok(Sent::Yes)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        let mut call = self.call();
        call.charge(self.world.fixed.profile.host().poll.0);
        call.sync_unless_fresh();
        let pair = call.pair(self.rank.index(), peer.index());
        (pair.settled, pair.sent)
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let mut call = self.call();
        call.charge(self.world.fixed.profile.host().poll.0);
        call.sync_unless_fresh();
        call.deliver(sink)
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let mut call = self.call();
        call.charge(self.world.fixed.profile.host().poll.0);
        call.sync();
        call.await_poller();
        call.deliver(sink)
    }
}

impl Segments for Sim {
    fn window(&self, peer: Rank) -> Option<&Window> {
        (peer == self.rank).then(|| &self.world.fixed.segments[peer.index()].window)
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        // Memory that was never committed, or was decommitted, is zero and becomes resident on
        // touch.
        self.check_segment_range(offset, len)
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        self.check_segment_range(offset, len).map(|()| 0)
    }

    fn decommit(&self, offset: usize, len: usize) {
        if self.check_segment_range(offset, len).is_ok() {
            self.world.fixed.segments[self.rank.index()].discard(offset, len);
        }
    }
}

impl Membership for Sim {
    fn standing(&self, peer: Rank) -> Standing {
        self.world.fixed.standings.of(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        self.world.fixed.standings.first_lost()
    }

    fn changes(&self) -> u64 {
        self.world.fixed.standings.changes()
    }

    fn come_to_end(&self, come: bool) {
        let fixed = &self.world.fixed;
        if self.world.is_over(self.rank) {
            return;
        }
        let mut call = self.call();
        call.sync();
        call.come_to_end(fixed, self.rank.index(), come);
    }

    fn has_come_to_end(&self, peer: Rank) -> bool {
        self.world.fixed.standings.has_come_to_end(peer)
    }

    fn endings(&self) -> u64 {
        self.world.fixed.standings.endings()
    }

    fn leave(&self, orderly: bool) {
        let fixed = &self.world.fixed;
        if self.world.is_over(self.rank) {
            return;
        }
        let mut call = self.call();
        call.sync();
        call.end(fixed, self.rank.index(), orderly);
    }
}

impl Sleep for Sim {
    fn wake_word(&self, peer: Rank) -> Option<&WakeWord> {
        (peer == self.rank).then(|| &self.world.fixed.segments[peer.index()].wake_word)
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let mut call = self.call();
        self.sleep(&mut call, sleeper, timeout, ready);
    }

    fn notify(&self, peer: Rank) {
        let mut call = self.call();
        call.sync();
        call.notify(peer.index(), News::Ring);
    }

    fn wake(&self, peer: Rank) {
        let mut call = self.call();
        call.sync();
        call.notify(peer.index(), News::Wake);
    }
}

impl Clock for Sim {
    fn now(&self) -> Duration {
        duration(self.call().clock())
    }

    fn compute(&self, operations: u64, sink: &mut dyn Sink) {
        let mut call = self.call();
        let operation = self.world.fixed.profile.host().operation;
        call.compute(operation.0.saturating_mul(operations), sink);
    }

    fn poll_memory(&self) {
        let mut call = self.call();
        call.charge(self.world.fixed.profile.host().poll.0);
        call.sync();
    }

    fn take_part(&self) {
        self.world.take_part(self.rank);
    }

    fn copied(&self, bytes: usize) {
        let time = self.world.fixed.profile.host().copying(bytes);
        self.call().charge(time);
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // A rank that did not leave counts as lost to its peers.
        if self.world.drop_handle(self.rank)
            && !self.world.is_over(self.rank)
            && !self.world.end_early(self.rank)
        {
            self.leave(false);
        }
    }
}
