//! One-sided remote memory access: the extended API.
//!
//! The way of a put: check handle, rank and bounds; if the peer's memory is mapped here,
//! store directly ([`contiguous`]); else hand it to the conduit ([`indirect`]). A direct
//! access is remotely complete when the call returns.

mod anywhere;
pub(crate) mod atomics;
mod contiguous;
mod handles;
mod indirect;
mod pieces;
mod pointed;
mod scope;
mod signal;

pub use anywhere::AnywhereLoan;
pub use atomics::{AtomicFloat, AtomicInteger};
pub use handles::{GetHandle, PutHandle};
pub use pieces::Stride;
pub use scope::{Operation, Scope};
pub use signal::Signal;
