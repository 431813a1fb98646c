//! The registration cache, which the application shares with the helper (§3.2, §4.1).
//!
//! The paper guards the pointer to a registered region by a light lock, taken by a
//! compare-and-swap, that spins while the other side has it. Here each region has such a lock of its
//! own, its *word*, which says besides who uses the region. So a thread of the application is
//! held up by a registration under way only if it is of its own buffer, and even
//! then it is told ([`Acquired::Busy`]) and decides for itself whether to wait or to copy.
//!
//! A region's word goes through these states; each change is one compare-and-swap or, where only one
//! party may make it, one store:
//!
//! ```text
//! empty ──insert──▶ claimed ──▶ registering ◀──claim── absent ──forget──▶ claimed ──▶ empty
//!                                 │    │                 ▲ ▲
//!                            publish  abandon ───────────┘ │
//!                                 ▼                        │
//!                registered(users) ──begin_deregistering──▶ deregistering
//!                    ▲      │        (no users)
//!                    └──────┘ acquire, release
//! ```
//!
//! The cache counts the registered bytes, those of registrations under way included, and lets
//! nobody begin one past its limit. So the bound holds, whoever registers.
//!
//! ```
//! use hydrant_foresight::cache::{Acquired, Begun, Cache};
//!
//! let cache = Cache::new(16, 1 << 20);
//! assert!(matches!(cache.acquire(0x10_0040, 100), Acquired::Unknown));
//! let entry = cache.insert(0x10_0000, 0x2000)?;
//! // … the memory is registered …
//! let held = cache.publish_held(entry, 77);
//! assert_eq!(held.key, 77);
//! assert_eq!(cache.begin_deregistering(held.entry), Begun::InUse);
//! cache.release(held);
//! assert_eq!(cache.begin_deregistering(entry), Begun::Deregister { key: 77 });
//! // … the memory is deregistered …
//! cache.deregistered(entry);
//! assert_eq!(cache.registered_bytes(), 0);
//! # Ok::<(), hydrant_foresight::cache::Refusal>(())
//! ```

mod entry;

use crate::communication::Region;
use crate::signature::mix;
use crate::sync::{AtomicU64, Ordering};
use entry::{Entry, State};

/// Which entry of the cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(pub u32);

/// A region that is registered and held.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a region that is held is given back by Cache::release"]
pub struct Held {
    /// Where it is.
    pub entry: EntryId,
    /// What the registration is named by.
    pub key: u64,
    /// What it is of.
    pub region: Region,
}

/// What becomes of a look at the cache.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquired {
    /// It is registered, and held from now on.
    Hit(Held),
    /// It is being registered or deregistered by somebody at this moment.
    Busy(EntryId),
    /// It is known and not registered: [`Cache::claim`] it to register it.
    Absent(EntryId),
    /// No region has these bytes: [`Cache::insert`] one.
    Unknown,
}

/// Whether a region can be deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// It can: nobody can hold it from now on, until [`Cache::deregistered`].
    Deregister {
        /// What the registration is named by.
        key: u64,
    },
    /// Somebody uses it.
    InUse,
    /// It is not registered.
    NotRegistered,
}

/// Why a registration may not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It would take the registered bytes past the limit.
    #[error(
        "{bytes} bytes more than the {registered} registered would be past the limit of {limit}; raise the limit"
    )]
    Limit {
        /// What would be registered.
        bytes: u64,
        /// What is.
        registered: u64,
        /// What may be.
        limit: u64,
    },
    /// All entries are taken.
    #[error("all {entries} entries of the registration cache are taken; give it more")]
    Full {
        /// How many there are.
        entries: usize,
    },
    /// Somebody else was faster: look again.
    #[error("another thread changed the region first")]
    Changed,
    /// The region has no bytes, or ends past the last address.
    #[error("{bytes} bytes at {addr:#x} are no region")]
    NoRegion {
        /// Where it would begin.
        addr: u64,
        /// How long it would be.
        bytes: u64,
    },
}

/// The cache. All methods may be called by any thread at any time.
#[derive(Debug)]
pub struct Cache {
    entries: Box<[Entry]>,
    /// Where to look first for an address, by its hash: a hint, which is checked.
    hints: Box<[AtomicU64]>,
    /// How many entries from the first on were ever taken: no search goes further.
    reached: AtomicU64,
    registered: AtomicU64,
    limit: u64,
}

impl Cache {
    /// A cache of at least `entries` entries, of which at most `limit_bytes` are registered at a time.
    pub fn new(entries: usize, limit_bytes: u64) -> Self {
        let entries = entries.clamp(1, 1 << 24);
        Self {
            entries: (0..entries).map(|_| Entry::new()).collect(),
            hints: (0..entries.next_power_of_two())
                .map(|_| AtomicU64::new(0))
                .collect(),
            reached: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            limit: limit_bytes,
        }
    }

    /// The critical path: finds the region that has these bytes, and holds it. In the usual case
    /// one comparison and one compare-and-swap; never a wait.
    #[inline]
    pub fn acquire(&self, addr: u64, bytes: u64) -> Acquired {
        let Some(end) = addr.checked_add(bytes) else {
            return Acquired::Unknown;
        };
        let hint = self.hint(addr);
        let at = hint.load(Ordering::Relaxed) as usize;
        if let Some(Acquired::Hit(held)) = self
            .entries
            .get(at)
            .and_then(|it| it.acquire(EntryId(at as u32), addr, end))
        {
            return Acquired::Hit(held);
        }
        let found = self.search(addr, end);
        if let Acquired::Hit(held) = &found {
            hint.store(held.entry.0.into(), Ordering::Relaxed);
        }
        found
    }

