//! One-sided remote memory access: the extended API.
//!
//! A put checks handle, rank and bounds. If the peer's memory is mapped here, it stores directly
//! ([`contiguous`]). Otherwise the [`transfer`](crate::transfer) room carries it out. A direct
//! access is remotely complete when the call returns.

mod accumulate;
pub(crate) mod anywhere;
mod context;
mod contiguous;
pub(crate) mod handles;
mod nest;
mod packed;
mod pending;
mod pieces;
pub(crate) mod pointed;
pub(crate) mod pointed_sections;
pub(crate) mod raw;
mod raw_overlap;
mod raw_runs;
mod raw_sections;
mod raw_vectors;
mod rendezvous;
mod reply_long;
mod routed;
mod runs;
mod scope;
mod section;
pub(crate) mod signal;
mod unmapped;
mod vectors;
mod view_sections;
mod when;

pub use accumulate::Accumulate;
pub use anywhere::AnywhereLoan;
pub use context::Context;
pub use handles::{GetHandle, PutHandle};
pub(crate) use packed::Unpacker;
pub use pieces::Stride;
pub use raw::RawOperation;
pub(crate) use rendezvous::Buffers;
pub use scope::{Operation, Scope};
pub use section::{Level, Section};
pub use signal::Signal;
pub use vectors::IoVector;
pub use when::{WhenAll, WhenAny, when_all, when_any};
