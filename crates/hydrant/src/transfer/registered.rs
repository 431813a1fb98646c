//! Puts and gets where memory must be registered: hits, and misses for the engine.

#![allow(unsafe_code)] // lends borrowed memory to the conduit until the operation is complete

use hydrant_conduit::{Access, AccessKind, Key, Local, Posted, Remote, Ticket};
use hydrant_pinning::{
    Advice, Attached, Direction, EngineOperation, Hit, KeptHit, OwnMemory, RegionNumber, Strategy,
    TimedHit,
};

use super::{OperationHolds, Transfer, bounce::BounceSlot};
use crate::{
    Error, Rank, Result,
    counters::Count,
    progress::may_wait,
    registration::{Lease, Registration},
    uses::{MemoryState, MemoryUse, RemoteUse, UseKind, is_unreported, site_or},
};

/// The keys of accesses that need no registration.
const ANYWHERE: (u64, u64) = (Key::ANY.0, Key::ANY.0);

/// The most bytes whose copy to or from a slot takes no longer than the question whether memory changes: a system call.
const CHEAP_COPY: usize = 4 << 10;

/// Returns the direction of the data.
#[inline(always)]
fn direction(access: &Access) -> Direction {
    match access.kind {
        AccessKind::Put => Direction::Put,
        AccessKind::Get | AccessKind::Atomic(_) => Direction::Get,
    }
}

/// The own side of an operation.
struct OwnSide {
    memory: OwnMemory,
    /// The address of its data, in the buffer or in a slot.
    at: *mut u8,
    bounced: Option<BounceSlot>,
}

/// The state of an operation after its begin.
pub(super) enum BeginOutcome {
    /// The operation is complete.
    Done,
    /// The conduit has the operation.
    Posted(Ticket),
    /// The engine has the operation.
    AtEngine(Ticket),
}

/// The result of the fast path. It is small, because every access checks it.
pub(super) enum FastAttempt {
    /// The access is complete.
    Done,
    /// The conduit has the access.
    Posted(Ticket),
    /// The access failed, or was refused at once.
    Failed(Box<Error>),
    /// The fast path does not apply, and nothing was done.
    NotTaken,
}

impl OwnSide {
    /// Returns whether a posted put frees its source at once: the data is in a slot, or inline.
    fn frees_source(&self, access: &Access) -> bool {
        direction(access) == Direction::Put
            && (self.bounced.is_some() || self.memory == OwnMemory::Inline)
    }
}

impl Transfer {
    /// The fast path: posts an access to symmetric memory of another rank if it is a hit without a
    /// bounce slot. The access is a put, if `PUTS`, else a get.
    /// [`begin_registered`](Self::begin_registered) does all others.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin).
    #[inline(always)] // little enough to keep what it needs in registers
    pub(super) unsafe fn post_fast<const PUTS: bool>(&self, access: Access) -> FastAttempt {
        let Some(registration) = &self.registration else {
            return FastAttempt::NotTaken;
        };
        let Access { peer, len, .. } = access;
        if access.remote.key != Key::SEGMENT || len == 0 || peer == self.progress.rank {
            return FastAttempt::NotTaken;
        }
        let Some(segment) = registration.segment(peer) else {
            return FastAttempt::NotTaken;
        };
        let remote = segment + access.remote.offset;
        let at = access.local.addr;
        let (local, bytes) = (at.expose_provenance() as u64, len as u64);
        let (memory, hit) = if PUTS && len <= registration.inline() {
            (
                OwnMemory::Inline,
                registration.hold_remote(peer, remote, bytes),
            )
        } else if (PUTS || self.reads) && !registration.registers_own() {
            let hit = registration.hold_remote(peer, remote, bytes);
            (OwnMemory::Unregistered, hit)
        } else if (PUTS || self.reads) && registration.lasts(local, bytes) {
            let direction = if PUTS { Direction::Put } else { Direction::Get };
            let hit = registration.hold_both(peer, remote, local, bytes, direction);
            (OwnMemory::Persistent, hit)
        } else {
            return FastAttempt::NotTaken;
        };
        let Some(hit) = hit else {
            return FastAttempt::NotTaken;
        };
        let own = OwnSide {
            memory,
            at,
            bounced: None,
        };
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        match unsafe { self.post_hit(registration, &access, remote, &own, &hit, None) } {
            Ok(BeginOutcome::Done) => FastAttempt::Done,
            Ok(BeginOutcome::Posted(ticket) | BeginOutcome::AtEngine(ticket)) => {
                FastAttempt::Posted(ticket)
            }
            Err(cause) => FastAttempt::Failed(Box::new(cause.into())),
        }
    }

