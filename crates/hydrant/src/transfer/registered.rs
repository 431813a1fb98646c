//! Puts and gets where memory must be registered: the hit, and the way to the engine.

#![allow(unsafe_code)] // hands borrowed memory to the conduit and keeps it until that is done

use hydrant_conduit::{Access, Key, Local, Operation as Kind, Posted, Remote, Ticket};
use hydrant_pinning::{
    Advice, Attached, Direction, EngineOperation, Hit, KeptHit, OwnMemory, Region, Strategy,
    TimedHit,
};

use super::{Held, Transfer, begin::Begun, bounce::Bounced};
use crate::{
    Error, Rank, Result,
    counters::Count,
    progress::may_wait,
    registration::{Lease, Registration},
    uses::{RemoteUse, Stood, Use, UseKind, are_untold, site_or},
};

/// The keys of memory that needs no registration.
const ANYWHERE: (u64, u64) = (Key::ANY.0, Key::ANY.0);

/// Which way the data of a put or a get goes.
#[inline(always)]
fn direction(access: &Access) -> Direction {
    match access.operation {
        Kind::Put => Direction::Put,
        Kind::Get | Kind::Atomic(_) => Direction::Get,
    }
}

/// How the own side of an operation stands.
struct OwnSide {
    stands: OwnMemory,
    /// Where its data is, or goes.
    at: *mut u8,
    bounced: Option<Bounced>,
}

/// What became of an access that was to go straight through. Small, for it is looked at after each.
pub(super) enum Straight {
    /// It is complete.
    Over,
    /// It is with the conduit.
    Posted(Ticket),
    /// It ended with this, or was refused at once.
    Failed(Box<Error>),
    /// It is none of those, and nothing was done.
    No,
}

impl OwnSide {
    /// Whether the source of a put that was posted is free: a slot has the data, or it went along.
    fn is_taken(&self, access: &Access) -> bool {
        direction(access) == Direction::Put
            && (self.bounced.is_some() || self.stands == OwnMemory::Inline)
    }
}

impl Transfer {
    /// Posts an access to symmetric memory of another rank if it is a hit whose own side is the caller's memory
    /// itself: a put, if `PUTS`, else a get. Everything else is for [`registered`](Self::registered).
    ///
    /// # Safety
    /// As [`begin`](Self::begin).
    #[inline(always)] // little enough to keep what it needs in registers
    pub(super) unsafe fn straight<const PUTS: bool>(&self, access: Access) -> Straight {
        let Some(registration) = &self.registration else {
            return Straight::No;
        };
        let Access { peer, len, .. } = access;
        if access.remote.key != Key::SEGMENT || len == 0 || peer == self.progress.rank {
            return Straight::No;
        }
        let Some(segment) = registration.segment(peer) else {
            return Straight::No;
        };
        let remote = segment + access.remote.offset;
        let at = access.local.addr;
        let (local, bytes) = (at.expose_provenance() as u64, len as u64);
        let (stands, hit) = if PUTS && len <= registration.inline() {
            (
                OwnMemory::Inline,
                registration.hit_remote(peer, remote, bytes),
            )
        } else if (PUTS || self.reads) && registration.lasts(local, bytes) {
            let direction = if PUTS { Direction::Put } else { Direction::Get };
            let hit = registration.hit(peer, remote, local, bytes, direction);
            (OwnMemory::Persistent, hit)
        } else {
            return Straight::No;
        };
        let Some(hit) = hit else {
            return Straight::No;
        };
        let own = OwnSide {
            stands,
            at,
            bounced: None,
        };
        // SAFETY: the caller's promise.
        match unsafe { self.hit(registration, &access, remote, &own, &hit, None) } {
            Ok(Begun::Done) => Straight::Over,
            Ok(Begun::Posted(ticket) | Begun::AtEngine(ticket)) => Straight::Posted(ticket),
            Err(cause) => Straight::Failed(Box::new(cause.into())),
        }
    }

