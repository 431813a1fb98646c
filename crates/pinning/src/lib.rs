//! Decides what is registered, what to register and what to evict. It implements the Firehose
//! algorithm (Bell & Bonachea 2003), the pin-down cache (Tezuka 1998) and their rivals. All of it
//! is state machines without I/O, clock, threads or unsafe. The one system call is a memory barrier,
//! by which evictions pay for hits without a locked instruction (`announcements`).
//!
//! [`Engine`] decides. [`Hot`] serves an operation whose memory is registered on both sides
//! already. The driver (a rank of a job, a simulation of ten thousand ranks, a property test)
//! carries out the [`Decisions`].
//!
//! ```
//! use hydrant_pinning::{Action, Config, Direction, Decisions, Engine, EngineOperation, OwnMemory, RegionNumber};
//!
//! let mut engine = Engine::new(Config::firehose_paper(0, 2))?;
//! let mut out = Decisions::default();
//! let put = EngineOperation {
//!     id: 1,
//!     peer: 1,
//!     direction: Direction::Put,
//!     local: 0x1000,
//!     region: RegionNumber(0),
//!     remote: 0x8000,
//!     len: 8,
//!     own: OwnMemory::Persistent,
//!     copied: false,
//! };
//! engine.begin(put, &mut out)?;
//! // The engine moves a firehose while the driver registers the own side.
//! assert_eq!(out.messages[0].to, 1);
//! assert!(matches!(out.actions[0], Action::Register { .. }));
//! # Ok::<(), hydrant_pinning::Error>(())
//! ```

mod action;
mod announcements;
mod config;
mod direction;
mod engine;
mod error;
mod geometry;
mod hot;
#[cfg(all(test, loom))]
mod model;
mod size;
mod strategy;
mod sync;
pub mod table;
pub mod wire;

pub use action::{Action, Data, Decisions, OutgoingMessage, RegisteredExtent};
pub use config::{BucketLimits, Config, CostModel};
pub use direction::{Direction, Use};
pub use engine::{
    AccessVerdict, Attached, BucketUsage, CrowdedOut, Detached, Engine, EngineOperation, GivenUp,
    Impossible, LocalStats, OwnMemory, PeerFirehoses, Stats, TimedHit,
};
pub use error::{Cause, Error, Refusal, Violation};
pub use geometry::{BUCKET_BITS, Geometry, Run};
pub use hot::{Advice, Hit, Hot, KeptHit};
pub use size::Size;
pub use strategy::Strategy;
pub use wire::{EngineMessage, RegionNumber};
