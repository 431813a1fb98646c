//! The conduit over RDMA NICs, through libibverbs opened at run time.
//!
//! It builds and starts where no RDMA package is installed; [`ports`] then says why there is no
//! port. A rank opens one device and reaches every peer by reliable connections, one for each
//! direction, made on first use.
//!
//! Each state has one owner, and imports run downward only: `nic` owns the objects of libibverbs
//! (`ffi` has its C declarations); `endpoint` the own end of the network; `connection` what is asked
//! of one peer, and what of that is with the NIC; `peers` the connections, how many requests are
//! unhandled, and how each rank stands to the job; `completions` the completion queues, and who
//! sleeps until they tell something; `table` what is registered. `shared` composes them. Above it,
//! `inbox` handles what arrives, `control` is the thread that makes connections and watches peers by
//! datagrams, and `conduit` is what users of the crate hold.
//!
//! The same code serves InfiniBand and RoCE: peers are addressed by GID, on InfiniBand within a subnet
//! by LID. It was tried on soft-RoCE only, never on a hardware NIC. A message is a send into a shared
//! receive queue, of which each peer can use a share and no more; small writes and messages are sent
//! inline; requests that come while the NIC is busy share a doorbell and a completion.

mod access;
mod address;
mod attach;
mod bare;
mod commands;
mod completions;
mod conduit;
mod connection;
mod control;
mod datagram;
mod datagrams;
mod device;
mod endpoint;
mod ffi;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gid;
mod inbox;
mod inline_copies;
mod library;
mod loopback;
mod memlock;
mod message;
mod nic;
mod options;
mod peers;
mod probe;
mod result_words;
mod shared;
mod sleepers;
mod slots;
mod table;

pub use attach::attach;
pub use bare::{Bare, Direction};
pub use conduit::Verbs;
pub use device::{Port, ports};
pub use library::SYSTEM_LIBRARY;
pub use options::Options;
pub use probe::probe;
