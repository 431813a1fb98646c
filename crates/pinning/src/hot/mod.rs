//! The fast path: a hit finds both sides registered, without a lock.
//!
//! All threads of a rank share it. A hit [announces](crate::announcements) both records in memory of
//! its own thread, and clears the announcement after the transfer. So it has no locked instruction,
//! and hits of different threads share no cache line that they write. Every miss goes to the
//! [`Engine`](crate::Engine), behind the lock of the layer above.
//!
//! Both sides are looked up before they are announced, so that the two searches overlap. A thread
//! without a free place for an announcement counts references in the records instead.

mod hit;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use hit::{Hit, KeptHit};

use crate::{
    Direction, Geometry,
    announcements::Announcements,
    sync::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
    table::BucketTable,
};

/// The number of peers in a group, which one pointer leads to.
const GROUP: usize = 64;

/// The number of classes of lengths, one for each power of two. The last class has all longer
/// lengths.
pub(crate) const CLASSES: usize = 25;

/// Flag: operations wait for their turn, so hits must not overtake them forever.
const CROWDED: u32 = 1;
/// Flag: an operation must [ask](Hot::ask) before it hits.
const ASKS: u32 = 2;
/// Flag: a [comparison of the routes](Hot::request_comparison) is due.
const DUE: u32 = 4;
/// Flag: misses have [noted](Hot::take_missed) records, so the next operation goes to the engine.
const MISSED: u32 = 8;
/// Flag: peers have not answered yet that they forgot own memory that [changed](Hot::change_begins).
const UNANSWERED: u32 = 16;
/// One change of own memory that begins. Changes are counted above the flags, because one may begin while
/// another is made known.
const CHANGE: u32 = 1 << 8;
/// The flags that [`Hot::set_turned`] leaves alone, because other threads set them.
const OTHERS: u32 = !(CROWDED | ASKS | UNANSWERED);

type PeerGroup = Box<[OnceLock<Arc<BucketTable>>; GROUP]>;

/// The part of an engine that all threads share.
#[derive(Debug)]
pub struct Hot {
    /// The cut of addresses into buckets; never changed.
    geometry: Geometry,
    /// True if the strategy keeps registrations on both sides.
    caches: bool,
    /// The announcements of hits in flight. Hits and their ends change them.
    announcements: Arc<Announcements>,
    /// The records that misses announced for a moment while the engine waited for them. Misses add
    /// some, and the engine takes them at its next step.
    missed: Mutex<Vec<KeptHit>>,
    /// The table of own memory. The local table's editor changes it.
    local: Arc<BucketTable>,
    /// The firehose tables of peers, each added when its peer is first used. This array is all that
    /// is allocated for other peers.
    peers: Box<[OnceLock<PeerGroup>]>,
    /// The flags that keep operations from the fast path, and the changes of own memory that the engine does not know
    /// yet. Each hit reads this one word.
    turned: AtomicU32,
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
            announcements: Arc::clone(local.announcements()),
            missed: Mutex::default(),
            local,
            peers: (0..(ranks as usize).div_ceil(GROUP))
                .map(|_| OnceLock::new())
                .collect(),
            turned: AtomicU32::new(0),
            copied: [AtomicU32::new(0), AtomicU32::new(0)],
            asking: AtomicU32::new(0),
        }
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
        group[peer as usize % GROUP].get()
    }

    /// The announcements, which the tables of all peers share.
    pub(crate) fn announcements(&self) -> &Arc<Announcements> {
        &self.announcements
    }

    /// Takes the records that misses held for a moment while the engine waited for them.
    pub(crate) fn take_missed(&self) -> Vec<KeptHit> {
        if self.turned.load(Relaxed) & MISSED == 0 {
            return Vec::new();
        }
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        self.turned.fetch_and(!MISSED, Relaxed);
        std::mem::take(&mut missed)
    }

    fn add_missed(&self, records: KeptHit) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.push(records);
        self.turned.fetch_or(MISSED, Relaxed);
    }

    /// Adds the table of a peer.
    ///
    /// # Panics
    ///
    /// If the table's editor looks through other announcements.
    pub(crate) fn add_peer(&self, peer: u32, table: &Arc<BucketTable>) {
        let is_ours = Arc::ptr_eq(&self.announcements, table.announcements());
        assert!(is_ours, "a table with announcements of its own");
        let Some(group) = self.peers.get(peer as usize / GROUP) else {
            return;
        };
        let group = group.get_or_init(|| Box::new([const { OnceLock::new() }; GROUP]));
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

    /// Notes that a change of own memory begins: no operation is a hit until the engine [knows](Self::changes_known)
    /// of it. Costs a locked instruction, and takes no lock.
    pub fn change_begins(&self) {
        self.turned.fetch_add(CHANGE, SeqCst);
    }

    /// Notes that so many changes are known to the engine, or were none.
    pub fn changes_known(&self, count: u32) {
        self.turned.fetch_sub(count * CHANGE, SeqCst);
    }

    /// Returns true if a change of own memory has begun that the engine does not know yet.
    #[inline(always)]
    pub fn has_changes(&self) -> bool {
        self.turned.load(SeqCst) >= CHANGE
    }

    /// Returns true if a change of own memory is not known to the engine yet, or not to all peers that reach the
    /// memory.
    #[inline(always)]
    pub fn is_unsettled(&self) -> bool {
        self.turned.load(SeqCst) >= UNANSWERED
    }

    pub(crate) fn set_turned(&self, crowded: bool, asks: bool, unanswered: bool) {
        let turned = (u32::from(crowded) * CROWDED)
            | (u32::from(asks) * ASKS)
            | (u32::from(unanswered) * UNANSWERED);
        let before = self.turned.load(Relaxed);
        if before & !OTHERS != turned {
            // A thread may ask for a comparison, miss, or change memory meanwhile, so their part is left alone.
            self.turned.fetch_and(turned | OTHERS, SeqCst);
            self.turned.fetch_or(turned, SeqCst);
        }
    }
}

/// The class of a length.
pub(crate) fn class_of(len: u64) -> usize {
    (len.max(1).ilog2() as usize).min(CLASSES - 1)
}
