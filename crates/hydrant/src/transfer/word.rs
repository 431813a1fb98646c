//! Words of symmetric memory that NICs change: the owner's alone, which wants them registered.
//!
//! A word that cannot be registered is not changed by anybody else instead. A hit goes to the
//! conduit at once. On a miss of a peer's word the eight bytes are read, which attaches a firehose
//! to their bucket; if they came without one, because the peer was short of room or is still in
//! the allocation, that is tried again. The own word is held by the engine as a part of what may
//! be registered beside M.

use std::time::Instant;

use hydrant_conduit::{Access, Atomic, Key, Posted, Remote};

use super::{Held, Transfer};
use crate::{
    Rank, Result,
    counters::Count,
    progress,
    registration::{PATIENCE, Registration, not_registered},
};

const WORD: u64 = size_of::<u64>() as u64;

impl Transfer {
    /// Has the NIC of `rank` change the word at `offset` of its segment: what it was. The own
    /// word needs no peer, so handlers may change it.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost), [`Error::ResultLost`](crate::Error::ResultLost),
    /// [`Error::WordNotRegistered`](crate::Error::WordNotRegistered),
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub(crate) fn atomic(&self, rank: Rank, offset: u64, operation: Atomic) -> Result<u64> {
        if rank != self.progress.rank {
            progress::may_wait("an atomic operation that goes through the network")?;
        }
        self.progress.tally.one(Count::NicAtomics);
        let place = Remote {
            key: Key::SEGMENT,
            offset,
        };
        let Some(registration) = &self.registration else {
            return self.change(rank, place, operation, Held::nothing());
        };
        let (addr, _) = registration.address(rank, place, WORD)?;
        if rank == self.progress.rank {
            return self.change_own(registration, addr, operation);
        }
        let mut since = None;
        loop {
            if let Some(hit) = registration.hit_remote(rank, addr, WORD) {
                let key = Key(hit.remote_key);
                let place = Remote { key, offset: addr };
                return self.change(
                    rank,
                    place,
                    operation,
                    Held::new(Some(hit.keep()), None, None),
                );
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

    fn change(&self, rank: Rank, place: Remote, operation: Atomic, held: Held) -> Result<u64> {
        let conduit = self.progress.conduit();
        let mut was = 0;
        self.progress.to_the_end(|| {
            let access = Access::atomic(rank, place, operation, &raw mut was);
            // SAFETY: `was` stays until `finish` returns, which it does only when the operation is
            // complete.
            let posted = unsafe { conduit.post(&access) };
            match posted {
                Ok(Posted::Pending(ticket)) => {
                    self.posted(ticket, held, false);
                    self.finish(Posted::Pending(ticket))
                }
                done => {
                    self.give_back(held, done.is_ok());
                    Ok(done.map(drop)?)
                }
            }
        })?;
        Ok(was)
    }

    fn change_own(&self, registration: &Registration, addr: u64, operation: Atomic) -> Result<u64> {
        let word = registration.hold_own(addr, WORD)?;
        let place = Remote {
            key: word.key(),
            offset: addr,
        };
        let outcome = self.change(self.progress.rank, place, operation, Held::nothing());
        registration.give_up_own(word);
        outcome
    }
}
