//! Registered memory: joins the engine of [`hydrant_pinning`] to a conduit whose NIC only reaches
//! registered memory.
//!
//! The engine decides behind a lock that is held only while it decides. The [driver](drive) carries
//! out the decisions, and the [outbox] sends messages to peers in the order decided. Transfers are
//! posted by the room above, through the [`Carrier`] that it hands in.
//!
//! All addresses are virtual. Memory in a peer's segment is addressed from the [base of the
//! segment](segments), memory in an exposed buffer from the [address that its owner told](loan).
//!
//! # The lock of the engine
//!
//! Each step of the engine gives messages to send and actions to do. Each list is in order; there
//! is no order between the two. The driver sends first, so that peers work while this rank
//! registers. Messages that nobody waits for may be held back (`OutgoingMessage::may_wait`). They
//! leave with other messages, before a user's handler, or at the end of the poll.
//!
//! The driver judges before it takes the lock: may a peer have what a message names? Under the lock
//! only one question is left: has memory been withdrawn since? A move must not overtake the release
//! that made room for it. So the outbox keeps the order in which messages were decided, whichever
//! thread decided them.
//!
//! # Persistent and transient memory
//!
//! Memory is persistent if Hydrant decides when it is unmapped: symmetric memory, exposed buffers, the bounce
//! memory. Only persistent memory stays registered after its use, is lent to peers, or is registered beyond the
//! operation's need. Transient memory is registered for one operation, unless its data goes inline or through a
//! slot of the bounce memory. A peer that names transient memory by its address gets a copy. [`lent`] knows
//! which memory is which. Where registrations follow the mapping (`follows_mapping`), all memory is persistent. Where a
//! monitor tells of [changes], memory of the program may stay registered, too.
//!
//! Symmetric memory is registered at allocation only under `pin-everything`. Otherwise the first access costs one
//! message, and M is spent on the memory in use. A program may have much memory registered in the [background].
//!
//! # Leases
//!
//! Each access to an exposed buffer holds a *lease* from before its key becomes an address until
//! the access ends, by whichever route. The end of a loan tells the peers that know of it, and
//! waits until the last lease is gone, here and there. Messages also name the *region* that they
//! mean: the segment, one exposed buffer, or the address space. The target judges them by the
//! region. So the next buffer at an address is never taken for the previous one.

mod background;
mod block;
mod bulk;
mod changes;
mod drive;
mod foreseen;

mod lent;
mod limits;
mod loan;
mod mapped;
mod outbox;
mod own;
mod persistent;
mod segments;
mod send;
mod watched;

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hydrant_conduit::{Conduit, Key, Remote, Standing, Ticket};
use hydrant_launch::Bootstrap;
use hydrant_monitor::Monitor;
use hydrant_pinning::{
    Advice, BucketLimits, BucketUsage, Direction, Engine, EngineOperation, Geometry, Hit, Hot,
    Impossible, KeptHit, OwnMemory, Strategy, TimedHit, wire::Grant,
};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;

pub use background::BulkRegistration;
pub(crate) use block::GrantRecord;
pub(crate) use drive::{Carrier, PieceTransfer, failed};
#[cfg(feature = "foresight")]
pub(crate) use foreseen::Foreseen;
pub(crate) use loan::Lease;
pub(crate) use own::{Extents, PATIENCE, not_registered};

use crate::{
    Error, Rank, Result, Settings,
    progress::{Outcome, Progress},
    uses::Uses,
};
use outbox::Outbox;
use segments::SegmentAddresses;

/// Tickets of the engine's operations; a conduit's never have this bit.
const OPERATION: u64 = 1 << 63;

