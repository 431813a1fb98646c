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
        Held, Table,
        sync::{AtomicU8, AtomicU32, Ordering::Relaxed},
    },
};

/// Peers whose tables are found by one pointer.
const GROUP: usize = 64;

/// Classes of lengths, to powers of two; the last is that of all longer ones.
pub(crate) const CLASSES: usize = 25;

/// Operations wait for their turn: hits may not pass them by for ever.
const CROWDED: u8 = 1;
/// Hits are to [ask](Hot::ask) first.
const ASKS: u8 = 2;
/// Something is to be [looked at again](Hot::look_again).
const DUE: u8 = 4;

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
    /// Why there are no hits at this moment, if there are none: one byte, which each hit looks at.
    turned: AtomicU8,
    /// Classes of lengths that are copied though they would be hits: puts, and gets.
    copied: [AtomicU32; 2],
    /// Operations that go to the engine yet, hit or not, to find out what they take.
    asking: AtomicU32,
}

/// What becomes of an operation that is no hit at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// It goes to the engine.
    Engine,
    /// It goes to the engine, or, if both sides are there, is [timed](crate::Engine::time_hit).
    Time,
    /// It goes to the engine, and is copied.
    Copy,
    /// It is a [hit](Hot::hit_asked) if both sides are there.
    Hit,
}

/// Both sides of an operation, held by a thread that gives them back when it has posted it, or
/// [keeps](Self::keep) them.
#[derive(Clone, Copy, Debug)]
#[must_use = "the references are given back by Hot::release"]
pub struct Hit<'a> {
    /// The key of the peer's extent.
    pub remote_key: u64,
    /// The key of the own extent.
    pub local_key: u64,
    peer: u32,
    /// At least one of both.
    remote: Option<Held<'a>>,
    local: Option<Held<'a>>,
}

/// Both sides of an operation, held for as long as it is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the references are given back by Hot::release_kept"]
pub struct KeptHit {
    /// The peer.
    pub peer: u32,
    /// The key of the peer's extent.
    pub remote_key: u64,
    /// The key of the own extent.
    pub local_key: u64,
    pub(crate) remote_slot: u32,
    local_slot: u32,
}

/// The key of memory that needs no registration.
const NO_KEY: u64 = u64::MAX;
/// In the place of a record of a side that needs none.
const NO_SLOT: u32 = u32::MAX;
/// In the place of a peer.
const NOBODY: u32 = u32::MAX;

impl Hit<'_> {
    /// To be given back later, maybe by another thread.
    #[inline]
    pub fn keep(&self) -> KeptHit {
        KeptHit {
            peer: self.peer,
            remote_key: self.remote_key,
            local_key: self.local_key,
            remote_slot: self.remote.map_or(NO_SLOT, Held::slot),
            local_slot: self.local.map_or(NO_SLOT, Held::slot),
        }
    }
}

