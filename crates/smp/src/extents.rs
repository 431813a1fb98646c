//! Memory outside the segments: who may touch it, and until when.
//!
//! Each rank has a table of the extents it registered. A key is an index into it and a
//! generation, so a key that was revoked, or forged, matches nothing. Peers reach the memory
//! by themselves, so the owner must know when they are done: before touching an extent a peer
//! writes its key into a *hazard* of its own, then looks whether the key is still in force.
//! The owner revokes the key first and looks at the hazards after. One of the two sees the
//! other (sequentially consistent fences on both sides; `model` below proves it under loom),
//! so when [`revoke`] found no hazard, nobody touches the memory any more. Hazards of a peer whose
//! process has ended do not count: it touches nothing. Those of a peer that is lost and lives do.

use crate::sync::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Accesses to extents that a rank may have under way at once.
pub(crate) const HAZARDS: usize = 32;

/// An extent in its owner's table.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Entry {
    /// Odd while in force; counts up with every change.
    generation: AtomicU64,
    addr: AtomicU64,
    len: AtomicU64,
    _spare: AtomicU64,
}

/// A key, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    /// Which entry of its owner's table.
    pub index: u32,
    /// Odd.
    pub generation: u32,
}

impl Handle {
    /// The key's word. Never that of the segment (0), for the generation is odd, nor that of
    /// any address (all ones), for the index stays below 2^24.
    pub fn word(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }

    /// The key of that word; it may never have been granted.
    pub fn from_word(word: u64) -> Self {
        Self {
            index: (word >> 32) as u32,
            generation: word as u32,
        }
    }
}

impl Entry {
    /// Puts an extent in force. Only the owner calls this, on an entry not in force.
    pub(crate) fn grant(&self, index: u32, addr: u64, len: u64) -> Handle {
        let generation = self.generation.load(Relaxed).wrapping_add(1) & 0xffff_ffff;
        debug_assert_eq!(generation % 2, 1);
        self.addr.store(addr, Relaxed);
        self.len.store(len, Relaxed);
        self.generation.store(generation, Release);
        Handle {
            index,
            generation: generation as u32,
        }
    }

    /// Takes an extent out of force; `false` if it was not. Call [`settled`] next.
    pub(crate) fn revoke(&self, handle: Handle) -> bool {
        let generation = u64::from(handle.generation);
        generation % 2 == 1
            && self
                .generation
                .compare_exchange(generation, (generation + 1) & 0xffff_ffff, SeqCst, Relaxed)
                .is_ok()
    }

    /// Address and length, if `handle` is in force.
    fn look(&self, handle: Handle) -> Option<(u64, u64)> {
        let generation = u64::from(handle.generation);
        if generation % 2 == 0 || self.generation.load(SeqCst) != generation {
            return None;
        }
        let place = (self.addr.load(Relaxed), self.len.load(Relaxed));
        fence(Acquire);
        (self.generation.load(Relaxed) == generation).then_some(place)
    }
}

/// What a hazard holds: whose extent, and which. Never zero.
pub(crate) fn hazard_word(owner: u32, handle: Handle) -> u64 {
    // 16 bits of owner and 24 of index leave 24 of the generation: enough to tell an extent
    // from the one before it, and a false match only makes a revocation wait.
    (u64::from(owner) + 1) << 48
        | u64::from(handle.index & 0xff_ffff) << 24
        | u64::from(handle.generation & 0xff_ffff)
}

/// An access under way; ends when dropped.
pub(crate) struct Guard<'a> {
    hazard: &'a AtomicU64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.hazard.store(0, Release);
    }
}

/// Begins an access to `owner`'s extent: its address and length, for as long as the guard
/// lives. `Ok(None)` if every hazard is in use now.
///
/// # Errors
/// `Err(())` if the handle is not in force.
pub(crate) fn enter<'a>(
    hazards: &'a [AtomicU64],
    entry: &Entry,
    owner: u32,
    handle: Handle,
) -> Result<Option<(Guard<'a>, u64, u64)>, ()> {
    let word = hazard_word(owner, handle);
    let Some(hazard) = hazards.iter().find(|hazard| {
        hazard.load(Relaxed) == 0 && hazard.compare_exchange(0, word, SeqCst, Relaxed).is_ok()
    }) else {
        return Ok(None);
    };
    let guard = Guard { hazard };
    fence(SeqCst);
    match entry.look(handle) {
        Some((addr, len)) => Ok(Some((guard, addr, len))),
        None => Err(()),
    }
}

/// Whether nobody in `hazards` touches the extent that was just revoked.
pub(crate) fn settled(hazards: &[AtomicU64], owner: u32, handle: Handle) -> bool {
    fence(SeqCst);
    let word = hazard_word(owner, handle);
    hazards.iter().all(|hazard| hazard.load(SeqCst) != word)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_matches_only_while_in_force() {
        let entry = Entry::default();
        let hazards: Vec<AtomicU64> = (0..HAZARDS).map(|_| AtomicU64::default()).collect();
        let first = entry.grant(3, 0x1000, 64);
        assert_eq!(Handle::from_word(first.word()), first);
        let (guard, addr, len) = enter(&hazards, &entry, 1, first).unwrap().unwrap();
        assert_eq!((addr, len), (0x1000, 64));
        assert!(entry.revoke(first));
        assert!(!entry.revoke(first), "revoked twice");
        assert!(!settled(&hazards, 1, first), "an access is under way");
        drop(guard);
        assert!(settled(&hazards, 1, first));
        assert!(enter(&hazards, &entry, 1, first).is_err());
        let second = entry.grant(3, 0x2000, 64);
        assert!(enter(&hazards, &entry, 1, first).is_err(), "an old key");
        assert!(enter(&hazards, &entry, 1, second).unwrap().is_some());
        let forged = Handle {
            generation: 0,
            ..second
        };
        assert!(enter(&hazards, &entry, 1, forged).is_err());
    }

    #[test]
    fn no_more_accesses_than_hazards() {
        let entry = Entry::default();
        let hazards: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::default()).collect();
        let handle = entry.grant(0, 0, 1);
        let held: Vec<_> = (0..2)
            .map(|_| enter(&hazards, &entry, 0, handle).unwrap().unwrap().0)
            .collect();
        assert!(enter(&hazards, &entry, 0, handle).unwrap().is_none());
        drop(held);
        assert!(enter(&hazards, &entry, 0, handle).unwrap().is_some());
    }
}

#[cfg(all(test, loom))]
#[allow(unsafe_code)] // loom's cells
mod model {
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    use super::*;

    /// The owner frees the memory only after the peer is done with it, or the peer is refused.
    #[test]
    fn loom_nobody_touches_what_was_revoked() {
        loom::model(|| {
            let entry = Arc::new(Entry::default());
            let hazards = Arc::new([AtomicU64::default()]);
            let memory = Arc::new(UnsafeCell::new(1));
            let handle = entry.grant(0, 0, 8);
            let peer = thread::spawn({
                let (entry, hazards, memory) = (entry.clone(), hazards.clone(), memory.clone());
                move || {
                    if let Ok(Some((_guard, ..))) = enter(&*hazards, &entry, 0, handle) {
                        // SAFETY: loom fails the test if the owner writes meanwhile.
                        memory.with(|value| assert_eq!(unsafe { *value }, 1));
                    }
                }
            });
            assert!(entry.revoke(handle));
            while !settled(&*hazards, 0, handle) {
                thread::yield_now();
            }
            // SAFETY: loom fails the test if the peer reads meanwhile.
            memory.with_mut(|value| unsafe { *value = 2 });
            peer.join().unwrap();
        });
    }
}
