//! Registered memory: the engine of [`hydrant_pinning`] joined to a conduit whose NIC can only
//! touch memory that was registered.
//!
//! The engine decides, behind a lock that is held while it does and never while anything is done:
//! the [driver](drive) does what it says, and messages to peers leave in the order decided, through
//! the [outbox]. The transfers that it says are the room above's to post, which handed itself in as
//! the [`Carrier`].
//!
//! All addresses are virtual ones: a place in a peer's segment is counted from where the peer
//! [has it](segments), a place in an exposed buffer from where its owner [says](loan) it lies.
//!
//! # The lock of the engine
//!
//! Each step of the engine gives messages to send and actions to do. Each list is in order; there is no order
//! between the two. The driver sends first, so that peers work while this rank registers. Messages whose
//! asker already has what it waited for may wait (`OutgoingMessage::may_wait`). They leave with other messages,
//! before a user's handler, or at the end of the poll.
//!
//! The driver judges before it takes the lock whether a peer may have what a message names. Under the lock only
//! one question is left: has memory gone since? A move must not overtake the release that made room
//! for it. So the outbox keeps the order in which messages were decided, whichever thread decided them.
//!
//! # Persistent and transient memory
//!
//! Memory is persistent if Hydrant decides when it is unmapped: symmetric memory, exposed buffers, the bounce
//! memory. Only persistent memory stays registered after its use, is lent to peers, or is registered beyond the
//! operation's need. Transient memory is registered for one operation, unless its data goes inline or through a
//! slot of the bounce memory. A peer that names transient memory by its address gets a copy. [`lent`] knows
//! which memory is which. Where registrations follow the mapping (`follows_mapping`), all memory is persistent.
//!
//! Symmetric memory is registered at allocation only under `pin-everything`. Otherwise the first access costs one
//! message, and M is spent on the memory in use.
//!
//! # Leases
//!
//! Each access to an exposed buffer holds a *lease* from before its key becomes an address until the access is
//! over, by whichever route. The end of a loan tells the peers that know of it, and waits until the last lease is
//! gone, here and there. Messages also name the *region* that they mean: the segment, one exposed buffer, the
//! address space. The target judges them by the region. So the next buffer at an address is never taken for the
//! previous one.

mod block;
mod drive;
mod foreseen;
mod lasting;
mod lent;
mod limits;
mod loan;
mod mapped;
mod outbox;
mod own;
mod segments;

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hydrant_conduit::{Conduit, Key, Remote, Standing, Ticket};
use hydrant_launch::Bootstrap;
use hydrant_pinning::{
    Advice, Direction, Engine, EngineOperation, Geometry, Hit, Hot, Impossible, KeptHit, Limits,
    OwnMemory, Strategy, TimedHit, wire::Grant,
};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;

pub(crate) use block::Record;
pub(crate) use drive::{Carrier, Piece, failed};
pub(crate) use foreseen::Foreseen;
pub(crate) use loan::Lease;
pub(crate) use own::{Extents, PATIENCE, not_registered};

use crate::{
    Error, Rank, Result, Settings,
    progress::{Outcome, Progress},
    uses::Uses,
};
use outbox::Outbox;
use segments::Segments;

/// Tickets of the engine's operations; a conduit's never have this bit.
const OPERATION: u64 = 1 << 63;

/// What a rank needs where memory must be registered.
pub(crate) struct Registration {
    progress: Arc<Progress>,
    /// Who posts the engine's transfers and hears of the ends of its operations; set once, when the
    /// job is composed.
    carrier: OnceLock<Weak<dyn Carrier>>,
    /// The part of the engine that needs no lock: what is registered, on both sides.
    hot: Arc<Hot>,
    engine: Mutex<Engine>,
    /// Messages to peers that were decided and are not sent.
    outbox: Mutex<Outbox>,
    /// Own memory that peers may reach.
    lent: lent::Lent,
    /// Exposed buffers of peers.
    known: RwLock<loan::Known>,
    segments: Segments,
    /// What the engine answered to pins, by their ids, until that is asked for.
    pinned: Mutex<FxHashMap<u64, Result<Vec<Grant>, hydrant_pinning::Error>>>,
    /// Revocations that are over, by their ids, until that is asked for.
    revoked: Mutex<FxHashMap<u64, ()>>,
    /// Who is told of uses of own memory; set once, where somebody predicts them.
    uses: OnceLock<Arc<dyn Uses>>,
    /// How many bytes were registered when, where that is kept.
    series: OnceLock<foreseen::Series>,
    /// The next id of an operation, a pin or a revocation.
    next: AtomicU64,
    /// Ranks that are known to have ended, and how often standings had changed then.
    ended: Mutex<(u64, Vec<Rank>)>,
    strategy: Strategy,
    geometry: Geometry,
    limits: Limits,
    /// Whether registrations stay true whatever is mapped under them. Where a bucket is several pages they do
    /// not: of a bucket that is mapped in part, no more is registered.
    follows: bool,
    /// Most bytes of a put that the NIC takes along.
    inline: usize,
    /// Whether there is always room to register an own word.
    reserve: bool,
}