    /// Begins an access where the network needs registered memory.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin).
    pub(super) unsafe fn begin_registered(
        &self,
        registration: &Registration,
        access: &Access,
    ) -> Result<BeginOutcome> {
        let progress = &*self.progress;
        let Access { peer, len, .. } = *access;
        let direction = direction(access);
        if len == 0 {
            progress.tally.one(Count::Indirect);
            return Ok(BeginOutcome::Done);
        }
        if registration.is_unsettled() {
            registration.settle();
        }
        let copied = access.remote.key == Key::ANY && registration.copies_by_address(peer)?;
        // From here on a lease is held until the access is over: every path releases it or passes
        // it on.
        let (remote, lease) = registration.address(peer, access.remote, len as u64)?;
        if peer == progress.rank {
            progress.poll_memory();
        }
        if peer == progress.rank
            || (registration.strategy() == Strategy::Paging && self.nic_moves(direction))
        {
            progress.tally.one(Count::Indirect);
            // SAFETY: 1., 2. The caller's conditions 1 and 2.
            let posted = unsafe { self.post(access, remote, access.local.addr, ANYWHERE) };
            if peer == progress.rank {
                progress.conduit().copied(len);
            }
            return match posted {
                Ok(Posted::Pending(ticket)) => {
                    let along = direction == Direction::Put && len <= registration.inline();
                    self.note_posted(ticket, OperationHolds::new(None, None, lease), along);
                    Ok(BeginOutcome::Posted(ticket))
                }
                over => {
                    registration.let_go(lease);
                    over.map(|_| BeginOutcome::Done).map_err(Error::from)
                }
            };
        }
        // SAFETY: 1., 2. The caller's conditions 1 and 2, until the holds are given back.
        let own = unsafe { self.own_side(registration, access, copied) };
        let local = own.at.expose_provenance() as u64;
        let hit = match own.memory {
            _ if copied || !self.nic_moves(direction) => None,
            OwnMemory::Persistent => {
                registration.hold_both(peer, remote, local, len as u64, direction)
            }
            OwnMemory::Inline | OwnMemory::Unregistered => {
                registration.hold_remote(peer, remote, len as u64)
            }
            OwnMemory::Transient => None,
        };
        if let Some(hit) = hit {
            // SAFETY: 1., 2. The caller's conditions 1 and 2. A slot belongs to this operation
            // until its holds are given back.
            let begun = unsafe { self.post_hit(registration, access, remote, &own, &hit, lease) };
            return begun.map_err(Error::from);
        }
        let is_auto = registration.strategy() == Strategy::Auto;
        let ask = if !copied && is_auto && self.nic_moves(direction) {
            registration.ask(direction, len as u64)
        } else {
            Advice::Engine
        };
        // The engine times hits without a waiter itself, because it knows when they are over.
        if (ask == Advice::Hit || ask == Advice::Time && access.waits)
            && let Some(hit) = registration.hold_unless_crowded(
                peer,
                remote,
                (local, own.memory),
                len as u64,
                direction,
            )
        {
            let timed = match ask {
                Advice::Time => registration.time_hit(peer, direction, len as u64),
                _ => None,
            };
            if ask == Advice::Hit || timed.is_some() {
                // SAFETY: 1., 2. The caller's conditions 1 and 2. A slot belongs to this operation,
                // as above.
                return unsafe {
                    self.post_advised_hit(registration, access, remote, &own, (&hit, timed), lease)
                };
            }
            registration.release(&hit);
        }
        let operation = EngineOperation {
            id: registration.name(),
            peer: peer.0,
            direction,
            local,
            region: RegionNumber(access.remote.key.0),
            remote,
            len: len as u64,
            own: own.memory,
            copied: copied || ask == Advice::Copy,
        };
        match registration.uses().filter(|_| !is_unreported()) {
            None => self.miss(registration, operation, own.bounced, lease),
            Some(uses) => {
                let used = self.own_use(registration, access, &own);
                let remote = uses.wants_reached() && self.nic_moves(direction);
                let remote = remote.then(|| self.remote_use(registration, &operation, access));
                let begun = self.miss(registration, operation, own.bounced, lease);
                uses.used(&used);
                if let Some(remote) = remote.flatten() {
                    uses.reached(&remote);
                }
                begun
            }
        }
    }

    /// Returns the use of own memory by an operation.
    #[cold]
    fn own_use(&self, registration: &Registration, access: &Access, own: &OwnSide) -> MemoryUse {
        let (addr, len) = (access.local.addr.addr() as u64, access.len as u64);
        let stays = own.memory == OwnMemory::Persistent && own.bounced.is_none();
        MemoryUse {
            kind: match direction(access) {
                Direction::Put => UseKind::Put,
                Direction::Get => UseKind::Get,
            },
            addr,
            len,
            state: if stays {
                registration.state_of_own(addr, len)
            } else {
                MemoryState::Elsewhere
            },
            begun: self.progress.conduit().now(),
            site: site_or(access.site),
        }
    }