/// The registrations of a rank on a conduit that needs registered memory.
pub(crate) struct Registration {
    progress: Arc<Progress>,
    /// Posts the engine's transfers and receives the outcomes of its operations; set once, when the
    /// job is composed.
    carrier: OnceLock<Weak<dyn Carrier>>,
    /// The part of the engine that needs no lock: the registrations on both sides.
    hot: Arc<Hot>,
    engine: Mutex<Engine>,
    /// Messages to peers that were decided and not sent yet.
    outbox: Mutex<Outbox>,
    /// Own memory that peers may reach.
    lent: lent::LentMemory,
    /// Exposed buffers of peers.
    known: RwLock<loan::KnownLoans>,
    segments: SegmentAddresses,
    /// The engine's answers to pins by their ids, until they are taken.
    pinned: Mutex<FxHashMap<u64, Result<Vec<Grant>, hydrant_pinning::Error>>>,
    /// Finished revocations by their ids, until they are taken.
    revoked: Mutex<FxHashMap<u64, ()>>,
    /// Receives each use of own memory; set once, where uses are predicted.
    uses: OnceLock<Arc<dyn Uses>>,
    /// The registered bytes over time, if they are recorded.
    series: OnceLock<foreseen::RegisteredSeries>,
    /// The next id of an operation, a pin or a revocation.
    next: AtomicU64,
    /// Ranks that are known to have ended, and the number of changes of standings by then.
    ended: Mutex<(u64, Vec<Rank>)>,
    strategy: Strategy,
    geometry: Geometry,
    limits: BucketLimits,
    /// True if a registration follows the mapping under it. It never does if a bucket has several
    /// pages, because only the mapped part of a bucket is registered.
    follows: bool,
    /// The most bytes of a put that go inline.
    inline: usize,
    /// True if own memory must be registered, too.
    registers_own: bool,
    /// The changes of own memory, where they are heard; set once, when the job is composed.
    changes: OnceLock<hydrant_monitor::MemoryChanges>,
    /// True if the kernel is asked to watch memory, too; false if the program's allocator alone tells.
    by_kernel: bool,
    /// True if peers reach a bucket of several pages only if the changes of all of it are heard. Then they may hit it by
    /// address, for whatever they hold a firehose on it.
    hears_of_shared: bool,
    /// True if there is always room to register an own word.
    reserve: bool,
    /// How much memory is registered at once.
    bulk: bulk::BulkSettings,
    /// Memory that is registered in the background.
    background: background::BulkQueue,
}

/// An engine with valid limits, made before the ranks agree on the job.
pub(crate) struct RegistrationSetup {
    engine: Engine,
    reserve: bool,
    strategy: Strategy,
    /// The address and the bytes of the own segment.
    segment: (u64, u64),
    /// True if peers may name memory by its address.
    anywhere: bool,
    follows: bool,
    inline: usize,
    registers_own: bool,
    /// The monitor that tells of changes of own memory.
    monitor: Option<&'static Monitor>,
    /// True if that may be the kernel.
    by_kernel: bool,
    bulk: bulk::BulkSettings,
}

impl RegistrationSetup {
    /// Makes the engine, if the conduit needs registered memory. `words`: NICs change words here,
    /// for which room is reserved.
    ///
    /// # Errors
    /// [`Error::Registration`] if the limits contradict each other.
    pub(crate) fn new(
        conduit: &dyn Conduit,
        settings: &Settings,
        words: bool,
    ) -> Result<Option<Self>> {
        let caps = conduit.caps();
        let Some(registration) = caps.registration else {
            return Ok(None);
        };
        let config = limits::config(settings, &registration, conduit)?;
        let strategy = config.strategy;
        let mut engine = Engine::new(config)?;
        let reserve = words && engine.reserve_for_own();
        let pages = engine.limits().geometry.pages();
        let follows = registration.follows_mapping && pages == 1;
        let monitor = changes::monitor(settings, follows)?;
        let by_kernel = settings.monitor != crate::MonitorKind::Allocator
            && monitor.is_some_and(|monitor| monitor.source().is_ok());
        let base = conduit
            .window(conduit.rank())
            .map(|window| window.as_ptr().addr() as u64)
            .ok_or_else(|| Error::other("the conduit does not map the own segment"))?;
        Ok(Some(Self {
            engine,
            reserve,
            strategy,
            segment: (base, caps.segment as u64),
            anywhere: settings.anywhere,
            follows,
            inline: registration.inline,
            registers_own: registration.local,
            monitor,
            by_kernel,
            bulk: bulk::BulkSettings::new(settings),
        }))
    }

