//! Own memory that the engine holds registered: words that the own NIC changes, and memory
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

/// How long to retry to register a word before the operation fails. Its owner may be short of room
/// for as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The end addresses of consecutive extents, and their keys.
pub(crate) type Extents = SmallVec<[(u64, Key); 3]>;

/// An own word that stays registered until it is released.
pub(crate) enum OwnWord {
    /// The word was registered already, and is held as a hit.
    Hit(hydrant_pinning::KeptHit),
    /// The engine holds the word under this number, with this key.
    Held(u64, Key),
}

impl OwnWord {
    /// Returns the key under which the own NIC reaches the word.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Hit(hit) => Key(hit.local_key),
            Self::Held(_, key) => *key,
        }
    }
}

impl Registration {
    /// Registers own memory for good, all of it or none: in chunks, by several threads.
    ///
    /// # Errors
    /// [`Error::Registration`] that names the limit, [`Error::RegistrationTimeout`].
    pub(super) fn pin(&self, addr: u64, len: u64) -> Result<Vec<Grant>> {
        let run = self.geometry.span(addr, len)?;
        if run.count == 0 {
            return Ok(Vec::new());
        }
        let id = self.name();
        let bytes = run.count.saturating_mul(self.geometry.bucket());
        let in_time = self.step_in_bulk(bytes, |engine, out| engine.pin(id, run, out));
        let mut outcome = None;
        self.progress.wait(On::Nobody, For::Message, || {
            outcome = self.pinned.lock().remove(&id);
            outcome.is_some()
        })?;
        match outcome.unwrap_or(Ok(Vec::new())) {
            Err(_) if in_time.is_err() => in_time.map(|()| Vec::new()),
            outcome => outcome.map_err(Error::from),
        }
    }

    /// Registers own buckets for good, beside what peers may keep registered here. Nothing else is
    /// registered yet, so this need not wait.
    ///
    /// # Errors
    /// The reason why there is no room, or `None` if it was not done at once.
    pub(crate) fn keep(&self, run: Run) -> Result<(), Option<hydrant_pinning::Error>> {
        let id = self.name();
        self.step(&[], |engine, out| engine.keep(id, run, out));
        match self.pinned.lock().remove(&id) {
            Some(Ok(_)) => Ok(()),
            Some(Err(cause)) => Err(Some(cause)),
            None => Err(None),
        }
    }

    /// Registers an own word of `len` bytes and holds it. Handlers may call this, because no other
    /// rank has to do anything for it.
    ///
    /// # Errors
    /// [`Error::WordNotRegistered`]; [`Error::InHandler`] where there may be no room for the word.
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
                // Own words of other threads take the reserve and return it by themselves. Without
                // a reserve, operations hold all there is, and end only if they are polled for.
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

    /// Holds own memory registered for a transfer that is posted outside the engine. Returns a
    /// number to [release](Self::let_go_of_own) it, and its extents in order: the end address and
    /// the key of each. Returns `None` if there is no room.
    pub(crate) fn hold(&self, addr: u64, len: u64, used: Use) -> Option<(u64, Extents)> {
        self.learn_before_use((addr, len));
        let lasts = self.lasts(addr, len);
        if !lasts && self.shares_buckets() {
            // Some pages of a bucket with several may be unmapped by now.
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

    /// Waits for the outcome of a request to hold memory. Another thread that registers the memory,
    /// or evicts for it, reports the outcome. That thread needs only CPU time for it.
    pub(super) fn until_held(&self, id: u64) -> Result<Vec<Grant>, hydrant_pinning::Error> {
        loop {
            if let Some(held) = self.pinned.lock().remove(&id) {
                return held;
            }
            if self.progress.virtual_time {
                // The other thread runs only while this one waits for time to pass.
                self.progress.conduit().poll_memory();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Releases own memory that was [held](Self::hold).
    pub(crate) fn let_go_of_own(&self, id: u64) {
        self.step(&[], |engine, out| engine.release_own(id, out));
    }

    /// Releases an own word that was held.
    pub(crate) fn give_up_own(&self, word: OwnWord) {
        match word {
            OwnWord::Hit(hit) => self.release_kept(&hit),
            OwnWord::Held(id, _) => self.step(&[], |engine, out| engine.release_own(id, out)),
        }
    }
}

/// Returns the error for a word that could not be registered in time.
pub(crate) fn not_registered(rank: Rank) -> Error {
    Error::WordNotRegistered {
        rank,
        seconds: PATIENCE.as_secs(),
    }
}