    /// Returns the use of a peer's memory by an operation, or `None` for memory that may come and
    /// go.
    #[cold]
    fn remote_use(
        &self,
        registration: &Registration,
        operation: &EngineOperation,
        access: &Access,
    ) -> Option<RemoteUse> {
        let place = (operation.remote, operation.len);
        let lasts = access.remote.key != Key::ANY;
        lasts.then(|| RemoteUse {
            kind: match operation.direction {
                Direction::Put => UseKind::Put,
                Direction::Get => UseKind::Get,
            },
            peer: access.peer,
            region: access.remote.key.0,
            addr: operation.remote,
            len: operation.len,
            is_attached: self.is_attached(registration, access.peer, place),
            begun: self.progress.conduit().now(),
            site: site_or(access.site),
        })
    }

    /// Returns whether firehoses are attached to all of a peer's memory range. Polls once if the
    /// grant may have arrived unnoticed.
    fn is_attached(&self, registration: &Registration, peer: Rank, place: (u64, u64)) -> bool {
        let attached = registration.attached(peer, place);
        if attached != Attached::Coming || may_wait("a look for firehoses").is_err() {
            return attached == Attached::All;
        }
        self.progress.make_progress();
        registration.attached(peer, place) == Attached::All
    }

    /// Posts an access with references to both sides.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin), for the memory of the own side.
    #[inline(always)] // into the fast path
    unsafe fn post_hit(
        &self,
        registration: &Registration,
        access: &Access,
        remote: u64,
        own: &OwnSide,
        hit: &Hit<'_>,
        lease: Option<Lease>,
    ) -> Result<BeginOutcome, hydrant_conduit::Error> {
        let progress = &*self.progress;
        if progress.tally.count_hit() {
            registration.request_comparison();
        }
        let keys = (hit.remote_key, hit.local_key);
        let taken = own.frees_source(access);
        let inside = progress.enter();
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        let posted = unsafe { self.post(access, remote, own.at, keys) };
        let is_due =
            access.waits && matches!(posted, Ok(Posted::Done)) && inside.is_due(access.len);
        drop(inside);
        match posted {
            Ok(Posted::Pending(ticket)) => {
                self.keep_hit(ticket, hit.keep(), own.bounced, lease, taken);
                Ok(BeginOutcome::Posted(ticket))
            }
            Ok(Posted::Done) => {
                self.give_back_hit(registration, hit, own.bounced, true);
                registration.let_go(lease);
                if is_due && !progress.virtual_time {
                    progress.make_progress();
                }
                Ok(BeginOutcome::Done)
            }
            Err(cause) => {
                self.give_back_hit(registration, hit, own.bounced, false);
                registration.let_go(lease);
                Err(cause)
            }
        }
    }

    /// Keeps the references of a posted hit until its ticket ends. Not inlined, because most hits
    /// complete at once.
    #[inline(never)]
    fn keep_hit(
        &self,
        ticket: Ticket,
        hit: KeptHit,
        bounced: Option<BounceSlot>,
        lease: Option<Lease>,
        source_free: bool,
    ) {
        self.note_posted(
            ticket,
            OperationHolds::new(Some(hit), bounced, lease),
            source_free,
        );
    }

