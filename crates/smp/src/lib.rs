//! The conduit between ranks of one host: shared memory.
//!
//! All ranks map one `memfd`: a block for each rank, lock-free rings for each pair, and the segment
//! that each rank owns (`layout`). Puts and gets to a segment are plain copies by the caller.
//! Messages go through the rings (`ring`). Memory outside the segments is accessed by
//! `process_vm_readv/writev`, under keys that can be revoked (`extents`), or by messages if the
//! system forbids that. Sleepers are woken through a word of their rank (`notify`). A thread that
//! watches a peer's `pidfd` notices the peer's death (`watch`). The shared memory has no name in
//! any file system.
//!
//! Another conduit may be built on top of this one, through [`upon`].
//!
//! # Death of a rank
//!
//! Every rank watches the processes of all others. When a process dies, its block is marked, the
//! first death is remembered, and all ranks are woken. Each pair of ranks has a ring for each
//! direction, and revocation ignores dead ranks. A killed rank therefore leaves no lock held and no
//! queue half done. The shared file disappears with its last process.
//!
//! Only the rank itself can write to the pages of its hazards and extents. A fault of a third rank
//! therefore never redirects an access. A rank whose messages are malformed is expelled (`inbox`).

mod sync;

#[cfg(not(loom))]
mod areas;
#[cfg(not(loom))]
mod attach;
#[cfg(not(loom))]
mod calls;
#[cfg(not(loom))]
mod conduit;
#[cfg(not(loom))]
mod extents;
pub mod file_size;
#[cfg(not(loom))]
pub mod foreign;
#[cfg(not(loom))]
mod forked;
#[cfg(not(loom))]
mod inbox;
#[cfg(not(loom))]
mod latch;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod notify;
#[cfg(not(loom))]
mod open_transfers;
#[cfg(not(loom))]
mod rendezvous;
mod ring;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod transfer;
#[cfg(not(loom))]
pub mod upon;
#[cfg(not(loom))]
mod wake_word;
#[cfg(not(loom))]
mod watch;

#[cfg(not(loom))]
pub use attach::{DEFAULT_EXTENTS, SmpOptions, attach};
#[cfg(not(loom))]
pub use conduit::Smp;
#[cfg(not(loom))]
pub use foreign::Foreign;