    /// Begins an access where the network needs registered memory.
    ///
    /// # Safety
    /// As [`begin`](Self::begin).
    pub(super) unsafe fn registered(
        &self,
        registration: &Registration,
        access: &Access,
    ) -> Result<Begun> {
        let progress = &*self.progress;
        let Access { peer, len, .. } = *access;
        let direction = direction(access);
        if len == 0 {
            progress.tally.one(Count::Indirect);
            return Ok(Begun::Done);
        }
        // From here on a lease is held until the access is over: every way out gives it up, or
        // hands it on.
        let (remote, lease) = registration.address(peer, access.remote, len as u64)?;
        if peer == progress.rank {
            progress.poll_memory();
        }
        if peer == progress.rank
            || (registration.strategy() == Strategy::Paging && self.moves(direction))
        {
            progress.tally.one(Count::Indirect);
            // SAFETY: the caller's promise.
            let posted = unsafe { self.hand_over(access, remote, access.local.addr, ANYWHERE) };
            if peer == progress.rank {
                progress.conduit().copied(len);
            }
            return match posted {
                Ok(Posted::Pending(ticket)) => {
                    let along = direction == Direction::Put && len <= registration.inline();
                    self.posted(ticket, Held::new(None, None, lease), along);
                    Ok(Begun::Posted(ticket))
                }
                over => {
                    registration.let_go(lease);
                    over.map(|_| Begun::Done).map_err(Error::from)
                }
            };
        }
        // Of a bucket of several pages, some may be gone though others last.
        let copied = (access.remote.key == Key::ANY) && registration.shares_buckets();
        // SAFETY: the caller's promise, until what is held is given back.
        let own = unsafe { self.own_side(registration, access, copied) };
        let local = own.at.expose_provenance() as u64;
        let hit = match own.stands {
            _ if copied || !self.moves(direction) => None,
            OwnMemory::Persistent => registration.hit(peer, remote, local, len as u64, direction),
            OwnMemory::Inline => registration.hit_remote(peer, remote, len as u64),
            OwnMemory::Transient => None,
        };
        if let Some(hit) = hit {
            // SAFETY: the caller's promise; a slot is this operation's until what is held is given
            // back.
            let begun = unsafe { self.hit(registration, access, remote, &own, &hit, lease) };
            return begun.map_err(Error::from);
        }
        let ask = match copied {
            false if registration.strategy() == Strategy::Auto && self.moves(direction) => {
                registration.ask(direction, len as u64)
            }
            _ => Advice::Engine,
        };
        // Hits that nobody waits for are timed by the engine, which knows when they are over.
        if (ask == Advice::Hit || ask == Advice::Time && access.waits)
            && let Some(hit) = registration.hit_unless_crowded(
                peer,
                remote,
                (local, own.stands),
                len as u64,
                direction,
            )
        {
            let timed = match ask {
                Advice::Time => registration.time_hit(peer, direction, len as u64),
                _ => None,
            };
            if ask == Advice::Hit || timed.is_some() {
                // SAFETY: as above.
                return unsafe {
                    self.late_hit(registration, access, remote, &own, (&hit, timed), lease)
                };
            }
            registration.release(&hit);
        }
        let operation = EngineOperation {
            id: registration.name(),
            peer: peer.0,
            direction,
            local,
            region: Region(access.remote.key.0),
            remote,
            len: len as u64,
            own: own.stands,
            copied: copied || ask == Advice::Copy,
        };
        match registration.uses().filter(|_| !are_untold()) {
            None => self.miss(registration, operation, own.bounced, lease),
            Some(uses) => {
                let used = self.used(registration, access, &own);
                let remote = uses.wants_reached() && self.moves(direction);
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

    /// The use of own memory that an operation is.
    #[cold]
    fn used(&self, registration: &Registration, access: &Access, own: &OwnSide) -> Use {
        let (addr, len) = (access.local.addr.addr() as u64, access.len as u64);
        let stays = own.stands == OwnMemory::Persistent && own.bounced.is_none();
        Use {
            kind: match direction(access) {
                Direction::Put => UseKind::Put,
                Direction::Get => UseKind::Get,
            },
            addr,
            len,
            stood: match stays {
                true => registration.stood(addr, len),
                false => Stood::Elsewhere,
            },
            begun: self.progress.conduit().now(),
            site: site_or(access.site),
        }
    }

    /// The use of a peer's memory that an operation is; none of memory that may come and go.
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

    /// Whether all firehoses are there on some memory of a peer. What brings them may have come, and nobody have
    /// looked.
    fn is_attached(&self, registration: &Registration, peer: Rank, place: (u64, u64)) -> bool {
        let attached = registration.attached(peer, place);
        if attached != Attached::Coming || may_wait("a look for firehoses").is_err() {
            return attached == Attached::All;
        }
        self.progress.look_round();
        registration.attached(peer, place) == Attached::All
    }

    /// Posts an access whose both sides are there.
    ///
    /// # Safety
    /// As [`begin`](Self::begin), of the own side's memory.
    #[inline(always)] // into the one function in which a hit goes straight through
    unsafe fn hit(
        &self,
        registration: &Registration,
        access: &Access,
        remote: u64,
        own: &OwnSide,
        hit: &Hit<'_>,
        lease: Option<Lease>,
    ) -> Result<Begun, hydrant_conduit::Error> {
        let progress = &*self.progress;
        if progress.tally.hit() {
            registration.request_comparison();
        }
        let keys = (hit.remote_key, hit.local_key);
        let taken = own.is_taken(access);
        let inside = progress.enter();
        // SAFETY: the caller's promise.
        let posted = unsafe { self.hand_over(access, remote, own.at, keys) };
        let is_due =
            access.waits && matches!(posted, Ok(Posted::Done)) && inside.is_due(access.len);
        drop(inside);
        match posted {
            Ok(Posted::Pending(ticket)) => {
                self.posted_hit(ticket, hit.keep(), own.bounced, lease, taken);
                Ok(Begun::Posted(ticket))
            }
            Ok(Posted::Done) => {
                self.give_back_hit(registration, hit, own.bounced, true);
                registration.let_go(lease);
                if is_due && !progress.virtual_time {
                    progress.look_round();
                }
                Ok(Begun::Done)
            }
            Err(cause) => {
                self.give_back_hit(registration, hit, own.bounced, false);
                registration.let_go(lease);
                Err(cause)
            }
        }
    }

    /// What a hit holds is kept until its ticket ends. Apart from [`hit`](Self::hit), which most often knows of
    /// the end at once.
    #[inline(never)]
    fn posted_hit(
        &self,
        ticket: Ticket,
        hit: KeptHit,
        bounced: Option<Bounced>,
        lease: Option<Lease>,
        left: bool,
    ) {
        self.posted(ticket, Held::new(Some(hit), bounced, lease), left);
    }

    /// As [`hit`](Self::hit), of an operation that had to ask first, and may be timed.
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn late_hit(
        &self,
        registration: &Registration,
        access: &Access,
        remote: u64,
        own: &OwnSide,
        (hit, timed): (&Hit<'_>, Option<TimedHit>),
        lease: Option<Lease>,
    ) -> Result<Begun> {
        let now = || self.progress.conduit().now();
        let began = timed.map(|timed| (timed, now()));
        // SAFETY: the caller's promise.
        let begun = unsafe { self.hit(registration, access, remote, own, hit, lease)? };
        let Some((timed, began)) = began else {
            return Ok(begun);
        };
        let begun = match begun {
            // Whoever asked for it waits for it as well.
            Begun::Posted(ticket) => {
                self.finish(Posted::Pending(ticket))?;
                Begun::Done
            }
            begun => begun,
        };
        registration.hit_took(timed, now().saturating_sub(began));
        Ok(begun)
    }

    /// Hands an operation to the engine. Its own memory bears it as that of
    /// [`begin`](Self::begin).
    #[cold]
    fn miss(
        &self,
        registration: &Registration,
        operation: EngineOperation,
        bounced: Option<Bounced>,
        lease: Option<Lease>,
    ) -> Result<Begun> {
        (self.progress.tally).add_each([(Count::Indirect, 1), (Count::Misses, 1)]);
        let EngineOperation {
            peer, remote, len, ..
        } = operation;
        let ticket = Registration::ticket(operation.id);
        let left = operation.direction == Direction::Put && bounced.is_some();
        self.posted(ticket, Held::new(None, bounced, lease), left);
        let inside = self.progress.enter();
        let begun = registration.begin(operation);
        drop(inside);
        self.take_answers(len as usize);
        if let Err(cause) = begun {
            if let Some(held) = self.under_way.forget(ticket) {
                self.give_back(held, false);
            }
            return Err(match cause {
                // Beyond any address that memory has.
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
        Ok(Begun::AtEngine(ticket))
    }

    /// Whoever begins one operation after the other takes the peers' answers meanwhile: they wait
    /// for room there, and a peer that never takes any is put out of the job.
    fn take_answers(&self, len: usize) {
        let takes = !self.progress.virtual_time && may_wait("taking answers").is_ok();
        if takes && self.progress.is_due(len) {
            self.progress.look_round();
        }
    }

    /// How the own side of an operation stands, and where its data is: in a slot of the bounce
    /// memory, if that costs less than registering the buffer for it.
    ///
    /// # Safety
    /// As [`begin`](Self::begin), until the slot is given back.
    #[inline]
    unsafe fn own_side(
        &self,
        registration: &Registration,
        access: &Access,
        copied: bool,
    ) -> OwnSide {
        let side = |stands, at, bounced| OwnSide {
            stands,
            at,
            bounced,
        };
        let (local, len) = (access.local.addr, access.len);
        let direction = direction(access);
        if direction == Direction::Put && len <= registration.inline() {
            return side(OwnMemory::Inline, local, None);
        }
        if registration.lasts(local.addr() as u64, len as u64) || copied {
            return side(OwnMemory::Persistent, local, None);
        }
        if registration.strategy() == Strategy::Auto && registration.copies(direction, len as u64) {
            // It is not to be copied twice.
            return side(OwnMemory::Transient, local, None);
        }
        let bounce = self.bounce.get();
        // SAFETY: 1., 2. the caller's promise.
        match bounce.and_then(|bounce| unsafe { bounce.take(local, len, direction) }) {
            Some((slot, bounced)) => {
                if direction == Direction::Put {
                    self.progress.conduit().copied(len);
                }
                side(OwnMemory::Persistent, slot, Some(bounced))
            }
            None => side(OwnMemory::Transient, local, None),
        }
    }

    /// Hands an access to the conduit, of own memory at `local`, under the remote and the own key.
    ///
    /// # Safety
    /// As [`begin`](Self::begin).
    #[inline(always)]
    unsafe fn hand_over(
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
        // SAFETY: the caller's promise.
        unsafe { self.progress.conduit().post(&access) }
    }

    /// Whether the NIC moves data in that direction by itself.
    fn moves(&self, direction: Direction) -> bool {
        direction == Direction::Put || self.reads
    }
}