    /// Looks at all entries, as the paper's cache does: a registered one before all others.
    #[cold]
    fn search(&self, addr: u64, end: u64) -> Acquired {
        // Of those that nobody is busy with, which can be registered at once, the largest.
        let (mut absent, mut busy) = (None, None);
        for (id, entry) in self.reached() {
            match entry.acquire(id, addr, end) {
                Some(Acquired::Hit(held)) => return Acquired::Hit(held),
                Some(Acquired::Absent(_)) => absent = absent.max(Some((entry.region().bytes, id))),
                Some(Acquired::Busy(_)) => busy = Some(id),
                _ => {}
            }
        }
        match (absent, busy) {
            (Some((_, id)), _) => Acquired::Absent(id),
            (None, Some(id)) => Acquired::Busy(id),
            (None, None) => Acquired::Unknown,
        }
    }

    /// The entry of just this region, if there is one: the helper means no other that has its bytes as
    /// well.
    pub fn find(&self, region: Region) -> Option<EntryId> {
        let mut all = self.reached();
        all.find(|it| it.1.region() == region).map(|it| it.0)
    }

    fn reached(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        let reached = self.reached.load(Ordering::Acquire) as usize;
        let ids = (0..).map(EntryId);
        ids.zip(self.entries.iter().take(reached))
    }

    /// Gives a region back after its use.
    #[inline]
    pub fn release(&self, held: Held) {
        self.entry(held.entry).release();
    }

    /// Takes a free entry for a region that is not known yet, for the caller to register it.
    ///
    /// Two threads may insert the same region at the same time. Then it has two entries and two
    /// registrations, each of which is valid; nobody waits. Where no entry is empty, that of an absent region is
    /// taken.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: no entry is free, or the bytes would be past the limit.
    pub fn insert(&self, addr: u64, bytes: u64) -> Result<EntryId, Refusal> {
        let end = addr.checked_add(bytes).filter(|&end| end > addr);
        let end = end.ok_or(Refusal::NoRegion { addr, bytes })?;
        self.reserve(bytes)?;
        let take = || {
            let taken = self
                .entries
                .iter()
                .position(|it| it.take_empty(addr, end))?;
            self.reached.fetch_max(taken as u64 + 1, Ordering::AcqRel);
            Some(EntryId(taken as u32))
        };
        let taken = take().or_else(|| self.entries.iter().any(Entry::forget).then(take).flatten());
        taken.ok_or_else(|| {
            self.give_back(bytes);
            Refusal::Full {
                entries: self.entries.len(),
            }
        })
    }

    /// Takes it on oneself to register a region that is absent, and says which bytes that are.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: somebody else has begun to, or the bytes would be past the limit.
    pub fn claim(&self, id: EntryId) -> Result<Region, Refusal> {
        let entry = self.entry(id);
        let Some((word, region)) = entry.absent() else {
            return Err(Refusal::Changed);
        };
        self.reserve(region.bytes)?;
        // If that succeeds, the bounds that were read are those of this region.
        if entry.change(word, State::Registering) {
            return Ok(region);
        }
        self.give_back(region.bytes);
        Err(Refusal::Changed)
    }

    /// A region that the caller claimed or inserted is registered by now, and used by nobody.
    pub fn publish(&self, id: EntryId, key: u64) {
        self.entry(id).publish(key, 0);
    }

    /// As [`publish`](Self::publish), with the caller as its first user: nobody can deregister it before.
    pub fn publish_held(&self, id: EntryId, key: u64) -> Held {
        let region = self.entry(id).region();
        self.entry(id).publish(key, 1);
        Held {
            entry: id,
            key,
            region,
        }
    }

    /// A region that the caller claimed or inserted could not be registered.
    pub fn abandon(&self, id: EntryId) {
        let bytes = self.entry(id).region().bytes;
        self.entry(id).leave(State::Registering, State::Absent);
        self.give_back(bytes);
    }

    /// Begins to deregister a region, if it is registered and nobody uses it.
    pub fn begin_deregistering(&self, id: EntryId) -> Begun {
        self.entry(id).begin_deregistering()
    }

    /// A region that the caller began to deregister is no longer registered.
    pub fn deregistered(&self, id: EntryId) {
        let bytes = self.entry(id).region().bytes;
        self.entry(id).leave(State::Deregistering, State::Absent);
        self.give_back(bytes);
    }

    /// Frees the entry of a region that is absent. `false` if it is not.
    pub fn forget(&self, id: EntryId) -> bool {
        self.entry(id).forget()
    }

    /// The bytes registered, with those of registrations under way.
    pub fn registered_bytes(&self) -> u64 {
        self.registered.load(Ordering::Relaxed)
    }

    /// The most bytes that may be registered.
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    fn reserve(&self, bytes: u64) -> Result<(), Refusal> {
        let within = |now: u64| now.checked_add(bytes).filter(|&it| it <= self.limit);
        match self
            .registered
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, within)
        {
            Ok(_) => Ok(()),
            Err(registered) => Err(Refusal::Limit {
                bytes,
                registered,
                limit: self.limit,
            }),
        }
    }

    fn give_back(&self, bytes: u64) {
        self.registered.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn hint(&self, addr: u64) -> &AtomicU64 {
        // The length is a power of two. Buffers begin at different pages, mostly.
        &self.hints[mix(addr >> 12) as usize & (self.hints.len() - 1)]
    }

    fn entry(&self, id: EntryId) -> &Entry {
        &self.entries[id.0 as usize]
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
