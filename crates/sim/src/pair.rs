//! The state that a rank keeps for each peer, and the items of its inbox.

use std::collections::VecDeque;

use hydrant_conduit::{Error, OwnedMessage, Ticket};

use crate::{time::VirtualTime, transfer::Retransmission};

/// An item that a poll delivers.
#[derive(Debug)]
pub(crate) enum InboxItem {
    Request(usize, OwnedMessage),
    Reply(usize, OwnedMessage),
    Local(Ticket),
    Complete(Ticket, Result<(), Error>),
}

/// The state that a rank keeps for a peer.
#[derive(Default)]
pub(crate) struct PeerState {
    /// Requests sent to the peer, and how many of them it has handled.
    pub(crate) sent: u64,
    pub(crate) handled: u64,
    /// Handled requests whose replies have arrived, too. `Conduit::handled` reports this count.
    /// Room for further requests does not wait for it.
    pub(crate) settled: u64,
    /// Replies of the peer that are in flight.
    pub(crate) coming: u64,
    /// Replies sent to the peer that it has not taken.
    pub(crate) replies: u64,
    /// Replies to the peer that wait for room, and when they were made. The handler's clock may be
    /// ahead of the events.
    pub(crate) kept: VecDeque<(VirtualTime, OwnedMessage)>,
    /// Requests of the peer that wait until `kept` is empty.
    pub(crate) held: VecDeque<OwnedMessage>,
    /// Requests of the peer whose replies are kept; they count as handled once `kept` is empty.
    pub(crate) owed: u64,
    /// Times at which the last request and the last reply to the peer were posted. A later one is
    /// never posted earlier, even if the sending thread's clock is behind.
    pub(crate) posted: [VirtualTime; 2],
    pub(crate) recovery: Retransmission,
}

impl PeerState {
    /// Notes a handled request or an arrived reply.
    pub(crate) fn settle(&mut self) {
        if self.coming == 0 {
            self.settled = self.handled;
        }
    }

    /// The number of replies that wait for room, and of requests that wait for these.
    pub(crate) fn kept_back(&self) -> (usize, usize) {
        (self.kept.len(), self.held.len())
    }
}
