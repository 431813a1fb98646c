//! Words of symmetric memory that NICs change: the owner's alone, which wants them registered.
//!
//! A word that cannot be registered is not changed by anybody else instead. A hit goes to the
//! conduit at once. On a miss of a peer's word the eight bytes are read, which attaches a firehose
//! to their bucket; if they came without one, because the peer was short of room or is still in
//! the allocation, that is tried again. The own word is held by the engine as a part of what may
//! be registered beside M.

#![allow(unsafe_code)] // hands a word of the stack to the conduit until it is done with it

use std::{
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{Atomic, Key, Remote};

use super::{Flight, Registration, lock};
use crate::{Error, Rank, Result, counters::Count, job::Core, progress};

/// How long a word may not be registered: as long as this its owner may be short of room.
const PATIENCE: Duration = Duration::from_secs(10);

const WORD: u64 = size_of::<u64>() as u64;

impl Core {
    /// Has the NIC of `rank` change the word at `offset` of its segment: what it was. The own
    /// word needs no peer, so handlers may change it.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::ResultLost`], [`Error::WordNotRegistered`],
    /// [`Error::InHandler`].
    pub(crate) fn atomic(&self, rank: Rank, offset: u64, operation: Atomic) -> Result<u64> {
        if rank != self.rank {
            progress::may_wait("an atomic operation that goes through the network")?;
        }
        self.tally.one(Count::NicAtomics);
        let place = Remote {
            key: Key::SEGMENT,
            offset,
        };
        let Some(registration) = &self.registration else {
            return self.change(rank, place, operation, Flight::plain());
        };
        let addr = self.segment_of(registration, rank)? + offset;
        if rank == self.rank {
            return self.change_own(registration, addr, operation);
        }
        let mut since = None;
        loop {
            if let Some(hit) = registration.hot.hit_remote(rank.0, addr, WORD) {
                let key = Key(hit.remote_key);
                let place = Remote { key, offset: addr };
                return self.change(rank, place, operation, Flight::new(Some(hit), None, None));
            }
            let begun = since.get_or_insert_with(Instant::now);
            if begun.elapsed() > PATIENCE {
                return Err(not_registered(rank));
            }
            self.word(rank, offset)?;
        }
    }

    /// Reads a word of a peer's segment.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn word(&self, rank: Rank, offset: u64) -> Result<u64> {
        let place = Remote {
            key: Key::SEGMENT,
            offset,
        };
        let mut word = [0; WORD as usize];
        self.read(rank, place, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    fn change(&self, rank: Rank, place: Remote, operation: Atomic, flight: Flight) -> Result<u64> {
        let mut was = 0;
        self.to_the_end(|| {
            // SAFETY: `was` stays until `finish` returns, which it does only when the operation is
            // complete.
            let posted = unsafe { (self.conduit).atomic(rank, place, operation, &raw mut was) };
            match posted {
                Ok(hydrant_conduit::Posted::Pending(ticket)) => {
                    self.posted(ticket, flight, false);
                    self.finish(hydrant_conduit::Posted::Pending(ticket))
                }
                done => {
                    self.land(flight, done.is_ok());
                    Ok(done.map(drop)?)
                }
            }
        })?;
        Ok(was)
    }

    fn change_own(&self, registration: &Registration, addr: u64, operation: Atomic) -> Result<u64> {
        let place = |key| Remote {
            key: Key(key),
            offset: addr,
        };
        if let Some(hit) = registration.hot.hit_local(addr, WORD) {
            return self.change(
                self.rank,
                place(hit.local_key),
                operation,
                Flight::new(Some(hit), None, None),
            );
        }
        let (id, key) = self.hold_own(registration, addr)?;
        let outcome = self.change(self.rank, place(key), operation, Flight::plain());
        self.step(registration, &[], |engine, out| engine.release_own(id, out));
        outcome
    }

    /// Holds an own word: under which name, and its key. Nobody else has to do anything for it.
    fn hold_own(&self, registration: &Registration, addr: u64) -> Result<(u64, u64)> {
        let begun = Instant::now();
        loop {
            let id = registration.name();
            let mut asked = Ok(());
            self.step(registration, &[], |engine, out| {
                asked = engine.hold_own(id, addr, WORD, out);
            });
            asked?;
            // Where another thread registers that memory already, it says so.
            let held = loop {
                if let Some(held) = lock(&registration.pinned).remove(&id) {
                    break held;
                }
                thread::yield_now();
            };
            match held {
                Ok(grants) => return Ok((id, grants.first().map_or(0, |grant| grant.key))),
                // Other threads' own words take what is set aside, and give it back by
                // themselves; else operations have all there is, and end if they are looked after.
                Err(hydrant_pinning::Error::PastLimit { .. }) if begun.elapsed() < PATIENCE => {
                    if !registration.reserve {
                        progress::may_wait("an atomic operation with so little to register")?;
                    }
                    self.poll();
                    thread::yield_now();
                }
                Err(hydrant_pinning::Error::PastLimit { .. }) => {
                    return Err(not_registered(self.rank));
                }
                Err(cause) => return Err(cause.into()),
            }
        }
    }
}

fn not_registered(rank: Rank) -> Error {
    Error::WordNotRegistered {
        rank,
        seconds: PATIENCE.as_secs(),
    }
}
