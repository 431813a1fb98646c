//! Peers of other hosts that come and go, over libfabric: grants of memory, one-sided operations, messages.
//!
//! [`FabricPeers`] is one endpoint of the network. A session with a peer begins by [`connect`](FabricPeers::connect), at
//! either side. The layer above hears of sessions and messages by a [`SessionSink`]. Memory is lent to one session at a
//! time ([`FabricPeers::lend`]), and the peer uses it by [`FabricPeers::begin`].

mod peers;

pub use hydrant_ofi::ConnectFailure;
pub use peers::{
    AccessRun, FabricOptions, FabricPeers, FabricSession, Finish, LentName, LentTerms, MOST_RANGES,
    OperationWay, PeerAccess, PeerOperationEnd, PeerOperationError, PeerOperationFailure,
    SessionEvent, SessionSink,
};
