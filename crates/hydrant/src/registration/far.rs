//! Puts and gets to memory that must be registered: the hit, and the way to the engine.

use hydrant_conduit::{Key, Posted, Remote, Ticket};
use hydrant_pinning::{Operation, Own, Region, Strategy};

use super::{Flight, OPERATION, Registration, bounce::Bounced, loan::Lease};
use crate::{Error, Rank, Result, counters::Count, job::Core, progress::On};

/// The keys of memory that needs no registration.
const ANYWHERE: (u64, u64) = (Key::ANY.0, Key::ANY.0);

/// How the own side of an operation stands.
struct OwnSide {
    stands: Own,
    /// Where its data is, or goes.
    at: *mut u8,
    bounced: Option<Bounced>,
}

impl OwnSide {
    /// Whether the network, or a slot, has the data of a put that was posted.
    fn is_taken(&self, put: bool) -> bool {
        put && (self.bounced.is_some() || self.stands == Own::Inline)
    }
}

/// How an operation was begun.
enum Begun {
    /// It is complete.
    Done,
    /// It is with the conduit, and nobody would be told of its end yet; and whether it needs its
    /// source no longer.
    Posted(Ticket, Flight, bool),
    /// It is with the engine.
    Told(Ticket),
}

impl Core {
    /// A put, or a get, that is complete on return; else as [`begin_far`](Self::begin_far).
    ///
    /// # Safety
    /// As there, until this returns.
    pub(crate) unsafe fn do_far(
        &self,
        registration: &Registration,
        rank: Rank,
        place: Remote,
        local: *mut u8,
        len: usize,
        put: bool,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let begun = unsafe { self.set_off::<true>(registration, rank, place, local, len, put)? };
        match begun {
            Begun::Done => Ok(()),
            Begun::Posted(ticket, flight, left) => {
                self.posted(ticket, flight, left);
                self.finish(Posted::Pending(ticket))
            }
            Begun::Told(ticket) => self.finish_one(On::Served(rank), ticket),
        }
    }

    /// Begins a put, or a get, of `len` bytes of own memory at `local`.
    ///
    /// # Safety
    /// Until the operation is complete, the own memory stays there, readable and unchanged for
    /// a put, writable and left alone for a get. A place under [`Key::ANY`] can bear it.
    pub(crate) unsafe fn begin_far(
        &self,
        registration: &Registration,
        rank: Rank,
        place: Remote,
        local: *mut u8,
        len: usize,
        put: bool,
    ) -> Result<Posted> {
        // SAFETY: the caller's promise.
        let begun = unsafe { self.set_off::<false>(registration, rank, place, local, len, put)? };
        Ok(match begun {
            Begun::Done => Posted::Done,
            Begun::Posted(ticket, flight, left) => {
                self.posted(ticket, flight, left);
                Posted::Pending(ticket)
            }
            Begun::Told(ticket) => Posted::Pending(ticket),
        })
    }

    /// `WAITS`: the caller has nothing else to do until it is complete.
    ///
    /// # Safety
    /// As [`begin_far`](Self::begin_far).
    #[inline(always)] // one function for each kind, in which a hit goes straight through
    unsafe fn set_off<const WAITS: bool>(
        &self,
        registration: &Registration,
        rank: Rank,
        place: Remote,
        local: *mut u8,
        len: usize,
        put: bool,
    ) -> Result<Begun> {
        if len == 0 {
            self.tally.one(Count::Indirect);
            return Ok(Begun::Done);
        }
        // From here on a lease is held until the access is over: every way out gives it up, or
        // hands it on.
        let (remote, lease) = self.far_address(registration, rank, place, len as u64)?;
        if rank == self.rank {
            self.glance();
        }
        if rank == self.rank || (registration.strategy == Strategy::Paging && self.moves(put)) {
            self.tally.one(Count::Indirect);
            // SAFETY: the caller's promise.
            let posted =
                unsafe { self.hand_over::<WAITS>(rank, remote, local, len, put, ANYWHERE) };
            if rank == self.rank {
                self.conduit.copied(len);
            }
            return match posted {
                Ok(Posted::Pending(ticket)) => {
                    let flight = Flight::new(None, None, lease);
                    Ok(Begun::Posted(ticket, flight, false))
                }
                over => {
                    self.let_go(lease);
                    over.map(|_| Begun::Done).map_err(Error::from)
                }
            };
        }
        // Of a bucket of several pages, some may be gone though others last.
        let copied = place.key == Key::ANY && registration.shares_buckets();
        // SAFETY: the caller's promise, until the flight is over.
        let own = unsafe { self.own_side(registration, local, len, put, copied) };
        let near = own.at.expose_provenance() as u64;
        let hit = match own.stands {
            _ if copied || !self.moves(put) => None,
            Own::Persistent => (registration.hot).hit(rank.0, remote, near, len as u64, put),
            Own::Inline => registration.hot.hit_remote(rank.0, remote, len as u64),
            Own::Transient => None,
        };
        if let Some(hit) = hit {
            (self.tally).add_each([(Count::Indirect, 1), (Count::Hits, 1)]);
            let keys = (hit.remote_key, hit.local_key);
            let taken = own.is_taken(put);
            let inside = self.progress.enter();
            // SAFETY: the caller's promise; a slot is this operation's until its flight is over.
            let posted = unsafe { self.hand_over::<WAITS>(rank, remote, own.at, len, put, keys) };
            drop(inside);
            return match posted {
                Ok(Posted::Pending(ticket)) => {
                    let flight = Flight::new(Some(hit), own.bounced, lease);
                    Ok(Begun::Posted(ticket, flight, taken))
                }
                Ok(Posted::Done) => {
                    self.land_hit(registration, hit, own.bounced, true);
                    self.let_go(lease);
                    if WAITS && self.progress.is_due(len) && !self.progress.virtual_time {
                        self.look_round();
                    }
                    Ok(Begun::Done)
                }
                Err(cause) => {
                    self.land_hit(registration, hit, own.bounced, false);
                    self.let_go(lease);
                    Err(cause.into())
                }
            };
        }
        let operation = Operation {
            id: registration.name(),
            peer: rank.0,
            put,
            local: near,
            region: Region(place.key.0),
            remote,
            len: len as u64,
            own: own.stands,
            copied,
        };
        self.miss(registration, operation, own.bounced, lease)
    }

