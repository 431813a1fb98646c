//! The conduit over RDMA NICs, through libibverbs opened at run time.
//!
//! It builds and starts where no RDMA package is installed; [`ports`] then says why there is
//! none. A rank has one open device and reaches every peer by reliable connections, one for each
//! direction, made when it is first used: `lane` is the way to a peer, `inbox` what comes from
//! peers, `control` the thread that makes connections and watches whether peers are there, by
//! datagrams. `table` holds what is registered. `nic` owns the objects of libibverbs, `ffi`
//! is libibverbs as C has it.
//!
//! InfiniBand and RoCE work alike: peers are addressed by GID, on InfiniBand within a subnet by
//! LID. A message is a send into a shared receive queue, of which each peer can use a share and
//! no more; small writes and messages are taken along with the request; requests that come
//! while the NIC is busy share a doorbell and a completion.

mod access;
mod attach;
mod bare;
mod conduit;
mod control;
mod device;
mod ffi;
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