/// An engine whose limits were found to be possible, before the ranks agree on the job.
pub(crate) struct Setup {
    engine: Engine,
    reserve: bool,
    strategy: Strategy,
    /// Where the own segment lies, and its bytes.
    segment: (u64, u64),
    /// Whether peers may name memory by its address.
    anywhere: bool,
    follows: bool,
    inline: usize,
}

impl Setup {
    /// What registration takes here, if memory must be registered. `words`: whether NICs change
    /// words here, which then want room.
    ///
    /// # Errors
    /// [`Error::Registration`] if the limits cannot be.
    pub(crate) fn new(
        conduit: &dyn Conduit,
        settings: &Settings,
        words: bool,
    ) -> Result<Option<Self>> {
        let caps = conduit.caps();
        let Some(registration) = caps.registration else {
            return Ok(None);
        };
        let config = limits::config(&settings.registration, &registration, conduit)?;
        let strategy = config.strategy;
        let mut engine = Engine::new(config)?;
        let reserve = words && engine.reserve_for_own();
        let pages = engine.limits().geometry.pages();
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
            follows: registration.follows_mapping && pages == 1,
            inline: registration.inline,
        }))
    }

    /// Tells the other ranks where the own segment lies. They read it after the next fence.
    pub(crate) fn tell(&self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        segments::tell(self.segment.0, bootstrap)
    }
}

impl Registration {
    /// The registration of a rank of the job. `bootstrap`: who knows where segments of peers lie.
    pub(crate) fn new(
        setup: Setup,
        progress: &Arc<Progress>,
        bootstrap: Arc<parking_lot::Mutex<Box<dyn Bootstrap>>>,
    ) -> Self {
        let (engine, rank) = (setup.engine, progress.rank);
        let limits = *engine.limits();
        Self {
            progress: Arc::clone(progress),
            carrier: OnceLock::new(),
            hot: Arc::clone(engine.hot()),
            engine: Mutex::new(engine),
            outbox: Mutex::default(),
            lent: lent::Lent::new(rank, setup.segment, setup.anywhere, setup.follows),
            known: RwLock::default(),
            segments: Segments::new(progress.size, rank, setup.segment.0, bootstrap),
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
            reserve: setup.reserve,
        }
    }

    /// Who carries the engine's transfers. Called once, when the job is composed.
    pub(crate) fn carry_by(&self, carrier: Weak<dyn Carrier>) {
        let set = self.carrier.set(carrier);
        debug_assert!(set.is_ok(), "transfers have two carriers");
    }

    /// The strategy in force.
    #[inline]
    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// What may be registered, and in which units.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Most bytes of a put that the NIC takes along.
    #[inline]
    pub(crate) fn inline(&self) -> usize {
        self.inline
    }

    /// The address, at `rank`, of a place there, and what keeps it there.
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

    /// Where the segment of `rank` lies, if that is known.
    #[inline(always)]
    pub(crate) fn segment(&self, rank: Rank) -> Option<u64> {
        self.segments.known(rank)
    }

    /// What the engine did so far.
    pub(crate) fn stats(&self) -> hydrant_pinning::Stats {
        self.engine.lock().stats()
    }

    /// The impossible states that the engine met, if any.
    pub(crate) fn impossible(&self) -> Option<Impossible> {
        self.engine.lock().impossible()
    }

    /// Whether a peer takes memory back that operations under way may be on.
    pub(crate) fn is_asked_back(&self) -> bool {
        self.engine.lock().is_asked_back()
    }

    /// Takes both sides of a transfer, if both are registered: [`Hot::hit`].
    #[inline(always)]
    pub(crate) fn hit(
        &self,
        peer: Rank,
        remote: u64,
        own: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        self.hot.hit(peer.0, remote, own, len, direction)
    }