    /// Hands an operation to the engine. Its own memory bears it as that of
    /// [`begin_far`](Self::begin_far).
    #[cold]
    fn miss(
        &self,
        registration: &Registration,
        operation: Operation,
        bounced: Option<Bounced>,
        lease: Option<Lease>,
    ) -> Result<Begun> {
        (self.tally).add_each([(Count::Indirect, 1), (Count::Misses, 1)]);
        let Operation { peer, remote, .. } = operation;
        let ticket = Ticket(OPERATION | operation.id);
        let left = operation.put && bounced.is_some();
        self.posted(ticket, Flight::new(None, bounced, lease), left);
        let mut begun = Ok(());
        let inside = self.progress.enter();
        self.step(registration, &[], |engine, out| {
            begun = engine.begin(operation, out);
        });
        drop(inside);
        self.take_answers(operation.len as usize);
        if let Err(cause) = begun {
            if let Some(flight) = self.pending.forget(ticket) {
                self.land(flight, false);
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
        Ok(Begun::Told(ticket))
    }

    /// Whoever begins one operation after the other takes the peers' answers meanwhile: they wait
    /// for room there, and a peer that never takes any is put out of the job.
    fn take_answers(&self, len: usize) {
        let takes =
            !self.progress.virtual_time && crate::progress::may_wait("taking answers").is_ok();
        if takes && self.progress.is_due(len) {
            self.look_round();
        }
    }

    /// How the own side of an operation stands, and where its data is: in a slot of the bounce
    /// memory, if that costs less than registering the buffer for it.
    ///
    /// # Safety
    /// As [`begin_far`](Self::begin_far), until the slot is given back.
    #[inline]
    unsafe fn own_side(
        &self,
        registration: &Registration,
        local: *mut u8,
        len: usize,
        put: bool,
        copied: bool,
    ) -> OwnSide {
        let side = |stands, at, bounced| OwnSide {
            stands,
            at,
            bounced,
        };
        if put && len <= registration.inline {
            return side(Own::Inline, local, None);
        }
        if registration.lent.lasts(local.addr() as u64, len as u64) || copied {
            return side(Own::Persistent, local, None);
        }
        let bounce = registration.bounce.get();
        // SAFETY: 1., 2. the caller's promise.
        match bounce.and_then(|bounce| unsafe { bounce.take(local, len, put) }) {
            Some((slot, bounced)) => {
                if put {
                    self.conduit.copied(len);
                }
                side(Own::Persistent, slot, Some(bounced))
            }
            None => side(Own::Transient, local, None),
        }
    }

    /// Hands a transfer to the conduit.
    ///
    /// # Safety
    /// As [`begin_far`](Self::begin_far).
    #[inline(always)]
    unsafe fn hand_over<const WAITS: bool>(
        &self,
        rank: Rank,
        remote: u64,
        local: *mut u8,
        len: usize,
        put: bool,
        (remote_key, local_key): (u64, u64),
    ) -> Result<Posted, hydrant_conduit::Error> {
        let (key, own) = (Key(remote_key), Key(local_key));
        let offset = remote;
        let place = Remote { key, offset };
        let conduit = &*self.conduit;
        // SAFETY: the caller's promise, for all four.
        unsafe {
            match (put, WAITS) {
                (true, true) => conduit.write_watched(rank, place, local, len, own),
                (false, true) => conduit.read_watched(rank, place, local, len, own),
                (true, false) => conduit.write(rank, place, local, len, own),
                (false, false) => conduit.read(rank, place, local, len, own),
            }
        }
    }

    /// Whether the NIC moves data in that direction by itself.
    fn moves(&self, put: bool) -> bool {
        put || self.conduit.caps().reads
    }

    /// The address, at `rank`, of a place there, and what keeps it there.
    #[inline(always)]
    fn far_address(
        &self,
        registration: &Registration,
        rank: Rank,
        place: Remote,
        len: u64,
    ) -> Result<(u64, Option<Lease>)> {
        Ok(match place.key {
            Key::SEGMENT => match registration.base(rank) {
                Some(base) => (base + place.offset, None),
                None => (self.segment_of(registration, rank)? + place.offset, None),
            },
            Key::ANY => (place.offset, None),
            Key(key) => {
                let (at, lease) = self.exposed_at(registration, rank, key, place.offset, len)?;
                (at, Some(lease))
            }
        })
    }

    /// Where a peer has its segment.
    #[cold]
    pub(super) fn segment_of(&self, registration: &Registration, rank: Rank) -> Result<u64> {
        let segment = &registration.segments[rank.index()];
        if let Some(base) = segment.get() {
            return Ok(*base);
        }
        let bytes = self.bootstrap().get(rank.0, SEGMENT)?;
        let bytes = <[u8; 8]>::try_from(bytes.as_slice())
            .map_err(|_| Error::other(format!("rank {rank} does not say where its segment is")))?;
        Ok(*segment.get_or_init(|| u64::from_le_bytes(bytes)))
    }
}

/// Under which name ranks tell where their segments lie.
pub(super) const SEGMENT: &str = "segment";
