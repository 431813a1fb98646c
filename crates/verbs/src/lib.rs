//! The conduit over RDMA NICs, through libibverbs opened at run time.
//!
//! The crate builds and starts where no RDMA package is installed; [`ports`] then says why no port
//! can be used. A rank opens one device. It reaches every peer by reliable connections, one for
//! each direction, each made on first use.
//!
//! Each piece of state has one owner, and imports run downward only. From the bottom up:
//!
//! - `nic` owns the objects of libibverbs (`ffi` has its C declarations).
//! - `endpoint` is this rank's end of the network.
//! - `connection` holds the requests to one peer, queued or with the NIC.
//! - `peers` owns the connections, the counts of unhandled requests and each rank's standing.
//! - `completions` owns the completion queues and the threads that sleep on them.
//! - `table` holds the registered extents; `shared` composes all of these.
//! - `inbox` handles arriving messages.
//! - `control` is the thread that makes connections and watches peers by datagrams.
//! - `conduit` is the type that users of the crate hold.
//!
//! The same code serves InfiniBand and RoCE. Peers are addressed by GID, and by LID within an
//! InfiniBand subnet. The crate was tried on soft-RoCE only, never on a hardware NIC.
//!
//! Where the user asks for it and the device can, memory is registered for on-demand paging. Then nothing of it is
//! pinned, and a registration follows the mapping. An access to memory that is not mapped breaks the connection, which
//! is made again, and ends with [`Error::BadAddress`](hydrant_conduit::Error::BadAddress). The memory of messages stays
//! pinned.
//!
//! A message is a send into a shared receive queue, of which each peer may use a bounded share.
//! Small writes and messages are sent inline. Requests that are posted while the NIC is busy share
//! a doorbell and a completion.
//!
//! An atomic operation stores the old value in a registered word of the conduit's own. An operation on the own rank
//! uses a connection to itself. Its caller waits by looking at completions alone, so handlers may call it, and
//! its end is not reported to the sink.

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
mod memlock;
mod message;
mod nic;
mod options;
mod paging;
mod peers;
mod probe;
mod result_words;
mod shared;
mod slots;
mod table;

pub use attach::attach;
pub use bare::Bare;
pub use conduit::Verbs;
pub use connection::Opcode;
pub use device::{Port, ports};
pub use library::SYSTEM_LIBRARY;
pub use options::VerbsOptions;
pub use probe::{on_demand_paging, probe};
