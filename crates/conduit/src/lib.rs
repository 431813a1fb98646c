//! The contract that every network keeps, and its conformance tests.
//!
//! A *conduit* is a network as Hydrant sees it: one-sided [`Access`]es between an own and a
//! remote extent, [posted](Conduit::post) to it, small ordered reliable messages on which active messages ride, [`register`](Conduit::register) and
//! [`deregister`](Conduit::deregister), [`poll`](Conduit::poll), a blocking
//! [`wait`](Conduit::wait) and a clock. Everything else is built above it, once for all networks.
//!
//! The [`memory`] module has views of memory that other processes change at the same
//! time. The `conformance` module, under the feature of that name, is the one suite that
//! every implementation passes.

mod access;
mod contract;
mod error;
mod forward;
mod rank;

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod measure;
pub mod memory;

pub use access::{Access, Atomic, Key, Local, Operation, Permission, Posted, Remote, Ticket};
pub use contract::{
    Atomicity, Caps, Conduit, Cost, Delivery, Door, Message, Registration, ReplyPort, Sent, Sink,
    Sleeper, Standing,
};
pub use error::Error;
pub use forward::Forward;
pub use memory::{Line, Window, Word32};
pub use rank::Rank;