    /// As [`post_hit`](Self::post_hit), for an operation that needed the engine's advice, and may
    /// be timed.
    ///
    /// # Safety
    /// 1., 2. As [`post_hit`](Self::post_hit).
    #[cold]
    unsafe fn post_advised_hit(
        &self,
        registration: &Registration,
        access: &Access,
        remote: u64,
        own: &OwnSide,
        (hit, timed): (&Hit<'_>, Option<TimedHit>),
        lease: Option<Lease>,
    ) -> Result<BeginOutcome> {
        let now = || self.progress.conduit().now();
        let began = timed.map(|timed| (timed, now()));
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        let begun = unsafe { self.post_hit(registration, access, remote, own, hit, lease)? };
        let Some((timed, began)) = began else {
            return Ok(begun);
        };
        let begun = match begun {
            // The caller of a timed operation waits for it in any case.
            BeginOutcome::Posted(ticket) => {
                self.finish(Posted::Pending(ticket))?;
                BeginOutcome::Done
            }
            begun => begun,
        };
        registration.record_hit_time(timed, now().saturating_sub(began));
        Ok(begun)
    }

    /// Hands an operation to the engine. The caller keeps its own memory as for
    /// [`begin`](Self::begin).
    #[cold]
    fn miss(
        &self,
        registration: &Registration,
        operation: EngineOperation,
        bounced: Option<BounceSlot>,
        lease: Option<Lease>,
    ) -> Result<BeginOutcome> {
        (self.progress.tally).add_each([(Count::Indirect, 1), (Count::Misses, 1)]);
        let EngineOperation {
            peer, remote, len, ..
        } = operation;
        let ticket = Registration::ticket(operation.id);
        let source_free = operation.direction == Direction::Put && bounced.is_some();
        self.note_posted(
            ticket,
            OperationHolds::new(None, bounced, lease),
            source_free,
        );
        let inside = self.progress.enter();
        let begun = registration.begin(operation);
        drop(inside);
        self.poll_for_answers(len as usize);
        if let Err(cause) = begun {
            if let Some(held) = self.in_flight.forget(ticket) {
                self.give_back(held, false);
            }
            return Err(match cause {
                // The range exceeds the address space.
                hydrant_pinning::Error::Overflow { addr, len } if addr == remote => {
                    Error::from(hydrant_conduit::Error::BadAddress {
                        peer: Rank(peer),
                        addr,
                        len,
                    })
                }
                cause => cause.into(),
            });
        }
        Ok(BeginOutcome::AtEngine(ticket))
    }

    /// Polls now and then for the peers' answers, on behalf of a caller that begins one operation
    /// after the other. Answers wait for room here, and a rank that takes none is expelled.
    fn poll_for_answers(&self, len: usize) {
        let takes = !self.progress.virtual_time && may_wait("taking answers").is_ok();
        if takes && self.progress.is_due(len) {
            self.progress.make_progress();
        }
    }

    /// Returns the own side of an operation. Its data goes through a bounce slot if that costs less
    /// than registering the buffer.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin), until the slot is given back.
    #[inline]
    unsafe fn own_side(
        &self,
        registration: &Registration,
        access: &Access,
        copied: bool,
    ) -> OwnSide {
        let side = |memory, at, bounced| OwnSide {
            memory,
            at,
            bounced,
        };
        let (local, len) = (access.local.addr, access.len);
        let direction = direction(access);
        if direction == Direction::Put && len <= registration.inline() {
            return side(OwnMemory::Inline, local, None);
        }
        if !registration.registers_own() {
            return side(OwnMemory::Unregistered, local, None);
        }
        if registration.lasts(local.addr() as u64, len as u64) || copied {
            return side(OwnMemory::Persistent, local, None);
        }
        let bounce = self.bounce.get();
        let is_cheap = bounce.is_some() && len <= CHEAP_COPY && registration.hears();
        if registration.strategy() == Strategy::Auto
            && !is_cheap
            && registration.copies(direction, len as u64)
        {
            // The data must not be copied twice. The engine may still use a registration that is there.
            registration.learn_before_use((local.addr() as u64, len as u64));
            return side(OwnMemory::Transient, local, None);
        }
        let hears = !is_cheap && registration.hears_of(local.addr() as u64, len as u64);
        if hears && (registration.was_used(local.addr() as u64) || bounce.is_none()) {
            return side(OwnMemory::Persistent, local, None);
        }
        // SAFETY: 1., 2. The caller's condition 1, which holds until the slot is given back.
        match bounce.and_then(|bounce| unsafe { bounce.take(local, len, direction) }) {
            Some((slot, bounced)) => {
                if direction == Direction::Put {
                    self.progress.conduit().copied(len);
                }
                side(OwnMemory::Persistent, slot, Some(bounced))
            }
            None if hears => side(OwnMemory::Persistent, local, None),
            None => {
                registration.learn_before_use((local.addr() as u64, len as u64));
                side(OwnMemory::Transient, local, None)
            }
        }
    }

    /// Posts an access to the conduit, with own memory at `addr`, under the remote and the own key.
    ///
    /// # Safety
    /// 1., 2. As [`begin`](Self::begin).
    #[inline(always)]
    unsafe fn post(
        &self,
        access: &Access,
        offset: u64,
        addr: *mut u8,
        (remote_key, local_key): (u64, u64),
    ) -> Result<Posted, hydrant_conduit::Error> {
        let access = Access {
            remote: Remote {
                key: Key(remote_key),
                offset,
            },
            local: Local {
                addr,
                key: Key(local_key),
            },
            ..*access
        };
        // SAFETY: 1., 2. The caller's conditions 1 and 2.
        unsafe { self.progress.conduit().post(&access) }
    }

    /// Returns whether the NIC moves data in this direction by itself.
    fn nic_moves(&self, direction: Direction) -> bool {
        direction == Direction::Put || self.reads
    }
}
