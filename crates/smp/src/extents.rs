//! Registered memory outside the segments: grants and revocation of access.
//!
//! Each rank has a table of the extents it registered. A key is an index into the table and a
//! generation, so a revoked or forged key matches nothing. Peers access the memory themselves, and
//! the owner must know when they are done. Before an access, a peer writes the key into a *hazard*
//! of its own and then checks that the key is still in force. The owner revokes the key first and
//! reads the hazards afterwards. Both sides pass a sequentially consistent fence in between, so one
//! of the two sees the other's store (`model` below checks that under loom). When
//! [`revoke`](ExtentEntry::revoke) has found no hazard, no peer accesses the memory any more.
//! Hazards of a peer whose process has ended do not count. Hazards of a lost peer whose process
//! lives do.

use crate::sync::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// The most concurrent accesses of a rank to extents.
pub(crate) const HAZARDS: usize = 32;

/// An extent in its owner's table.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ExtentEntry {
    /// Odd while in force. Every change adds one.
    generation: AtomicU64,
    addr: AtomicU64,
    len: AtomicU64,
    _spare: AtomicU64,
}

/// A key, split into its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentHandle {
    /// The index into its owner's table.
    pub index: u32,
    /// The generation, which is odd.
    pub generation: u32,
}

impl ExtentHandle {
    /// Returns the key's word. It is never the segment's key (0), because the generation is odd. It
    /// is never the key of any address (all ones), because the index is below 2^24.
    pub fn word(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }

    /// Splits a key's word. The key may never have been granted.
    pub fn from_word(word: u64) -> Self {
        Self {
            index: (word >> 32) as u32,
            generation: word as u32,
        }
    }
}

impl ExtentEntry {
    /// Puts an extent in force. Only the owner calls this, on an entry that is not in force.
    pub(crate) fn grant(&self, index: u32, addr: u64, len: u64) -> ExtentHandle {
        let generation = self.generation.load(Relaxed).wrapping_add(1) & 0xffff_ffff;
        debug_assert_eq!(generation % 2, 1);
        self.addr.store(addr, Relaxed);
        self.len.store(len, Relaxed);
        self.generation.store(generation, Release);
        ExtentHandle {
            index,
            generation: generation as u32,
        }
    }

    /// Takes an extent out of force. Returns `false` if it was not in force. The caller must call
    /// [`settled`] next.
    pub(crate) fn revoke(&self, handle: ExtentHandle) -> bool {
        let generation = u64::from(handle.generation);
        generation % 2 == 1
            && self
                .generation
                .compare_exchange(generation, (generation + 1) & 0xffff_ffff, SeqCst, Relaxed)
                .is_ok()
    }

    /// Returns the address and length if `handle` is in force.
    fn read(&self, handle: ExtentHandle) -> Option<(u64, u64)> {
        let generation = u64::from(handle.generation);
        if generation % 2 == 0 || self.generation.load(SeqCst) != generation {
            return None;
        }
        let place = (self.addr.load(Relaxed), self.len.load(Relaxed));
        fence(Acquire);
        (self.generation.load(Relaxed) == generation).then_some(place)
    }
}

/// Returns the hazard's word for an extent: its owner, index and generation. Never zero.
pub(crate) fn hazard_word(owner: u32, handle: ExtentHandle) -> u64 {
    // 16 bits of owner and 24 of index leave 24 of the generation. That tells an extent from its
    // predecessor. A false match only delays a revocation.
    (u64::from(owner) + 1) << 48
        | u64::from(handle.index & 0xff_ffff) << 24
        | u64::from(handle.generation & 0xff_ffff)
}

/// A current access. It ends when this is dropped.
pub(crate) struct ExtentGuard<'a> {
    hazard: &'a AtomicU64,
}

impl Drop for ExtentGuard<'_> {
    fn drop(&mut self) {
        self.hazard.store(0, Release);
    }
}

/// Begins an access to `owner`'s extent. Returns its address and length, which hold while the guard
/// lives. Returns `Ok(None)` if every hazard is in use.
///
/// # Errors
/// `Err(())` if the handle is not in force.
pub(crate) fn enter<'a>(
    hazards: &'a [AtomicU64],
    entry: &ExtentEntry,
    owner: u32,
    handle: ExtentHandle,
) -> Result<Option<(ExtentGuard<'a>, u64, u64)>, ()> {
    let word = hazard_word(owner, handle);
    let Some(hazard) = hazards.iter().find(|hazard| {
        hazard.load(Relaxed) == 0 && hazard.compare_exchange(0, word, SeqCst, Relaxed).is_ok()
    }) else {
        return Ok(None);
    };
    let guard = ExtentGuard { hazard };
    fence(SeqCst);
    match entry.read(handle) {
        Some((addr, len)) => Ok(Some((guard, addr, len))),
        None => Err(()),
    }
}

/// Returns true if none of `hazards` names the extent that was just revoked.
pub(crate) fn settled(hazards: &[AtomicU64], owner: u32, handle: ExtentHandle) -> bool {
    fence(SeqCst);
    let word = hazard_word(owner, handle);
    hazards.iter().all(|hazard| hazard.load(SeqCst) != word)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_matches_only_while_in_force() {
        let entry = ExtentEntry::default();
        let hazards: Vec<AtomicU64> = (0..HAZARDS).map(|_| AtomicU64::default()).collect();
        let first = entry.grant(3, 0x1000, 64);
        assert_eq!(ExtentHandle::from_word(first.word()), first);
        let (guard, addr, len) = enter(&hazards, &entry, 1, first).unwrap().unwrap();
        assert_eq!((addr, len), (0x1000, 64));
        assert!(entry.revoke(first));
        assert!(!entry.revoke(first), "revoked twice");
        assert!(!settled(&hazards, 1, first), "an access has not ended");
        drop(guard);
        assert!(settled(&hazards, 1, first));
        assert!(enter(&hazards, &entry, 1, first).is_err());
        let second = entry.grant(3, 0x2000, 64);
        assert!(enter(&hazards, &entry, 1, first).is_err(), "an old key");
        assert!(enter(&hazards, &entry, 1, second).unwrap().is_some());
        let forged = ExtentHandle {
            generation: 0,
            ..second
        };
        assert!(enter(&hazards, &entry, 1, forged).is_err());
    }

    #[test]
    fn no_more_accesses_than_hazards() {
        let entry = ExtentEntry::default();
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

    /// The owner frees the memory only after the peer's access has ended, or the peer is refused.
    #[test]
    fn loom_no_peer_accesses_a_revoked_extent() {
        loom::model(|| {
            let entry = Arc::new(ExtentEntry::default());
            let hazards = Arc::new([AtomicU64::default()]);
            let memory = Arc::new(UnsafeCell::new(1));
            let handle = entry.grant(0, 0, 8);
            let peer = thread::spawn({
                let (entry, hazards, memory) = (entry.clone(), hazards.clone(), memory.clone());
                move || {
                    if let Ok(Some((_guard, ..))) = enter(&*hazards, &entry, 0, handle) {
                        // SAFETY: loom fails the test if the owner writes at the same time.
                        memory.with(|value| assert_eq!(unsafe { *value }, 1));
                    }
                }
            });
            assert!(entry.revoke(handle));
            while !settled(&*hazards, 0, handle) {
                thread::yield_now();
            }
            // SAFETY: loom fails the test if the peer reads at the same time.
            memory.with_mut(|value| unsafe { *value = 2 });
            peer.join().unwrap();
        });
    }
}
