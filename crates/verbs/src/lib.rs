//! The conduit over RDMA NICs, through libibverbs opened at run time.
//!
//! It builds and starts where no RDMA package is installed; [`ports`] then says why there is no
//! port. A rank opens one device and reaches every peer by reliable connections, one for each
//! direction, made on first use: `lane` is the connection to a peer, `inbox` receives from
//! peers, `control` is the thread that makes connections and watches peers, by datagrams. `table`
//! holds what is registered. `nic` owns the objects of libibverbs, `ffi` has its C declarations.
//!
//! The same code serves InfiniBand and RoCE: peers are addressed by GID, on InfiniBand within a subnet
//! by LID. It was tried on soft-RoCE only, never on a hardware NIC. A message is a send into a shared
//! receive queue, of which each peer can use a share and no more; small writes and messages are sent
//! inline; requests that come while the NIC is busy share a doorbell and a completion.

mod access;
mod attach;
mod bare;
mod conduit;
mod control;
mod device;
mod ffi;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gid;
mod harvest;
mod inbox;
mod lane;
mod library;
mod loopback;
mod message;
mod nic;
mod options;
mod place;
mod probe;
mod shared;
mod sleepers;
mod slots;
mod standing;
mod table;
mod words;

pub use attach::attach;
pub use bare::{Bare, Direction};
pub use conduit::Verbs;
pub use device::{Port, ports};
pub use library::SYSTEM_LIBRARY;
pub use options::Options;
pub use probe::probe;
