//! Registered memory: the engine of [`hydrant_pinning`] joined to a conduit whose NIC can only
//! touch memory that was registered.
//!
//! A put that is a *hit* (both sides registered, [`Hot::hit`]) goes to the conduit at once.
//! Everything else goes to the engine, behind a lock that is held while it decides and never
//! while anything is done: the [driver](drive) does what it says, and messages to peers leave
//! in the order decided, through the [outbox](outbox).
//!
//! All addresses are virtual ones: a place in a peer's segment is counted from where the peer
//! has it, a place in an exposed buffer from where its owner [says](loan) it lies.

#![allow(unsafe_code)] // hands memory to the conduit; see each block

mod block;
mod bounce;
mod drive;
mod far;
mod flight;
mod lent;
mod limits;
mod loan;
mod mapped;
mod outbox;
mod word;

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use hydrant_conduit::{Conduit, Standing};
use hydrant_launch::Bootstrap;
use hydrant_pinning::{Engine, Geometry, Hot, Limits, Strategy, wire::Grant};
use rustc_hash::FxHashMap;

pub(crate) use flight::Flight;
pub use limits::RegistrationSettings;

use crate::{Error, Rank, Result, Settings, job::Core};
use outbox::Outbox;

/// Tickets of the engine's operations; a conduit's never have this bit.
const OPERATION: u64 = 1 << 63;

/// What a rank needs where memory must be registered.
pub(crate) struct Registration {
    hot: Arc<Hot>,
    engine: Mutex<Engine>,
    outbox: Mutex<Outbox>,
    lent: lent::Lent,
    known: RwLock<loan::Known>,
    /// Where every rank has its segment; asked for when first needed.
    segments: Box<[OnceLock<u64>]>,
    /// What the engine answered to pins and revocations.
    pinned: Mutex<FxHashMap<u64, Result<Vec<Grant>, hydrant_pinning::Error>>>,
    revoked: Mutex<FxHashMap<u64, ()>>,
    next: AtomicU64,
    /// Messages wait for room.
    stuck: AtomicBool,
    /// Ranks that are known to have ended, and how often standings had changed then.
    ended: Mutex<(u64, Vec<Rank>)>,
    strategy: Strategy,
    geometry: Geometry,
    limits: Limits,
    /// Whether registrations stay true whatever is mapped under them.
    follows: bool,
    /// Most bytes of a put that the NIC takes along.
    inline: usize,
    bounce: OnceLock<bounce::Bounce>,
    /// Whether there is always room to register an own word.
    reserve: bool,
}

impl Registration {
    /// `words`: whether NICs change words here, which then want room.
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
        let limits = *engine.limits();
        let geometry = limits.geometry;
        let base = conduit
            .window(conduit.rank())
            .map(|window| window.as_ptr().addr() as u64)
            .ok_or_else(|| Error::other("the conduit does not map the own segment"))?;
        let segments: Box<[OnceLock<u64>]> = (0..conduit.size()).map(|_| OnceLock::new()).collect();
        let _ = segments[conduit.rank().index()].set(base);
        Ok(Some(Self {
            hot: Arc::clone(engine.hot()),
            engine: Mutex::new(engine),
            outbox: Mutex::default(),
            lent: lent::Lent::new(
                conduit.rank(),
                (base, caps.segment as u64),
                settings.anywhere,
                registration.follows_mapping,
            ),
            known: RwLock::default(),
            segments,
            pinned: Mutex::default(),
            revoked: Mutex::default(),
            next: AtomicU64::new(1),
            stuck: AtomicBool::new(false),
            ended: Mutex::default(),
            strategy,
            geometry,
            limits,
            follows: registration.follows_mapping,
            inline: registration.inline,
            bounce: OnceLock::new(),
            reserve,
        }))
    }

    /// Tells the other ranks where the own segment lies. They read it after the next fence.
    pub(crate) fn tell(&self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        let base = self.base(Rank(bootstrap.rank())).unwrap_or_default();
        Ok(bootstrap.put(far::SEGMENT, &base.to_le_bytes())?)
    }

    /// Where a rank's segment lies, if that is known here.
    #[inline]
    pub(crate) fn base(&self, rank: Rank) -> Option<u64> {
        self.segments.get(rank.index())?.get().copied()
    }

    /// The strategy in force.
    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// What the engine did so far.
    pub(crate) fn stats(&self) -> hydrant_pinning::Stats {
        lock(&self.engine).stats()
    }

    /// Whether memory that may come and go unseen shares buckets with memory that does not.
    fn shares_buckets(&self) -> bool {
        !self.follows && self.geometry.pages() > 1
    }

    /// Exposed buffers of peers.
    fn known(&self) -> RwLockReadGuard<'_, loan::Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_known<R>(&self, change: impl FnOnce(&mut loan::Known) -> R) -> R {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn name(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}

impl Core {
    /// Bytes of which memory is registered together; 1 where it is not registered.
    pub(crate) fn bucket(&self) -> usize {
        let geometry = self.registration.as_ref().map(|it| it.geometry);
        geometry.map_or(1, |geometry| geometry.bucket() as usize)
    }

    /// Standings have changed: what ended ranks held is given back, and what waits for them
    /// fails.
    pub(crate) fn look_for_ended(&self, changes: u64) {
        let Some(registration) = &self.registration else {
            return;
        };
        let ended: Vec<Rank> = {
            let mut known = lock(&registration.ended);
            if known.0 == changes {
                return;
            }
            known.0 = changes;
            // To a rank that is lost itself nobody gives back what it lent them, and nobody
            // answers.
            let alone = self.is_lost_itself();
            let new: Vec<Rank> = (0..self.size)
                .map(Rank)
                .filter(|rank| *rank != self.rank && !known.1.contains(rank))
                .filter(|rank| alone || self.conduit.standing(*rank) != Standing::Present)
                .collect();
            known.1.extend(&new);
            new
        };
        for rank in ended {
            self.peer_ended(rank);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
