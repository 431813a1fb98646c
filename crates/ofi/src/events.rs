//! Events of peers that come and go, and the layer above that hears them.

use hydrant_conduit::Rank;

/// A change of a peer without a job. Events and messages of a peer come in order: `Met` before its first message, and
/// the end after its last. After any event but `Met` the layer above
/// [releases](crate::PeerControl::release) the number.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PeerEvent {
    /// A session began.
    Met {
        /// The number of the peer here.
        peer: Rank,
        /// The bytes with which the peer introduced itself, or by which it admitted this process.
        introduction: Vec<u8>,
        /// True if this process asked for the session, alone or at the same time as the peer.
        asked: bool,
    },
    /// A session that this process asked for did not begin.
    Failed {
        /// The number that [`connect`](crate::PeerControl::connect) returned.
        peer: Rank,
        /// The reason.
        why: ConnectFailure,
    },
    /// The peer or this process ended the session in good order. All messages that the peer sent before were delivered.
    Left {
        /// The number of the peer.
        peer: Rank,
    },
    /// The session is lost. Nothing of it lands any more.
    Lost {
        /// The number of the peer.
        peer: Rank,
        /// The reason, as the end of the sentence "the peer is lost: …".
        why: &'static str,
    },
}

/// The reason why a session did not begin.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// The peer declined, with these bytes of its layer above.
    Declined(Vec<u8>),
    /// Nothing answered. The reason is the end of the sentence "the peer was not reached: …".
    Unreachable(&'static str),
}

impl PeerEvent {
    /// Returns the number of the peer.
    pub fn peer(&self) -> Rank {
        match self {
            Self::Met { peer, .. }
            | Self::Failed { peer, .. }
            | Self::Left { peer }
            | Self::Lost { peer, .. } => *peer,
        }
    }
}

/// The layer above, which decides about peers and hears of them.
pub trait PeerHandler: Send + Sync {
    /// Decides about a peer that knows the key and introduced itself by these bytes. Returns the bytes of the answer, or
    /// the reason to decline; each has at most 1024 bytes.
    ///
    /// The conduit's own thread calls this, more than once for one peer if messages are lost. It should not wait, and
    /// has no lasting effect: only [`PeerEvent::Met`] says that the peer is there.
    fn admit(&self, introduction: &[u8]) -> Result<Vec<u8>, Vec<u8>>;

    /// Hears an event. The thread that polls calls this, in order with the messages that it delivers. It neither waits
    /// nor polls.
    fn event(&self, event: PeerEvent);
}
