//! Events, as users read them.

use std::sync::Arc;

use crate::{LossCause, Peer, news::PeerNews, state::EndpointState};

/// News of a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// A peer is connected, by its own call or by one of this process.
    Connected(Peer),
    /// A peer is connected whose name another incarnation had before, which is not connected any more.
    Returned {
        /// The peer.
        peer: Peer,
        /// The incarnation before.
        previous: u64,
    },
    /// A peer has closed its endpoint.
    Left(Peer),
    /// A peer is lost.
    Lost {
        /// The peer.
        peer: Peer,
        /// The cause.
        cause: LossCause,
    },
    /// A peer has sent a message.
    Message {
        /// The sender.
        peer: Peer,
        /// The message.
        bytes: Vec<u8>,
    },
}

impl EndpointEvent {
    pub(crate) fn new(endpoint: &Arc<EndpointState>, news: PeerNews) -> Self {
        let identity = &news.session().peer;
        let entry = (endpoint.peers).entry(identity.incarnation, &identity.name);
        let peer = Peer::new(Arc::clone(endpoint), entry);
        match news {
            PeerNews::Connected(_) => Self::Connected(peer),
            PeerNews::Returned(_, previous) => Self::Returned { peer, previous },
            PeerNews::Left(_) => Self::Left(peer),
            PeerNews::Lost(_, cause) => Self::Lost { peer, cause },
            PeerNews::Message(session, bytes) => {
                let sent = session.note_read(bytes.len());
                endpoint.after_send(&session, sent);
                Self::Message { peer, bytes }
            }
        }
    }
}
