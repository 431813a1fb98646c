//! The fast path: a hit finds both sides registered, without a lock.
//!
//! All threads of a rank share it. A hit takes one reference on each side and gives it back after
//! the transfer. It writes the two records of its buckets and nothing else. So hits of different
//! peers, and of different buckets, share no cache line. Every miss goes to the
//! [`Engine`](crate::Engine), behind the lock of the layer above.
//!
//! Each reference is a compare-and-swap on a word that holds both the bucket's number and its count. So it is a
//! reference to the bucket that was meant, however the table changes meanwhile. Both sides are looked up before one is
//! taken, because a locked instruction lets nothing overtake it.

use std::sync::{Arc, OnceLock};

use crate::{
    Direction, Geometry, Use,
    table::{
        BucketTable, HeldRecord,
        sync::{AtomicU8, AtomicU32, Ordering::Relaxed},
    },
};

/// The number of peers in a group, which one pointer leads to.
const GROUP: usize = 64;

/// The number of classes of lengths, one for each power of two. The last class has all longer
/// lengths.
pub(crate) const CLASSES: usize = 25;

/// Flag: operations wait for their turn, so hits must not overtake them forever.
const CROWDED: u8 = 1;
/// Flag: an operation must [ask](Hot::ask) before it hits.
const ASKS: u8 = 2;
/// Flag: a [comparison of the routes](Hot::request_comparison) is due.
const DUE: u8 = 4;

type PeerGroup = Box<[OnceLock<Arc<BucketTable>>]>;

/// The part of an engine that all threads share.
#[derive(Debug)]
pub struct Hot {
    /// The cut of addresses into buckets; never changed.
    geometry: Geometry,
    /// True if the strategy keeps registrations on both sides.
    caches: bool,
    /// The table of own memory. The local table's editor changes it.
    local: Arc<BucketTable>,
    /// The firehose tables of peers, each added when its peer is first used. This array is all that
    /// is allocated for other peers.
    peers: Box<[OnceLock<PeerGroup>]>,
    /// The flags that keep operations from the fast path. Each hit reads this one byte.
    turned: AtomicU8,
    /// The classes of lengths that are copied although they would hit: first of puts, then of gets.
    copied: [AtomicU32; 2],
    /// The number of operations to come that go to the engine, hit or not, so that it can time
    /// them.
    asking: AtomicU32,
}

/// The advice for an operation that did not hit at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// The operation goes to the engine.
    Engine,
    /// The operation goes to the engine, or is [timed](crate::Engine::time_hit) if both sides are
    /// registered.
    Time,
    /// The operation goes to the engine, which copies it.
    Copy,
    /// The operation [hits](Hot::hit_unless_crowded) if both sides are registered.
    Hit,
}

/// Both sides of an operation, held by the thread that posts it. The thread gives them back after
/// the operation, or [keeps](Self::keep) them.
#[derive(Clone, Copy, Debug)]
#[must_use = "the references are given back by Hot::release"]
pub struct Hit<'a> {
    /// The key of the peer's extent.
    pub remote_key: u64,
    /// The key of the own extent.
    pub local_key: u64,
    peer: u32,
    /// At least one of the two sides is there.
    remote: Option<HeldRecord<'a>>,
    local: Option<HeldRecord<'a>>,
}

/// Both sides of an operation, held while the operation is in flight.
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

/// The key of a side that needs no registration.
const NO_KEY: u64 = u64::MAX;
/// The slot of a side that needs no record.
const NO_SLOT: u32 = u32::MAX;
/// The peer of a hit on own memory alone.
const NOBODY: u32 = u32::MAX;

impl Hit<'_> {
    /// Returns a copy that any thread may give back later.
    #[inline]
    pub fn keep(&self) -> KeptHit {
        KeptHit {
            peer: self.peer,
            remote_key: self.remote_key,
            local_key: self.local_key,
            remote_slot: self.remote.map_or(NO_SLOT, HeldRecord::slot),
            local_slot: self.local.map_or(NO_SLOT, HeldRecord::slot),
        }
    }
}

impl KeptHit {
    /// The slot of the own side, if this hit holds one.
    pub(crate) fn local_slot(&self) -> Option<u32> {
        (self.local_slot != NO_SLOT).then_some(self.local_slot)
    }
}

