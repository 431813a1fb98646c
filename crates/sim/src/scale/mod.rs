//! The pinning protocol by itself, for scale: engines of `hydrant-pinning` at up to tens of
//! thousands of ranks, driven by one event loop in virtual time (Firehose §3.2; its future work,
//! borrowing and adaptive victims, beside the static share).
//!
//! No rank is a thread and no data moves: a rank here is an [`Engine`](hydrant_pinning::Engine),
//! a host that does one thing at a time and a NIC, with the figures of a [`Profile`]. Each rank
//! puts again and again, one put after the other, and is attentive meanwhile. The same setup has
//! the same outcome, to the picosecond.
//!
//! ```
//! use hydrant_sim::{Profile, scale::{self, Setup, Traffic}};
//!
//! let profile = Profile::named("myrinet-gm")?;
//! let mut setup = Setup::new(16, Traffic::HotSpot);
//! setup.puts = 200;
//! let outcome = scale::run(&profile, &setup, &mut |_| {})?;
//! assert!(outcome.hit_share() > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod latency;
mod machine;
mod node;
mod slab;
mod traffic;

use std::time::Duration;

use crate::Profile;

pub use traffic::Traffic;

/// What is simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Ranks, at least two.
    pub ranks: u32,
    /// Who puts to whom.
    pub traffic: Traffic,
    /// Bytes of a put.
    pub bytes: u32,
    /// Bytes that a rank puts to at each peer it talks to, at random.
    pub area: u64,
    /// Bytes it puts from, at random.
    pub source: u64,
    /// Puts of each rank that are measured.
    pub puts: u32,
    /// Puts of each rank before those.
    pub warm_up: u32,
    /// Between the end of a put and the next of the same rank, which goes on answering its peers.
    pub pause: Duration,
    /// M: what peers together may keep registered.
    pub m: u64,
    /// MAXVICTIM: what is kept beside it.
    pub maxvictim: u64,
    /// Bytes of a bucket.
    pub bucket: usize,
    /// Puts of up to so many bytes ride on moves.
    pub ride: usize,
    /// Whether a peer may borrow what others leave unused.
    pub borrowing: bool,
    /// Whether victims may fill what peers leave unused.
    pub adaptive_victims: bool,
    /// What all chance follows from.
    pub seed: u64,
}

impl Setup {
    /// The founding paper's limits (§4.2), 8-byte puts, half a megabyte for each peer.
    pub fn new(ranks: u32, traffic: Traffic) -> Self {
        Self {
            ranks,
            traffic,
            bytes: 8,
            area: 512 << 10,
            source: 64 << 10,
            puts: 512,
            warm_up: 512,
            pause: Duration::ZERO,
            m: 400 << 20,
            maxvictim: 50 << 20,
            bucket: 4096,
            ride: 0,
            borrowing: false,
            adaptive_victims: false,
            seed: 1,
        }
    }
}

/// What came of it: the puts after the warm-up, of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Puts measured.
    pub puts: u64,
    /// Of those, puts whose firehose was there.
    pub hits: u64,
    /// Moves sent.
    pub moves: u64,
    /// Puts that waited for a firehose or for room to register.
    pub stalls: u64,
    /// Firehoses lent beyond the static share.
    pub lent: u64,
    /// Registrations, warm-up included.
    pub registrations: u64,
    /// Deregistrations, warm-up included.
    pub deregistrations: u64,
    /// From a put's begin to its remote completion, on average.
    pub mean: Duration,
    /// 99 of a hundred puts took at most that.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
    /// Bytes registered at most, at the rank with most.
    pub registered_peak: u64,
    /// Bytes registered at the end, at a rank on average.
    pub registered_mean: u64,
    /// Until the last rank was done.
    pub time: Duration,
    /// Events that the loop went through.
    pub events: u64,
}

impl Outcome {
    /// The part of the puts that found their firehose.
    pub fn hit_share(&self) -> f64 {
        self.hits as f64 / self.puts.max(1) as f64
    }
}

/// Why there is no outcome.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// The setup contradicts itself.
    #[error("{0}")]
    Setup(String),
    /// The limits do not work, or the protocol failed.
    #[error(transparent)]
    Pinning(#[from] hydrant_pinning::Error),
    /// A put failed.
    #[error("a put of rank {rank} failed: {cause}")]
    Put {
        /// Whose.
        rank: u32,
        /// Why.
        cause: hydrant_pinning::Error,
    },
    /// Nothing is left to happen, but puts are under way.
    #[error("{stuck} of {ranks} ranks wait for ever, the first is rank {first}")]
    Stuck {
        /// How many wait.
        stuck: u32,
        /// Of how many.
        ranks: u32,
        /// One of them.
        first: u32,
    },
    /// More was registered than the limit allows.
    #[error("rank {rank} has {registered} bytes registered, above the limit of {limit}")]
    PastLimit {
        /// Whose.
        rank: u32,
        /// Bytes.
        registered: u64,
        /// M + MAXVICTIM.
        limit: u64,
    },
}

/// Simulates; `progress` hears from time to time what part of the puts is done.
///
/// # Errors
/// [`ScaleError`].
pub fn run(
    profile: &Profile,
    setup: &Setup,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, ScaleError> {
    let wrong = if setup.ranks < 2 {
        Some(format!("{} ranks have nobody to put to", setup.ranks))
    } else if setup.puts == 0 || setup.bytes == 0 {
        Some("no puts, or puts of no bytes, take no time".to_owned())
    } else if u64::from(setup.bytes) > setup.area.min(setup.source) {
        Some(format!(
            "puts of {} bytes do not fit areas of {} and {} bytes",
            setup.bytes, setup.area, setup.source
        ))
    } else {
        None
    };
    match wrong {
        Some(why) => Err(ScaleError::Setup(why)),
        None => machine::Machine::new(profile, setup)?.run(progress),
    }
}
