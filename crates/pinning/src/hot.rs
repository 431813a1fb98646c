//! The hit: both sides registered, found without a lock.
//!
//! All threads of a rank share it. A hit takes one reference on each side and gives it back
//! after the transfer; it writes the two records of its buckets and nothing else, so hits to
//! different peers, and of different buckets, share no line. What is not a hit goes to the
//! [`Engine`](crate::Engine), behind the lock of the layer above.

use std::sync::{Arc, OnceLock};

use crate::{
    Direction, Geometry, Use,
    table::{
        Table,
        sync::{AtomicBool, Ordering::Relaxed},
    },
};

/// Peers whose tables are found by one pointer.
const GROUP: usize = 64;

type Group = Box<[OnceLock<Arc<Table>>]>;

/// What threads share of an engine.
#[derive(Debug)]
pub struct Hot {
    /// How addresses are cut into buckets; never changed.
    geometry: Geometry,
    /// Whether the strategy keeps registrations on both sides.
    caches: bool,
    /// The table of own memory, which the local table's editor changes.
    local: Arc<Table>,
    /// The firehose tables of peers, added when a peer is first used. Nothing is allocated for peers never spoken to but this.
    peers: Box<[OnceLock<Group>]>,
    /// Operations wait for their turn: hits may not pass them by for ever.
    crowded: AtomicBool,
}

/// Both sides of an operation, held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the references are given back by Hot::release"]
pub struct Hit {
    /// The peer.
    pub peer: u32,
    /// The key of the peer's extent.
    pub remote_key: u64,
    /// The key of the own extent.
    pub local_key: u64,
    pub(crate) remote_slot: u32,
    local_slot: u32,
}

/// In the place of a record of the own side, where that needs none.
const NO_SLOT: u32 = u32::MAX;
/// In the place of a peer.
const NOBODY: u32 = u32::MAX;

impl Hit {
    /// The record of the own side, if that is held.
    pub(crate) fn local_slot(&self) -> Option<u32> {
        (self.local_slot != NO_SLOT).then_some(self.local_slot)
    }
}

impl Hot {
    pub(crate) fn new(geometry: Geometry, ranks: u32, caches: bool, local: Arc<Table>) -> Self {
        Self {
            geometry,
            caches,
            local,
            peers: (0..(ranks as usize).div_ceil(GROUP))
                .map(|_| OnceLock::new())
                .collect(),
            crowded: AtomicBool::new(false),
        }
    }

    /// Finds both sides registered under one key each, and holds them.
    /// What misses goes to [`Engine::begin`](crate::Engine::begin): a miss may have held one
    /// side for a moment that somebody else waits for, and only the engine makes up for that.
    #[inline]
    pub fn hit(
        &self,
        peer: u32,
        remote: u64,
        local: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit> {
        if !self.caches || len == 0 || self.crowded.load(Relaxed) {
            return None;
        }
        let table = self.peer(peer)?;
        let remote_side = self.hold(table, remote, len, direction.remote())?;
        let Some(local_side) = self.hold(&self.local, local, len, direction.local()) else {
            // Whoever waits for it is looked after when the miss reaches the engine.
            let _ = table.release(remote_side.0);
            return None;
        };
        Some(Hit {
            peer,
            remote_key: remote_side.1,
            local_key: local_side.1,
            remote_slot: remote_side.0,
            local_slot: local_side.0,
        })
    }

    /// As [`hit`](Self::hit), for a put whose source the NIC takes along: the remote side alone. The
    /// key of the own side is that of no extent.
    #[inline]
    pub fn hit_remote(&self, peer: u32, remote: u64, len: u64) -> Option<Hit> {
        if !self.caches || len == 0 || self.crowded.load(Relaxed) {
            return None;
        }
        let remote_side = self.hold(self.peer(peer)?, remote, len, Use::Write)?;
        Some(Hit {
            peer,
            remote_key: remote_side.1,
            local_key: u64::MAX,
            remote_slot: remote_side.0,
            local_slot: NO_SLOT,
        })
    }

    /// Own memory alone, registered and writable, for the own NIC to change it. What misses goes
    /// to [`Engine::hold_own`](crate::Engine::hold_own).
    #[inline]
    pub fn hit_local(&self, local: u64, len: u64) -> Option<Hit> {
        if !self.caches || len == 0 || self.crowded.load(Relaxed) {
            return None;
        }
        let local_side = self.hold(&self.local, local, len, Use::Write)?;
        Some(Hit {
            peer: NOBODY,
            remote_key: u64::MAX,
            local_key: local_side.1,
            remote_slot: NO_SLOT,
            local_slot: local_side.0,
        })
    }

    /// Gives a hit back after its transfer. `true`: somebody waits for that, and
    /// [`Engine::released`](crate::Engine::released) is due.
    #[inline]
    #[must_use = "somebody may wait for it"]
    pub fn release(&self, hit: &Hit) -> bool {
        let remote_side = (self.peer(hit.peer)).is_some_and(|table| table.release(hit.remote_slot));
        let local_side = (hit.local_slot()).is_some_and(|slot| self.local.release(slot));
        remote_side | local_side | self.crowded.load(Relaxed)
    }

    #[inline(always)]
    fn hold(&self, table: &Table, addr: u64, len: u64, used: Use) -> Option<(u32, u64)> {
        let last = addr.checked_add(len - 1)?;
        let bucket_of = |addr| self.geometry.bucket_of(addr);
        table.hold(bucket_of(addr), bucket_of(last), used)
    }

    #[inline(always)]
    fn peer(&self, peer: u32) -> Option<&Arc<Table>> {
        let group = self.peers.get(peer as usize / GROUP)?.get()?;
        group.get(peer as usize % GROUP)?.get()
    }

    pub(crate) fn add_peer(&self, peer: u32, table: &Arc<Table>) {
        let Some(group) = self.peers.get(peer as usize / GROUP) else {
            return;
        };
        let group = group.get_or_init(|| (0..GROUP).map(|_| OnceLock::new()).collect());
        let _ = group[peer as usize % GROUP].set(Arc::clone(table));
    }

    pub(crate) fn set_crowded(&self, crowded: bool) {
        self.crowded.store(crowded, Relaxed);
    }
}
