//! Connections between two processes of one host that no launcher started.
//!
//! A process listens at an abstract Unix socket. A connection is a socket of packets and a small shared file, the
//! area (`area`). Operations are one-sided: the initiator finds in the area if and where it may access the owner's
//! memory, and copies by itself. The owner's processors take no part. Messages, questions and descriptors of files go
//! through the socket.
//!
//! The crate has no thread and waits nowhere but in [`connect`] and where it says so. Its user calls it when a
//! descriptor is readable or writable.
//!
//! From the bottom up:
//!
//! - `proof`: keyed hashes, by which both sides show that they know the key of an address.
//! - `packet`: the format of packets. `socket` sends and receives them.
//! - `area`: grants of memory, and the hazards of those who use them.
//! - `mapped`: memory that both processes map.
//! - `handshake`: the begin of a connection.
//! - `link`: a connection. `death` tells of the sudden end of its other side.

mod alive;
mod area;
mod death;
mod error;
mod handshake;
mod link;
mod mapped;
mod packet;
pub mod proof;
mod socket;

pub use area::{GRANTS, GrantName, GrantRefusal, GrantTerms, GrantUse, monotonic};
pub use death::{DeathWatch, HeldWords};
pub use error::{ConnectError, LinkError};
pub use handshake::{
    ArrivalRefusal, ArrivalStep, Introduction, LocalArrival, LocalListener, connect,
};
pub use link::{CopyStep, LocalLink, LocalPacket, PeerProcess, ReceiveError, SendState};
pub use mapped::{ForeignMapping, MappedMemory};
pub use packet::{MAX_INTRODUCTION, MAX_PAYLOAD, WirePacket};
