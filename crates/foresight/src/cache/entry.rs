//! One region of the cache and the word that guards it.
//!
//! `generation (29) | state (3) | users (32)`. The generation grows whenever the entry is given to
//! another region. So a compare-and-swap from a word that was read before succeeds only if
//! bounds that were read in between are those of that region.

use super::{Acquired, Begun, EntryId, Held};
use crate::communication::Region;
use crate::sync::{AtomicU64, Ordering};

/// What is done with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum State {
    /// No region is in the entry.
    Empty = 0,
    /// Its bounds are being changed.
    Claimed = 1,
    /// The region is not registered.
    Absent = 2,
    /// Somebody registers it.
    Registering = 3,
    /// It is registered.
    Registered = 4,
    /// Somebody deregisters it.
    Deregistering = 5,
}

const STATE_SHIFT: u32 = 32;
const GENERATION_SHIFT: u32 = STATE_SHIFT + 3;
/// The users of a region.
const USERS: u64 = (1 << STATE_SHIFT) - 1;
const STATE: u64 = 0b111 << STATE_SHIFT;
/// So many are never reached: each is a thread in the middle of a communication.
const MOST_USERS: u64 = 1 << 31;

#[inline]
fn is(word: u64, state: State) -> bool {
    word & STATE == (state as u64) << STATE_SHIFT
}

/// The word of the same region in another state, with no users.
#[inline]
fn to(word: u64, state: State) -> u64 {
    word & !(STATE | USERS) | (state as u64) << STATE_SHIFT
}

/// An entry, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    word: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    key: AtomicU64,
}

impl Entry {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            key: AtomicU64::new(0),
        }
    }

    /// Holds the region if it has these bytes and is registered; `None` if it has them not.
    #[inline]
    pub(super) fn acquire(&self, id: EntryId, addr: u64, end: u64) -> Option<Acquired> {
        // Acquire: the bounds are no older than the word. That they are no newer is found
        // out by the compare-and-swap below.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let start = self.start.load(Ordering::Relaxed);
            if addr < start || end > self.end.load(Ordering::Relaxed) {
                return None;
            }
            if is(word, State::Absent) {
                return Some(Acquired::Absent(id));
            }
            if is(word, State::Registering) || is(word, State::Deregistering) {
                return Some(Acquired::Busy(id));
            }
            if !is(word, State::Registered) || word & USERS == MOST_USERS {
                return None;
            }
            // Acquire: the key, and what was done to the memory before, are seen.
            match self.word.compare_exchange_weak(
                word,
                word + 1,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let key = self.key.load(Ordering::Relaxed);
                    let region = self.region();
                    return Some(Acquired::Hit(Held {
                        entry: id,
                        key,
                        region,
                    }));
                }
                Err(now) => word = now,
            }
        }
    }

    #[inline]
    pub(super) fn release(&self) {
        // Release: the use is over before somebody sees that there is no user.
        self.word.fetch_sub(1, Ordering::Release);
    }

    /// Takes the entry for a region, if it is empty: in state `Registering` from then on.
    pub(super) fn take_empty(&self, start: u64, end: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if !is(word, State::Empty) || !self.change(word, State::Claimed) {
            return false;
        }
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        let next = word.wrapping_add(1 << GENERATION_SHIFT);
        // Nobody else changes the word of a claimed entry.
        self.word
            .store(to(next, State::Registering), Ordering::Release);
        true
    }

    /// The word and the bounds of the region, if it is absent.
    pub(super) fn absent(&self) -> Option<(u64, Region)> {
        let word = self.word.load(Ordering::Acquire);
        let region = self.region();
        is(word, State::Absent).then_some((word, region))
    }

    /// From the state in `word`, which was read before, into another, unless it has changed since.
    pub(super) fn change(&self, word: u64, state: State) -> bool {
        let changed = to(word, state);
        let swapped =
            self.word
                .compare_exchange(word, changed, Ordering::AcqRel, Ordering::Relaxed);
        swapped.is_ok()
    }

    pub(super) fn publish(&self, key: u64, users: u64) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(
            is(word, State::Registering),
            "only what is being registered is published"
        );
        self.key.store(key, Ordering::Relaxed);
        // Only who registers changes the word meanwhile.
        self.word
            .store(to(word, State::Registered) | users, Ordering::Release);
    }

    /// Into `state`, by the one who put it into `from`.
    pub(super) fn leave(&self, from: State, state: State) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(
            is(word, from),
            "only who put an entry into {from:?} takes it out"
        );
        self.word.store(to(word, state), Ordering::Release);
    }

    pub(super) fn begin_deregistering(&self) -> Begun {
        let word = self.word.load(Ordering::Acquire);
        if !is(word, State::Registered) {
            return Begun::NotRegistered;
        }
        let key = self.key.load(Ordering::Relaxed);
        // AcqRel: it is deregistered after the last use, and was the key of this registration.
        match word & USERS == 0 && self.change(word, State::Deregistering) {
            true => Begun::Deregister { key },
            // Only users change the word of a registered region beside who deregisters it.
            false => Begun::InUse,
        }
    }

    /// Empties the entry, if its region is absent.
    pub(super) fn forget(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        if !is(word, State::Absent) || !self.change(word, State::Claimed) {
            return false;
        }
        self.start.store(0, Ordering::Relaxed);
        self.end.store(0, Ordering::Relaxed);
        self.word.store(to(word, State::Empty), Ordering::Release);
        true
    }

    /// Its bounds at this moment: those of its region, for who holds it or may change the entry.
    pub(super) fn region(&self) -> Region {
        let addr = self.start.load(Ordering::Relaxed);
        let bytes = self.end.load(Ordering::Relaxed).saturating_sub(addr);
        Region { addr, bytes }
    }
}