impl Hot {
    pub(crate) fn new(
        geometry: Geometry,
        ranks: u32,
        caches: bool,
        local: Arc<BucketTable>,
    ) -> Self {
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

    /// Finds both sides registered under one key each, and holds them. After a miss, call
    /// [`Engine::begin`](crate::Engine::begin). The miss may have held one side for a moment that
    /// another operation waits for, and only the engine makes up for that.
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

    /// As [`hit`](Self::hit), for an operation that has asked.
    pub fn hit_unless_crowded(
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
            // The engine serves the waiter of this side when the miss reaches it.
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

    /// As [`hit`](Self::hit), for a put with inline data: it holds the remote side alone. The local
    /// key is the key of no extent.
    #[inline]
    pub fn hit_remote(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
        if self.turned.load(Relaxed) != 0 {
            return None;
        }
        self.far_side(peer, remote, len)
    }

    /// As [`hit_remote`](Self::hit_remote), for an operation that has asked, or that has no other
    /// route.
    pub fn hit_remote_unless_crowded(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
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

    /// Holds own memory alone, registered and writable, for the own NIC to change it. After a miss,
    /// call [`Engine::hold_own`](crate::Engine::hold_own).
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

    /// Returns true if own memory is registered at this moment, which may end at once. It holds
    /// nothing.
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

    /// Gives a hit back after its transfer. Returns true if an operation waits for that: then call
    /// [`Engine::released`](crate::Engine::released).
    #[inline(always)]
    #[must_use = "somebody may wait for it"]
    pub fn release(&self, hit: &Hit<'_>) -> bool {
        let remote_side = hit.remote.is_some_and(HeldRecord::give_back);
        let local_side = hit.local.is_some_and(HeldRecord::give_back);
        remote_side | local_side | self.is_crowded()
    }

    /// As [`release`](Self::release), for a hit that was kept.
    #[inline]
    #[must_use = "somebody may wait for it"]
    pub fn release_kept(&self, hit: &KeptHit) -> bool {
        let remote_side = (self.peer(hit.peer)).is_some_and(|table| table.release(hit.remote_slot));
        let local_side = (hit.local_slot()).is_some_and(|slot| self.local.release(slot));
        remote_side | local_side | self.is_crowded()
    }

    /// The first and the last bucket of a byte range, if the fast path may serve it.
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
    fn peer(&self, peer: u32) -> Option<&Arc<BucketTable>> {
        let group = self.peers.get(peer as usize / GROUP)?.get()?;
        group.get(peer as usize % GROUP)?.get()
    }

    pub(crate) fn add_peer(&self, peer: u32, table: &Arc<BucketTable>) {
        let Some(group) = self.peers.get(peer as usize / GROUP) else {
            return;
        };
        let group = group.get_or_init(|| (0..GROUP).map(|_| OnceLock::new()).collect());
        let _ = group[peer as usize % GROUP].set(Arc::clone(table));
    }

    /// Returns the advice for an operation that did not hit at once.
    pub fn ask(&self, direction: Direction, len: u64) -> Advice {
        if self.turned.load(Relaxed) & ASKS == 0 {
            return Advice::Engine;
        }
        match self.asking() > 0 {
            _ if self.is_due() => Advice::Engine,
            true => Advice::Time,
            false if self.copies(direction, len) => Advice::Copy,
            false => Advice::Hit,
        }
    }

    /// Returns true if operations of this length are copied although they would hit.
    pub fn copies(&self, direction: Direction, len: u64) -> bool {
        let copied = self.copied[direction as usize].load(Relaxed);
        copied >> class_of(len) & 1 == 1
    }

    pub(crate) fn set_copied(&self, direction: Direction, class: usize, copied: bool) {
        let (all, bit) = (&self.copied[direction as usize], 1 << class);
        if copied {
            all.fetch_or(bit, Relaxed)
        } else {
            all.fetch_and(!bit, Relaxed)
        };
    }

    pub(crate) fn copies_some(&self) -> bool {
        self.copied.iter().any(|all| all.load(Relaxed) != 0)
    }

    /// Sends the next `count` operations to the engine, hit or not.
    pub(crate) fn set_asking(&self, count: u32) {
        self.asking.store(count, Relaxed);
    }

    pub(crate) fn asking(&self) -> u32 {
        self.asking.load(Relaxed)
    }

    /// Asks the engine to compare the routes again, after many hits: the next operation goes to the
    /// engine.
    #[cold]
    pub fn request_comparison(&self) {
        self.turned.fetch_or(ASKS | DUE, Relaxed);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.turned.load(Relaxed) & DUE != 0
    }

    /// Clears the due comparison; returns true if one was due.
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
            // A thread may ask for a comparison meanwhile, so DUE is left alone.
            self.turned.fetch_and(turned | DUE, Relaxed);
            self.turned.fetch_or(turned, Relaxed);
        }
    }
}

/// The class of a length.
pub(crate) fn class_of(len: u64) -> usize {
    (len.max(1).ilog2() as usize).min(CLASSES - 1)
}
