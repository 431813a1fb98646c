//! Peers that come and go: processes without a job that read and write each other's memory.
//!
//! An [`Endpoint`] is a process that nobody launched. It has an [address](Address), which others need to connect to it.
//! It lends memory as [regions](Region), and gives [descriptors](Descriptor) of them, or of parts, to those who may use
//! it. A peer [opens](Peer::open) a descriptor, and reads and writes the memory without the owner's help. It hears when
//! peers connect, leave, are lost or return ([`EndpointEvent`]).
//!
//! ```
//! use hydrant_endpoint::{Endpoint, EndpointEvent, Rights};
//!
//! // Usually in two processes, which pass address and descriptor on by any means.
//! let server = Endpoint::builder().name("pages").listen()?;
//! let pages = server.alloc(1 << 20)?;
//! let descriptor = pages.descriptor(Rights::READ_WRITE);
//!
//! let client = Endpoint::builder().name("reader").listen()?;
//! let peer = client.connect(server.address())?;
//! let remote = peer.open(&descriptor)?;
//! remote.write(4096, b"hello")?;
//! peer.send(b"page 1 is new")?;
//!
//! loop {
//!     if let EndpointEvent::Message { peer, bytes } = server.next_event()? {
//!         assert_eq!((peer.name(), &bytes[..]), ("reader", &b"page 1 is new"[..]));
//!         break;
//!     }
//! }
//! let mut seen = [0; 5];
//! pages.read(4096, &mut seen)?;
//! assert_eq!(&seen, b"hello");
//!
//! pages.revoke()?; // from here on nobody touches the memory
//! assert!(matches!(remote.read(0, &mut seen), Err(hydrant_endpoint::Error::Revoked { .. })));
//! # Ok::<(), hydrant_endpoint::Error>(())
//! ```
//!
//! # The end of an operation
//!
//! When an operation has ended, by success, error, deadline or [cancel](BatchHandle::cancel), nothing of it lands any
//! more. When [`Region::revoke`] has returned, no peer touches the region any more, and each later use of a descriptor is
//! [`Error::Revoked`].
//!
//! # Progress
//!
//! One thread of the endpoint sleeps until something happens. It answers questions about regions, and takes messages and
//! news. The network ([`EndpointBuilder::hosts`]) has three more. Copies are made by the thread that asks for them, or by a few workers if they are long. No thread spins.
//!
//! # Rooms
//!
//! From the bottom up:
//!
//! - `error`, `hex`, `promise`, `identity`, `address`, `descriptor`: values.
//! - `link` is a connection: to a process of this host, or over the network.
//! - `session` is the state of a connection, `table` that of all peers. `news` keeps events until they are read.
//! - `lent` is the memory of a region, `owned` a buffer that one owns, `regions` all of them.
//! - `workers` are the threads that copy.
//! - `far` keeps the sessions over the network.
//! - `state` composes these for an endpoint. `packets` takes what peers say. `service` is the endpoint's thread, and
//!   `network` hears of peers of other hosts.
//! - `opened` is a peer's region, `plan` the contents of a batch, `carry` the batch under way.
//! - `region`, `remote`, `peer`, `batch`, `event` and `endpoint` are what users hold.

mod address;
mod batch;
mod carry;
mod descriptor;
mod endpoint;
mod error;
mod event;
mod far;
mod hex;
mod identity;
mod lent;
mod link;
mod network;
mod news;
mod opened;
mod owned;
mod packets;
mod peer;
mod plan;
mod promise;
mod region;
mod regions;
mod remote;
mod service;
mod session;
mod state;
mod table;
mod workers;

pub use address::{Address, MAX_NAME};
pub use batch::{Batch, LocalRows, RegionRows};
pub use carry::{BatchFailure, BatchHandle, PartState};
pub use descriptor::{Descriptor, Rights};
pub use endpoint::{Endpoint, EndpointBuilder, HostsOptions};
pub use error::{Error, LossCause, Result};
pub use event::EndpointEvent;
pub use peer::Peer;
pub use region::Region;
pub use remote::RemoteRegion;
pub use session::MAX_MESSAGE;
