//! The conduit between ranks of one host: shared memory.
//!
//! All ranks map one `memfd`: a card for each rank, lock-free rings for each pair, and the
//! segment that each rank owns (`layout`). Puts and gets to a segment are plain copies by the
//! caller; messages go through the rings (`ring`); memory outside the segments is reached
//! by `process_vm_readv/writev` under keys that can be revoked (`extents`), and by
//! messages where the system forbids that. Sleepers are woken through a bell
//! (`bell`); the death of a peer is seen by a thread that watches its `pidfd` (`watch`).
//! The shared memory has no name in any file system.
//!
//! [`pin`] is the same with threads that play NICs and only access memory that the kernel
//! pinned: a way to try registration where there is no NIC.

mod sync;

#[cfg(not(loom))]
mod attach;
#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod calls;
#[cfg(not(loom))]
mod conduit;
#[cfg(not(loom))]
mod descriptors;
mod extents;
#[cfg(not(loom))]
mod foreign;
#[cfg(not(loom))]
mod inbox;
#[cfg(not(loom))]
mod latch;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
pub mod pin;
#[cfg(not(loom))]
mod rendezvous;
mod ring;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod transfer;
#[cfg(not(loom))]
mod watch;

#[cfg(not(loom))]
pub use attach::{Options, attach};
#[cfg(not(loom))]
pub use conduit::Smp;
#[cfg(not(loom))]
pub use foreign::Foreign;
