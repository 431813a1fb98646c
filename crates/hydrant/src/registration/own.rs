//! Own memory that the engine holds by itself: words that the own NIC changes, and what is
//! registered for good.

use std::{
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::Key;
use hydrant_pinning::{Run, Use, wire::Grant};
use smallvec::SmallVec;

use super::Registration;
use crate::{
    Error, Rank, Result,
    progress::{self, For, On},
};

/// How long a word may not be registered: as long as this its owner may be short of room.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Where extents that follow each other end, and their keys.
pub(crate) type Extents = SmallVec<[(u64, Key); 3]>;

/// An own word that is registered, until it is given up.
pub(crate) enum OwnWord {
    /// It was registered already, and is held as a hit.
    Hit(hydrant_pinning::KeptHit),
    /// The engine holds it under this number; and its key.
    Held(u64, Key),
}

impl OwnWord {
    /// The key under which the own NIC reaches it.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Hit(hit) => Key(hit.local_key),
            Self::Held(_, key) => *key,
        }
    }
}

impl Registration {
    /// Registers own memory for good, all of it or none.
    ///
    /// # Errors
    /// [`Error::Registration`] that names the limit.
    pub(super) fn pin(&self, addr: u64, len: u64) -> Result<Vec<Grant>> {
        let run = self.geometry.span(addr, len)?;
        if run.count == 0 {
            return Ok(Vec::new());
        }
        let id = self.name();
        self.step(&[], |engine, out| engine.pin(id, run, out));
        let mut outcome = None;
        self.progress.wait(On::Nobody, For::Message, || {
            outcome = self.pinned.lock().remove(&id);
            outcome.is_some()
        })?;
        (outcome.unwrap_or(Ok(Vec::new()))).map_err(Error::from)
    }

    /// Registers own buckets for good, beside what peers may keep registered here. Nothing else has
    /// been registered yet, so that it needs no waiting.
    ///
    /// # Errors
    /// Why there is no room, or `None` if it was not done at once.
    pub(crate) fn keep(&self, run: Run) -> Result<(), Option<hydrant_pinning::Error>> {
        let id = self.name();
        self.step(&[], |engine, out| engine.keep(id, run, out));
        match self.pinned.lock().remove(&id) {
            Some(Ok(_)) => Ok(()),
            Some(Err(cause)) => Err(Some(cause)),
            None => Err(None),
        }
    }

    /// Holds an own word of `len` bytes registered. Nobody else has to do anything for it, so
    /// handlers may ask for it.
    ///
    /// # Errors
    /// [`Error::WordNotRegistered`], [`Error::InHandler`] where there may be no room for it.
    pub(crate) fn hold_own(&self, addr: u64, len: u64) -> Result<OwnWord> {
        if let Some(hit) = self.hot.hit_local(addr, len) {
            return Ok(OwnWord::Hit(hit.keep()));
        }
        let begun = Instant::now();
        loop {
            let id = self.name();
            let mut asked = Ok(());
            self.step(&[], |engine, out| {
                asked = engine.hold_own(id, addr, len, out);
            });
            asked?;
            match self.until_held(id) {
                Ok(grants) => {
                    let key = grants.first().map_or(0, |grant| grant.key);
                    return Ok(OwnWord::Held(id, Key(key)));
                }
                // Other threads' own words take what is set aside, and give it back by
                // themselves; else operations have all there is, and end if they are looked after.
                Err(hydrant_pinning::Error::PastLimit { .. }) if begun.elapsed() < PATIENCE => {
                    if !self.reserve {
                        progress::may_wait("an atomic operation with so little to register")?;
                    }
                    self.progress.poll();
                    thread::yield_now();
                }
                Err(hydrant_pinning::Error::PastLimit { .. }) => {
                    return Err(not_registered(self.progress.rank));
                }
                Err(cause) => return Err(cause.into()),
            }
        }
    }

    /// Holds own memory registered for a transfer that is told the keys and is none of the engine's: the number by
    /// which it is [let go](Self::let_go_of_own), and its extents, each with the address of its end, in order. None
    /// if there is no room.
    pub(crate) fn hold(&self, addr: u64, len: u64, used: Use) -> Option<(u64, Extents)> {
        let lasts = self.lasts(addr, len);
        if !lasts && self.shares_buckets() {
            // Of a bucket of several pages, some may be gone.
            return None;
        }
        let id = self.name();
        let mut asked = Ok(());
        self.step(&[], |engine, out| {
            asked = engine.hold(id, (addr, len), (used, lasts), out);
        });
        asked.ok()?;
        let mut grants = self.until_held(id).ok()?;
        grants.sort_unstable_by_key(|grant| grant.run.first);
        let end = |run: Run| run.end() * self.geometry.bucket();
        let extents = grants.iter().map(|grant| (end(grant.run), Key(grant.key)));
        Some((id, extents.collect()))
    }

    /// What became of memory that is to be held. Another thread that registers it already, or gives up what is in its
    /// way, says so; it needs nothing for that but its turn.
    fn until_held(&self, id: u64) -> Result<Vec<Grant>, hydrant_pinning::Error> {
        loop {
            if let Some(held) = self.pinned.lock().remove(&id) {
                return held;
            }
            match self.progress.virtual_time {
                // The other has none while this one has it.
                true => self.progress.conduit().poll_memory(),
                false => thread::yield_now(),
            }
        }
    }

    /// Lets own memory go that was [held](Self::hold).
    pub(crate) fn let_go_of_own(&self, id: u64) {
        self.step(&[], |engine, out| engine.release_own(id, out));
    }

    /// Gives up an own word that was held.
    pub(crate) fn give_up_own(&self, word: OwnWord) {
        match word {
            OwnWord::Hit(hit) => self.release_kept(&hit),
            OwnWord::Held(id, _) => self.step(&[], |engine, out| engine.release_own(id, out)),
        }
    }
}

/// The error for a word that could not be registered in time.
pub(crate) fn not_registered(rank: Rank) -> Error {
    Error::WordNotRegistered {
        rank,
        seconds: PATIENCE.as_secs(),
    }
}