    /// Takes the remote side of a transfer whose own side needs no registration.
    #[inline(always)]
    pub(crate) fn hit_remote(&self, peer: Rank, remote: u64, len: u64) -> Option<Hit<'_>> {
        self.hot.hit_remote(peer.0, remote, len)
    }

    /// What becomes of an operation that was no hit at once, by `auto`.
    pub(crate) fn ask(&self, direction: Direction, len: u64) -> Advice {
        self.hot.ask(direction, len)
    }

    /// Whether an operation that asked and holds both sides goes straight through to be timed, if whoever
    /// posts it waits for it.
    pub(crate) fn time_hit(&self, peer: Rank, direction: Direction, len: u64) -> Option<TimedHit> {
        self.engine.lock().time_hit(peer.0, direction, len)
    }

    /// What it took.
    pub(crate) fn hit_took(&self, timed: TimedHit, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.engine.lock().hit_took(timed, nanos);
    }

    /// Whether `auto` copies operations of that length though they would be hits.
    pub(crate) fn copies(&self, direction: Direction, len: u64) -> bool {
        self.hot.copies(direction, len)
    }

    /// There were many hits: `auto` finds out whether copies take less by now.
    #[cold]
    pub(crate) fn request_comparison(&self) {
        if self.strategy == Strategy::Auto {
            self.hot.request_comparison();
        }
    }

    /// As [`hit`](Self::hit), of an operation that has asked.
    pub(crate) fn hit_unless_crowded(
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
            OwnMemory::Inline => self.hot.hit_remote_unless_crowded(peer.0, remote, len),
            OwnMemory::Transient => None,
        }
    }

    /// As [`hit_remote`](Self::hit_remote), of an operation that has asked, or goes no other way.
    pub(crate) fn hit_remote_unless_crowded(
        &self,
        peer: Rank,
        remote: u64,
        len: u64,
    ) -> Option<Hit<'_>> {
        self.hot.hit_remote_unless_crowded(peer.0, remote, len)
    }

    /// The next miss of a word of a peer's is attached, whatever that costs.
    pub(crate) fn want(&self, peer: Rank, addr: u64) {
        if self.strategy == Strategy::Auto {
            self.engine.lock().want(peer.0, addr);
        }
    }

    /// Gives back what a hit took.
    #[inline(always)]
    pub(crate) fn release(&self, hit: &Hit<'_>) {
        if self.hot.release(hit) {
            self.released(&hit.keep());
        }
    }

    /// As [`release`](Self::release), of a hit that was kept while its operation was under way.
    pub(crate) fn release_kept(&self, hit: &KeptHit) {
        if self.hot.release_kept(hit) {
            self.released(hit);
        }
    }

    /// Somebody waits for what was given back.
    #[cold]
    fn released(&self, hit: &KeptHit) {
        self.step(&[], |engine, out| engine.released(hit, out));
    }

    /// Hands an operation to the engine, whose end is told to the carrier under this ticket.
    ///
    /// # Errors
    /// What the engine refuses at once; nothing is told then.
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

    /// The ticket of an operation of the engine.
    pub(crate) fn ticket(id: u64) -> Ticket {
        Ticket(OPERATION | id)
    }

    /// A transfer with a peer that the engine said has ended.
    pub(crate) fn transferred(&self, piece: u64, peer: Rank, outcome: Outcome) {
        let outcome = outcome.map_err(|cause| drive::access_failed(peer, &cause));
        self.step(&[], |engine, out| engine.transferred(piece, outcome, out));
    }

    /// Whether own memory stays what it is until Hydrant is told: it may be kept registered.
    #[inline]
    pub(crate) fn lasts(&self, addr: u64, len: u64) -> bool {
        self.lent.lasts(addr, len)
    }

    /// Whether memory that may come and go unseen shares buckets with memory that does not.
    pub(crate) fn shares_buckets(&self) -> bool {
        !self.follows && self.geometry.pages() > 1
    }

    /// A number for an operation, a pin or a revocation.
    pub(crate) fn name(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Exposed buffers of peers.
    fn known(&self) -> RwLockReadGuard<'_, loan::Known> {
        self.known.read()
    }

    fn change_known<R>(&self, change: impl FnOnce(&mut loan::Known) -> R) -> R {
        change(&mut self.known.write())
    }

    /// Standings have changed: what ended ranks held is given back, and what waits for them
    /// fails.
    pub(crate) fn look_for_ended(&self, changes: u64) {
        let progress = &self.progress;
        let ended: Vec<Rank> = {
            let mut known = self.ended.lock();
            if known.0 == changes {
                return;
            }
            known.0 = changes;
            // To a rank that is lost itself nobody gives back what it lent them, and nobody
            // answers.
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