    /// Publishes the address of the own segment, and whether this rank hears of changes. Other ranks can read both after
    /// the next fence.
    pub(crate) fn publish_segment(&self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        segments::publish(self.segment.0, self.monitor.is_some(), bootstrap)
    }
}

impl Registration {
    /// Makes the registration of a rank of the job. `bootstrap` knows the addresses of the peers'
    /// segments.
    pub(crate) fn new(
        setup: RegistrationSetup,
        progress: &Arc<Progress>,
        bootstrap: Arc<parking_lot::Mutex<Box<dyn Bootstrap>>>,
    ) -> Self {
        let (engine, rank) = (setup.engine, progress.rank);
        let limits = *engine.limits();
        let registration = Self {
            progress: Arc::clone(progress),
            carrier: OnceLock::new(),
            hot: Arc::clone(engine.hot()),
            engine: Mutex::new(engine),
            outbox: Mutex::default(),
            lent: lent::LentMemory::new(
                rank,
                setup.segment,
                setup.anywhere,
                setup.follows,
                !setup.follows
                    && (limits.geometry.pages() > 1 || setup.strategy == Strategy::Foresight),
            ),
            known: RwLock::default(),
            segments: SegmentAddresses::new(
                progress.size,
                rank,
                (setup.segment.0, setup.monitor.is_some()),
                bootstrap,
            ),
            hears_of_shared: setup.monitor.is_some()
                && setup.anywhere
                && !setup.follows
                && limits.geometry.pages() > 1,
            pinned: Mutex::default(),
            revoked: Mutex::default(),
            uses: OnceLock::new(),
            series: OnceLock::new(),
            next: AtomicU64::new(1),
            ended: Mutex::default(),
            strategy: setup.strategy,
            geometry: limits.geometry,
            limits,
            follows: setup.follows,
            inline: setup.inline,
            registers_own: setup.registers_own,
            changes: OnceLock::new(),
            by_kernel: setup.by_kernel,
            reserve: setup.reserve,
            bulk: setup.bulk,
            background: background::BulkQueue::default(),
        };
        if let Some(monitor) = setup.monitor {
            registration.hear_of_changes(monitor);
        }
        registration
    }

    /// Sets the carrier of the engine's transfers. Called once, when the job is composed.
    pub(crate) fn carry_by(&self, carrier: Weak<dyn Carrier>) {
        let set = self.carrier.set(carrier);
        debug_assert!(set.is_ok(), "transfers have two carriers");
    }

    /// Returns the strategy in force.
    #[inline]
    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Returns the limits of registration and its units.
    pub(crate) fn limits(&self) -> &BucketLimits {
        &self.limits
    }

    /// Returns the most bytes of a put that go inline.
    #[inline]
    pub(crate) fn inline(&self) -> usize {
        self.inline
    }

    /// Returns true if own memory must be registered, too.
    #[inline]
    pub(crate) fn registers_own(&self) -> bool {
        self.registers_own
    }

    /// Returns the virtual address of `place` at `rank`, and the lease that keeps the memory lent.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Conduit`] with the extent's bounds, [`Error::PeerLost`].
    #[inline(always)]
    pub(crate) fn address(
        &self,
        rank: Rank,
        place: Remote,
        len: u64,
    ) -> Result<(u64, Option<Lease>)> {
        Ok(match place.key {
            Key::SEGMENT => (self.segments.of(rank)? + place.offset, None),
            Key::ANY => (place.offset, None),
            Key(key) => {
                let (at, lease) = self.exposed_at(rank, key, place.offset, len)?;
                (at, Some(lease))
            }
        })
    }

