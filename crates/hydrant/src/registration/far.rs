//! Puts and gets to memory that must be registered: the hit, and the way to the engine.

use hydrant_conduit::{Key, Posted, Remote, Ticket};
use hydrant_pinning::{Operation, Own, Strategy};

use super::{Flight, OPERATION, Registration};
use crate::{Error, Rank, Result, counters::Count, job::Core};

impl Core {
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
        if len == 0 {
            return Ok(Posted::Done);
        }
        let remote = self.far_address(registration, rank, place, len as u64)?;
        let post = |remote_key, local_key| {
            let to = Remote {
                key: Key(remote_key),
                offset: remote,
            };
            if put {
                // SAFETY: the caller's promise.
                unsafe { self.conduit.write(rank, to, local, len, Key(local_key)) }
            } else {
                // SAFETY: the caller's promise.
                unsafe { self.conduit.read(rank, to, local, len, Key(local_key)) }
            }
        };
        if rank == self.rank || (registration.strategy == Strategy::Paging && self.moves(put)) {
            let posted = post(Key::ANY.0, Key::ANY.0)?;
            if rank == self.rank {
                self.conduit.copied(len);
            }
            if let Posted::Pending(ticket) = posted {
                self.pending.post(ticket);
                self.fly(registration, ticket, Flight::Plain);
            }
            return Ok(posted);
        }
        let near = local.expose_provenance() as u64;
        let hit = (registration.hot).hit(rank.0, remote, near, len as u64, put);
        if let Some(hit) = hit.filter(|_| self.moves(put)) {
            self.tally.one(Count::Hits);
            return match post(hit.remote_key, hit.local_key) {
                Ok(Posted::Pending(ticket)) => {
                    self.pending.post(ticket);
                    self.fly(registration, ticket, Flight::Hit(hit));
                    Ok(Posted::Pending(ticket))
                }
                done => {
                    self.hit_over(registration, &hit);
                    done.map_err(Error::from)
                }
            };
        }
        if let Some(hit) = hit {
            self.hit_over(registration, &hit);
        }
        self.tally.one(Count::Misses);
        let id = registration.name();
        let ticket = Ticket(OPERATION | id);
        self.pending.post(ticket);
        let operation = Operation {
            id,
            peer: rank.0,
            put,
            local: near,
            remote,
            len: len as u64,
            own: Own::Lasting,
            copied: false,
        };
        let mut begun = Ok(());
        self.step(registration, &[], |engine, out| {
            begun = engine.begin(operation, out);
        });
        if let Err(cause) = begun {
            self.pending.forget(ticket);
            return Err(cause.into());
        }
        Ok(Posted::Pending(ticket))
    }

    /// Whether the NIC moves data in that direction by itself.
    fn moves(&self, put: bool) -> bool {
        put || self.conduit.caps().reads
    }

    /// The address, at `rank`, of a place there.
    fn far_address(
        &self,
        registration: &Registration,
        rank: Rank,
        place: Remote,
        len: u64,
    ) -> Result<u64> {
        match place.key {
            Key::SEGMENT => Ok(self.segment_of(registration, rank)? + place.offset),
            Key::ANY => Ok(place.offset),
            Key(key) => self.exposed_at(registration, rank, key, place.offset, len),
        }
    }

    /// Where a peer has its segment.
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
