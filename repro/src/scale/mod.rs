//! The pinning protocol by itself, at scale (Firehose §3.2). Engines of `hydrant-pinning` at up to
//! tens of thousands of ranks are driven by one event loop in virtual time. The paper's future
//! work, borrowing and adaptive victims, stands beside the static share.
//!
//! No rank is a thread and no data moves. A rank is an [`Engine`](hydrant_pinning::Engine), a host
//! that does one thing at a time, and a NIC, with the figures of a [`Profile`]. Each rank sends one
//! put after the other and is attentive meanwhile. The same setup has the same outcome, to the
//! picosecond.

mod latency;
mod machine;
mod node;
mod slab;
mod traffic;

use std::time::Duration;

use hydrant_sim::Profile;

pub(crate) use traffic::Traffic;

/// A moment in picoseconds since the start.
type Moment = u64;

/// The bytes of a page.
const PAGE: usize = 4096;

/// The setup of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScaleSetup {
    /// Ranks, at least two.
    pub(crate) ranks: u32,
    /// The traffic pattern: which ranks put to which peers.
    pub(crate) traffic: Traffic,
    /// Bytes of a put.
    pub(crate) bytes: u32,
    /// Bytes of the area at each peer that a rank puts to; each put takes a random offset.
    pub(crate) area: u64,
    /// Bytes of the area that a rank puts from; each put takes a random offset.
    pub(crate) source: u64,
    /// Puts of each rank that are measured.
    pub(crate) puts: u32,
    /// Puts of each rank before the measured ones.
    pub(crate) warm_up: u32,
    /// Pause between a rank's puts; the rank answers its peers meanwhile.
    pub(crate) pause: Duration,
    /// M: bytes that peers together may keep registered.
    pub(crate) m: u64,
    /// MAXVICTIM: bytes of victims kept beside M.
    pub(crate) maxvictim: u64,
    /// Bytes of a bucket.
    pub(crate) bucket: usize,
    /// Puts of up to this many bytes piggyback on moves.
    pub(crate) piggyback: usize,
    /// True if a peer may borrow the share that others leave unused.
    pub(crate) borrowing: bool,
    /// True if victims may fill the room that peers leave unused.
    pub(crate) adaptive_victims: bool,
    /// The seed of all random numbers.
    pub(crate) seed: u64,
}

impl ScaleSetup {
    /// The founding paper's limits (§4.2), 8-byte puts, half a megabyte for each peer.
    pub(crate) fn new(ranks: u32, traffic: Traffic) -> Self {
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
            piggyback: 0,
            borrowing: false,
            adaptive_victims: false,
            seed: 1,
        }
    }
}

/// The result: the puts after the warm-up, of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScaleOutcome {
    /// Puts measured.
    pub(crate) puts: u64,
    /// Measured puts whose firehose was there.
    pub(crate) hits: u64,
    /// Moves sent.
    pub(crate) moves: u64,
    /// Puts that waited for a firehose or for room to register.
    pub(crate) stalls: u64,
    /// Firehoses lent beyond the static share.
    pub(crate) lent: u64,
    /// Registrations, warm-up included.
    pub(crate) registrations: u64,
    /// Deregistrations, warm-up included.
    pub(crate) deregistrations: u64,
    /// Mean time from a put's begin to its remote completion.
    pub(crate) mean: Duration,
    /// 99 of a hundred puts took at most this time.
    pub(crate) p99: Duration,
    /// The longest time of a put.
    pub(crate) longest: Duration,
    /// Maximum bytes registered, at the rank with most.
    pub(crate) registered_peak: u64,
    /// Mean bytes registered at a rank, at the end.
    pub(crate) registered_mean: u64,
    /// Virtual time until the last rank was done.
    pub(crate) time: Duration,
    /// Events that the loop processed.
    pub(crate) events: u64,
}

impl ScaleOutcome {
    /// The share of the puts that found their firehose.
    pub(crate) fn hit_share(&self) -> f64 {
        self.hits as f64 / self.puts.max(1) as f64
    }
}

/// The reason why a simulation has no outcome.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum ScaleError {
    /// The setup contradicts itself.
    #[error("{0}")]
    Setup(String),
    /// The limits do not work, or the protocol failed.
    #[error(transparent)]
    Pinning(#[from] hydrant_pinning::Error),
    /// A put failed.
    #[error("a put of rank {rank} failed: {cause}")]
    Put {
        /// The rank.
        rank: u32,
        /// The cause.
        cause: hydrant_pinning::Error,
    },
    /// No event is left, but puts are in flight.
    #[error("{stuck} of {ranks} ranks wait for ever; the first is rank {first}")]
    Stuck {
        /// The number of waiting ranks.
        stuck: u32,
        /// All ranks.
        ranks: u32,
        /// The first waiting rank.
        first: u32,
    },
    /// More was registered than the limit allows.
    #[error("rank {rank} has {registered} bytes registered, above the limit of {limit}")]
    PastLimit {
        /// The rank.
        rank: u32,
        /// Its registered bytes.
        registered: u64,
        /// M + MAXVICTIM.
        limit: u64,
    },
}

/// Runs a simulation; `progress` is told now and then the share of puts that are done.
///
/// # Errors
/// [`ScaleError`].
pub(crate) fn run(
    profile: &Profile,
    setup: &ScaleSetup,
    progress: &mut dyn FnMut(f64),
) -> Result<ScaleOutcome, ScaleError> {
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
        None => machine::ScaleMachine::new(profile, setup)?.run(progress),
    }
}

fn duration(time: Moment) -> Duration {
    Duration::from_nanos(time / 1000)
}

fn picos(duration: Duration) -> Moment {
    u64::try_from(duration.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