    /// Returns the address of a peer's segment, if it is known.
    #[inline(always)]
    pub(crate) fn segment(&self, rank: Rank) -> Option<u64> {
        self.segments.known(rank)
    }

    /// Returns the counts of the engine.
    pub(crate) fn stats(&self) -> hydrant_pinning::Stats {
        self.engine.lock().stats()
    }

    /// Returns the use of registered memory at this moment, in buckets, and the counts of the engine.
    pub(crate) fn usage(&self) -> (BucketUsage, hydrant_pinning::Stats) {
        let engine = self.engine.lock();
        (engine.usage(), engine.stats())
    }

    /// Returns the impossible states that the engine met, if any.
    pub(crate) fn impossible(&self) -> Option<Impossible> {
        self.engine.lock().impossible()
    }

    /// Returns whether a peer takes back memory that operations in flight may use.
    pub(crate) fn is_asked_back(&self) -> bool {
        self.engine.lock().is_asked_back()
    }

    /// Takes references to both sides of a transfer, if both are registered: [`Hot::hit`].
    #[inline(always)]
    pub(crate) fn hold_both(
        &self,
        peer: Rank,
        remote: u64,
        own: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        self.hot.hit(peer.0, remote, own, len, direction)
    }

    /// Takes a reference to the remote side of a transfer whose own side needs no registration.
    #[inline(always)]
    pub(crate) fn hold_remote(&self, peer: Rank, remote: u64, len: u64) -> Option<Hit<'_>> {
        self.hot.hit_remote(peer.0, remote, len)
    }

    /// Returns the advice of `auto` for an operation that was no hit at once.
    pub(crate) fn ask(&self, direction: Direction, len: u64) -> Advice {
        self.hot.ask(direction, len)
    }

    /// Returns whether an operation with references to both sides is posted directly and timed. The
    /// caller waits for its completion.
    pub(crate) fn time_hit(&self, peer: Rank, direction: Direction, len: u64) -> Option<TimedHit> {
        self.engine.lock().time_hit(peer.0, direction, len)
    }

    /// Records the time that it took.
    pub(crate) fn record_hit_time(&self, timed: TimedHit, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.engine.lock().record_hit_time(timed, nanos);
    }

    /// Returns whether `auto` copies operations of that length even if they would be hits.
    pub(crate) fn copies(&self, direction: Direction, len: u64) -> bool {
        self.hot.copies(direction, len)
    }

    /// After many hits, has `auto` find out whether copies take less time by now.
    #[cold]
    pub(crate) fn request_comparison(&self) {
        if self.strategy == Strategy::Auto {
            self.hot.request_comparison();
        }
    }

    /// As [`hold_both`](Self::hold_both), for an operation that has asked for advice.
    pub(crate) fn hold_unless_crowded(
        &self,
        peer: Rank,
        remote: u64,
        (own, stands): (u64, OwnMemory),
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        match stands {
            OwnMemory::Persistent => self
                .hot
                .hit_unless_crowded(peer.0, remote, own, len, direction),
            OwnMemory::Inline | OwnMemory::Unregistered => {
                self.hot.hit_remote_unless_crowded(peer.0, remote, len)
            }
            OwnMemory::Transient => None,
        }
    }

    /// As [`hold_remote`](Self::hold_remote), for an operation that has asked for advice or has no
    /// other route.
    pub(crate) fn hold_remote_unless_crowded(
        &self,
        peer: Rank,
        remote: u64,
        len: u64,
    ) -> Option<Hit<'_>> {
        self.hot.hit_remote_unless_crowded(peer.0, remote, len)
    }

    /// Has the next miss of a peer's word attach a firehose, whatever that costs.
    pub(crate) fn want(&self, peer: Rank, addr: u64) {
        if self.strategy == Strategy::Auto {
            self.engine.lock().want(peer.0, addr);
        }
    }

    /// Returns the references of a hit.
    #[inline(always)]
    pub(crate) fn release(&self, hit: &Hit<'_>) {
        if self.hot.release(hit) {
            self.released(&hit.keep());
        }
    }

    /// As [`release`](Self::release), for a hit that was kept while its operation was in flight.
    pub(crate) fn release_kept(&self, hit: &KeptHit) {
        if self.hot.release_kept(hit) {
            self.released(hit);
        }
    }

    /// Reports returned references to the engine, because an operation waits for them.
    #[cold]
    fn released(&self, hit: &KeptHit) {
        self.step(&[], |engine, out| engine.released(hit, out));
    }

    /// Starts an operation of the engine. The carrier is told of its end under this
    /// [ticket](Self::ticket).
    ///
    /// # Errors
    /// The engine's, if it refuses the operation at once. The carrier is then told nothing.
    pub(crate) fn begin(&self, operation: EngineOperation) -> Result<(), hydrant_pinning::Error> {
        let mut begun = Ok(());
        self.step(&[], |engine, out| {
            if engine.wants_time() {
                engine.tell_time(self.progress.conduit().now().as_nanos() as u64);
            }
            begun = engine.begin(operation, out);
        });
        begun
    }

    /// Returns the ticket of an operation of the engine.
    pub(crate) fn ticket(id: u64) -> Ticket {
        Ticket(OPERATION | id)
    }

    /// Reports the outcome of a transfer that the engine asked for.
    pub(crate) fn transferred(&self, piece: u64, peer: Rank, outcome: Outcome) {
        let outcome = outcome.map_err(|cause| drive::access_failed(peer, &cause));
        self.step(&[], |engine, out| engine.transferred(piece, outcome, out));
    }

    /// Returns whether own memory is persistent, so that it may be kept registered.
    #[inline]
    pub(crate) fn lasts(&self, addr: u64, len: u64) -> bool {
        self.lent.is_persistent(addr, len)
    }

    /// Returns whether a bucket may hold both persistent and transient memory.
    pub(crate) fn shares_buckets(&self) -> bool {
        !self.follows && self.geometry.pages() > 1
    }

    /// Returns whether memory of a peer that is named by its address is always copied. In a bucket of several pages, some
    /// may be unmapped while others last, such as those of an exposed buffer. So the peer must hear of all of them.
    ///
    /// # Errors
    /// The launcher's.
    pub(crate) fn copies_by_address(&self, peer: Rank) -> Result<bool> {
        if !self.shares_buckets() {
            return Ok(false);
        }
        // Memory that is registered from the start is registered unheard.
        Ok(self.strategy == Strategy::PinEverything || !self.segments.hears(peer)?)
    }

    /// Returns a new number for an operation, a pin or a revocation.
    pub(crate) fn name(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Returns the known exposed buffers of peers.
    fn known_loans(&self) -> RwLockReadGuard<'_, loan::KnownLoans> {
        self.known.read()
    }

    fn change_known<R>(&self, change: impl FnOnce(&mut loan::KnownLoans) -> R) -> R {
        change(&mut self.known.write())
    }

    /// Releases what ended ranks held, and fails operations that wait for them. `changes`: the
    /// number of changes of standings.
    pub(crate) fn handle_ended_peers(&self, changes: u64) {
        let progress = &self.progress;
        let ended: Vec<Rank> = {
            let mut known = self.ended.lock();
            if known.0 == changes {
                return;
            }
            known.0 = changes;
            // Nobody answers a rank that counts as lost, or returns memory that it lent them.
            let alone = progress.is_lost_itself();
            let new: Vec<Rank> = (0..progress.size)
                .map(Rank)
                .filter(|rank| *rank != progress.rank && !known.1.contains(rank))
                .filter(|rank| alone || progress.conduit().standing(*rank) != Standing::Present)
                .collect();
            known.1.extend(&new);
            new
        };
        for rank in ended {
            self.peer_ended(rank);
        }
    }
}
