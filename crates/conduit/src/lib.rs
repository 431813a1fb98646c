//! The contract that every network keeps, and its conformance tests.
//!
//! A *conduit* is a network as Hydrant sees it: one-sided [`write`](Conduit::write) and
//! [`read`](Conduit::read) between an own and a remote extent, small ordered reliable
//! messages on which active messages ride, [`register`](Conduit::register) and
//! [`deregister`](Conduit::deregister), [`poll`](Conduit::poll), a blocking
//! [`wait`](Conduit::wait) and a clock. Everything else is built above it, once for all networks.
//!
//! The [`memory`] module has views of memory that other processes change at the same
//! time. The `conformance` module, under the feature of that name, is the one suite that
//! every implementation passes.

mod contract;
mod error;
mod rank;

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod measure;
pub mod memory;

pub use contract::{
    Atomic, Atomicity, Caps, Conduit, Cost, Delivery, Door, Key, Message, Permission, Posted,
    Registration, Remote, ReplyPort, Sent, Sink, Sleeper, Standing, Ticket,
};
pub use error::Error;
pub use memory::{Line, Window, Word32};
pub use rank::Rank;
