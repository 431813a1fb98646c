//! The contract that every network keeps, and its conformance tests.
//!
//! A *conduit* is a network as Hydrant sees it. It [posts](Conduit::post) one-sided [`Access`]es
//! between a local and a remote extent. It sends small, ordered, reliable messages, which carry
//! active messages. It [registers](Conduit::register) and [deregisters](Conduit::deregister)
//! memory. It [polls](Conduit::poll), [waits](Sleep::wait), and has a [clock](Clock). Everything
//! else is built above it, once for all networks.
//!
//! The [`memory`] module has views of memory that other processes change at the same time. The
//! `conformance` module, under the feature of that name, is the one suite that every implementation
//! passes.

mod access;
mod backoff;
mod caps;
mod clock;
mod command_queue;
mod contract;
pub mod descriptors;
mod error;
pub mod fork;
mod forward;
mod free;
mod loopback;
mod membership;
mod message;
mod rank;
mod segments;
mod sleep;
mod sleepers;
pub mod socket_peer;

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod measure;
pub mod memory;

pub use access::{Access, AccessKind, Atomic, Key, Local, Permission, Posted, Remote, Ticket};
pub use backoff::{Backoff, Rest};
pub use caps::{Atomicity, Caps, Cost, Footprint, RegistrationCaps};
pub use clock::Clock;
pub use command_queue::CommandQueue;
pub use contract::Conduit;
pub use error::Error;
pub use forward::Forward;
pub use free::FreePlaces;
pub use loopback::Loopback;
pub use membership::{Membership, Standing, Standings};
pub use memory::{Line, Window, Word32};
pub use message::{Delivery, Message, OwnedMessage, ReplyPort, Sent, Sink};
pub use rank::Rank;
pub use segments::Segments;
pub use sleep::{Sleep, Sleeper, WakeWord};
pub use sleepers::{Listens, Sleepers, Waiter, WakeCause};
