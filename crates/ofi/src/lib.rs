//! The conduit over libfabric, opened at run time.
//!
//! The crate builds and starts where libfabric is not installed; [`endpoints`] then says why there is none. A rank opens
//! one endpoint of one provider: TCP between any two hosts, or a fabric that the user names.
//!
//! Each piece of state has one owner, and imports run downward only. From the bottom up:
//!
//! - `fabric` owns the objects of libfabric (`ffi` has its C declarations, `library` opens it).
//! - `choice` lists the endpoints that a rank could use. `announcement` is that list as peers get it, and the choice of
//!   the interface that leads to them.
//! - `slots` owns the buffers of messages and the records of accesses.
//! - `table` holds the registered extents, `keys` their names.
//! - `session` proves the job's secret; `message` is the format of messages.
//! - `peers` owns the link to each peer, the counts of messages, and each rank's standing.
//! - `shared` composes all of these. `traffic` posts, `handshake` begins and resumes sessions, `fence` waits for peers,
//!   `cut` ends what lost peers still write.
//! - `collect` reads the completion queue into `arrivals`; `inbox` delivers them.
//! - `control` is the thread that makes sessions and watches peers. `inherited` keeps children from holding sockets, and
//!   `strangers` keeps connections of strangers away.
//! - `listening` is the state of an endpoint without a job, whose peers come and go: [`listen`]. `locator` is its address as
//!   users carry it, `introduction` the format by which processes get to know each other, `events` what the layer above
//!   hears. `open` is common to jobs and endpoints.
//! - `conduit` is the type that users of the crate hold. `bare` is the network without it, for benchmarks.
//!
//! # What libfabric does not promise
//!
//! The design follows what libfabric 1.17 to 2.6 does, by measurement:
//!
//! - A write's default completion says that the local kernel has the data. So every write asks for delivery.
//! - A provider over TCP moves data only while a thread of the target reads its completion queue, even if it promised
//!   to need none. So the control thread reads it while nobody polls.
//! - A dead peer is `EAGAIN` for ever. So links have a deadline, and over TCP the peer's
//!   address is probed.
//! - A refused access breaks the connection, with all operations behind it. So both ranks count messages and writes,
//!   and tell each other the counts when the connection is back.
//! - A message that was injected is lost without a word if its connection breaks. So ranks tell each other the number of
//!   the last message, even if they have nothing else to say.
//! - Removing a peer's address ends none of its operations: they complete when the peer goes on, even then (2.5.1).
//!   So sockets are shut down, below the library.
//! - Its sockets are inherited by children. So they are marked, and children of `fork` close them.
//! - The queue of operations has no limit, at 16 KiB each. So the number of operations in flight is bounded here.

mod access;
mod announcement;
mod arrivals;
mod attach;
mod bare;
mod choice;
mod collect;
mod commands;
mod conduit;
mod context;
mod control;
mod cut;
mod events;
mod fabric;
mod fence;
mod ffi;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod inbox;
mod inherited;
mod interfaces;
mod introduction;
mod keys;
mod library;
mod listen;
mod listening;
mod locator;
mod marks;
mod message;
mod open;
mod options;
mod peers;
mod session;
mod shared;
mod signals;
mod slots;
mod socket_address;
mod sockets;
mod strangers;
mod table;
mod traffic;

pub use attach::attach;
pub use bare::{BareAccess, BareEndpoint};
pub use choice::{OfferedEndpoint, endpoints};
pub use conduit::Ofi;
pub use events::{ConnectFailure, PeerEvent, PeerHandler};
pub use library::{SYSTEM_LIBRARY, version};
pub use listen::{ListenOptions, PeerControl, listen};
pub use options::OfiOptions;