impl KeptHit {
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
            turned: AtomicU8::new(0),
            copied: [AtomicU32::new(0), AtomicU32::new(0)],
            asking: AtomicU32::new(0),
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
    ) -> Option<Hit<'_>> {
        if self.turned.load(Relaxed) != 0 {
            return None;
        }
        self.both(peer, remote, local, len, direction)
    }

    /// As [`hit`](Self::hit), of an operation that has asked.
    pub fn hit_asked(
        &self,
        peer: u32,
        remote: u64,
        local: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        if self.is_crowded() {
            return None;
        }
        self.both(peer, remote, local, len, direction)
    }

    #[inline(always)]
    fn both(
        &self,
        peer: u32,
        remote: u64,
        local: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        let remote = self.buckets(remote, len)?;
        let remote_seen = self.peer(peer)?.seek(remote.0)?;
        let local = self.span(local, len)?;
        let local_seen = self.local.seek(local.0)?;
        let remote_side = remote_seen.hold(remote.0, remote.1, direction.remote())?;
        let Some(local_side) = local_seen.hold(local.0, local.1, direction.local()) else {
            // Whoever waits for it is looked after when the miss reaches the engine.
            let _ = remote_side.give_back();
            return None;
        };
        Some(Hit {
            remote_key: remote_side.key(),
            local_key: local_side.key(),
            peer,
            remote: Some(remote_side),
            local: Some(local_side),
        })
    }

    /// As [`hit`](Self::hit), for a put whose source the NIC takes along: the remote side alone. The
    /// key of the own side is that of no extent.
    #[inline]
    pub fn hit_remote(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
        if self.turned.load(Relaxed) != 0 {
            return None;
        }
        self.far_side(peer, remote, len)
    }

    /// As [`hit_remote`](Self::hit_remote), of an operation that has asked, or that goes no other way.
    pub fn hit_remote_asked(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
        if self.is_crowded() {
            return None;
        }
        self.far_side(peer, remote, len)
    }

    #[inline(always)]
    fn far_side(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
        let (first, last) = self.buckets(remote, len)?;
        let remote_side = (self.peer(peer)?.seek(first)?).hold(first, last, Use::Write)?;
        Some(Hit {
            remote_key: remote_side.key(),
            local_key: NO_KEY,
            peer,
            remote: Some(remote_side),
            local: None,
        })
    }

    /// Own memory alone, registered and writable, for the own NIC to change it. What misses goes
    /// to [`Engine::hold_own`](crate::Engine::hold_own).
    #[inline]
    pub fn hit_local(&self, local: u64, len: u64) -> Option<Hit<'_>> {
        if self.is_crowded() {
            return None;
        }
        let (first, last) = self.buckets(local, len)?;
        let local_side = (self.local.seek(first)?).hold(first, last, Use::Write)?;
        Some(Hit {
            remote_key: NO_KEY,
            local_key: local_side.key(),
            peer: NOBODY,
            remote: None,
            local: Some(local_side),
        })
    }

    /// Whether own memory is registered at this moment, which may be over at once. Holds nothing.
    pub fn is_registered(&self, local: u64, len: u64) -> bool {
        let Some((first, last)) = len.checked_sub(1).and_then(|_| self.span(local, len)) else {
            return false;
        };
        let mut bucket = first;
        while bucket <= last {
            match self.local.end_of(bucket) {
                Some(end) => bucket = end,
                None => return false,
            }
        }
        true
    }

    /// Gives a hit back after its transfer. `true`: somebody waits for that, and
    /// [`Engine::released`](crate::Engine::released) is due.
    #[inline(always)]
    #[must_use = "somebody may wait for it"]
    pub fn release(&self, hit: &Hit<'_>) -> bool {
        let remote_side = hit.remote.is_some_and(Held::give_back);
        let local_side = hit.local.is_some_and(Held::give_back);
        remote_side | local_side | self.is_crowded()
    }

    /// As [`release`](Self::release), of a hit that was kept.
    #[inline]
    #[must_use = "somebody may wait for it"]
    pub fn release_kept(&self, hit: &KeptHit) -> bool {
        let remote_side = (self.peer(hit.peer)).is_some_and(|table| table.release(hit.remote_slot));
        let local_side = (hit.local_slot()).is_some_and(|slot| self.local.release(slot));
        remote_side | local_side | self.is_crowded()
    }

    /// The first and the last bucket of some bytes, if they may be hit.
    #[inline(always)]
    fn buckets(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        if !self.caches || len == 0 {
            return None;
        }
        self.span(addr, len)
    }

    #[inline(always)]
    fn span(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let last = addr.checked_add(len - 1)?;
        Some((self.geometry.bucket_of(addr), self.geometry.bucket_of(last)))
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

    /// What becomes of an operation that is no hit at once.
    pub fn ask(&self, direction: Direction, len: u64) -> Ask {
        if self.turned.load(Relaxed) & ASKS == 0 {
            return Ask::Engine;
        }
        match self.asking() > 0 {
            _ if self.is_due() => Ask::Engine,
            true => Ask::Time,
            false if self.copies(direction, len) => Ask::Copy,
            false => Ask::Hit,
        }
    }

    /// Whether operations of that length are copied though they would be hits.
    pub fn copies(&self, direction: Direction, len: u64) -> bool {
        let copied = self.copied[direction as usize].load(Relaxed);
        copied >> class_of(len) & 1 == 1
    }

    pub(crate) fn set_copied(&self, direction: Direction, class: usize, copied: bool) {
        let (all, bit) = (&self.copied[direction as usize], 1 << class);
        match copied {
            true => all.fetch_or(bit, Relaxed),
            false => all.fetch_and(!bit, Relaxed),
        };
    }

    pub(crate) fn copies_some(&self) -> bool {
        self.copied.iter().any(|all| all.load(Relaxed) != 0)
    }

    /// So many operations to come go to the engine, hit or not.
    pub(crate) fn set_asking(&self, count: u32) {
        self.asking.store(count, Relaxed);
    }

    pub(crate) fn asking(&self) -> u32 {
        self.asking.load(Relaxed)
    }

    /// There were many hits: the next operation goes to the engine, which may look whether there is a
    /// better way by now.
    #[cold]
    pub fn look_again(&self) {
        self.turned.fetch_or(ASKS | DUE, Relaxed);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.turned.load(Relaxed) & DUE != 0
    }

    /// Whether it was, and is no more.
    pub(crate) fn take_due(&self) -> bool {
        self.is_due() && self.turned.fetch_and(!DUE, Relaxed) & DUE != 0
    }

    #[inline(always)]
    fn is_crowded(&self) -> bool {
        self.turned.load(Relaxed) & CROWDED != 0
    }

    pub(crate) fn set_turned(&self, crowded: bool, asks: bool) {
        let turned = (u8::from(crowded) * CROWDED) | (u8::from(asks) * ASKS);
        let before = self.turned.load(Relaxed);
        if before & !DUE != turned {
            // A hit may ask meanwhile that something is looked at again.
            self.turned.fetch_and(turned | DUE, Relaxed);
            self.turned.fetch_or(turned, Relaxed);
        }
    }
}

/// The class of a length.
pub(crate) fn class_of(len: u64) -> usize {
    (len.max(1).ilog2() as usize).min(CLASSES - 1)
}
