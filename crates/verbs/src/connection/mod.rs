//! The connection to a peer: the requests of this rank to it, in order.
//!
//! Each direction of a pair of ranks has its own connection. An access that the peer's NIC refuses
//! breaks the connection. Then every request before it was done, no request after it was, and the
//! peer's own connection is not affected. The connection is made again, the later requests are
//! posted again, and the peer explains the refusal.
//!
//! If acknowledgements stay away, the peer is asked which packet it expects next. Every request
//! takes a known number of packets, so the answer tells which requests were done. The others are
//! posted again. So a link that is down for a while only costs time.
//!
//! # Signals and doorbells
//!
//! Requests are posted at once, each with a completion, until eight are in flight. Further requests are gathered, and
//! share a doorbell and a completion. Seven messages in a row are unsignaled, as long as more than half of the slots are
//! free. A rank that leaves posts an empty write behind them, and so learns that they arrived.

mod complete;
mod fail;
mod fast_path;
mod operation;
mod pool;
mod post;

use std::{collections::VecDeque, sync::Arc};

use hydrant_conduit::{Error, Ticket};

use crate::nic::{QueuePair, RequestBatch};

pub(crate) use fail::ConnectionFailure;
pub(crate) use fast_path::FastOutcome;
pub use operation::Opcode;
pub(crate) use operation::{RdmaAccess, RdmaAtomic, RdmaOperation, RemoteRange};
pub(crate) use pool::{SendLimits, SendPool};

/// The ticket and the outcome of an operation that ended.
pub(crate) type EndedOperation = (Ticket, Result<(), Error>);

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// Never used.
    Idle,
    /// Being made, for the first time or again.
    Connecting,
    /// Requests can be posted.
    Ready,
    /// Broken; the peer is asked which packet it expects next.
    Unclear,
    /// The peer is gone.
    Ended,
}

/// The progress of a connection, to detect a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionProgress {
    /// Nothing is with the NIC.
    None,
    /// The connection is being made.
    Broken,
    /// The oldest request that is not known to be done.
    At {
        epoch: u32,
        number: u32,
        /// Bytes of this request and of the requests that may complete with it.
        bytes: u64,
        /// True if this request and all later ones are unsignaled, so that no completion will come.
        unsignaled: bool,
    },
}

pub(crate) struct Connection {
    /// The control thread connects; a thread that polls finds the connection broken.
    state: ConnectionState,
    /// The number of the current connection, from 0.
    epoch: u32,
    /// The queue pair that requests are posted to. `None` while there is no connection.
    pair: Option<Arc<QueuePair>>,
    /// The access that the peer's NIC refused, while the peer is asked why.
    refused: Option<RdmaAccess>,
    /// True if the connection is listed for the next flush.
    listed: bool,
    /// The peer's rank.
    peer: u32,
    /// Operations that the NIC does not have yet, in order.
    queue: VecDeque<RdmaOperation>,
    /// Operations that the NIC has, in order, until their completions are taken.
    posted: VecDeque<PostedRequest>,
    /// How many of the last `posted` requests are unsignaled messages.
    unsignaled: usize,
    /// The number of the first entry of `posted`.
    first: u32,
    /// The PSN of the next packet.
    next_psn: u32,
    /// Data bytes of a packet.
    mtu: u32,
    /// How often in a row the local NIC failed to send, without a completed request between.
    unsent: u32,
}

/// An operation that the NIC has.
#[derive(Debug)]
struct PostedRequest {
    operation: RdmaOperation,
    /// The PSN after its last packet.
    end: u32,
}

/// The modulus of packet sequence numbers (PSNs).
const PSNS: u32 = 1 << 24;

impl Connection {
    pub(crate) fn new(peer: u32) -> Self {
        Self {
            state: ConnectionState::Idle,
            epoch: 0,
            pair: None,
            refused: None,
            listed: false,
            peer,
            queue: VecDeque::new(),
            posted: VecDeque::new(),
            unsignaled: 0,
            first: 0,
            next_psn: 0,
            mtu: 1024,
            unsent: 0,
        }
    }

    /// Returns whether the peer is gone, so that no request can be posted.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.state == ConnectionState::Ended
    }

    /// Returns whether the connection was never used.
    pub(crate) fn is_unused(&self) -> bool {
        self.state == ConnectionState::Idle
    }

    /// Marks an unused connection as being made.
    pub(crate) fn begin_connecting(&mut self) {
        self.state = ConnectionState::Connecting;
    }

    /// Returns the epoch of a connection that is being made, and the key of the access that broke
    /// the connection before, or 0.
    pub(crate) fn pending_connect(&self) -> Option<(u32, u64)> {
        let key = self.refused.map_or(0, |access| access.whole.key);
        (self.state == ConnectionState::Connecting).then_some((self.epoch, key))
    }

    /// Sets the queue pair with which the connection is being made.
    pub(crate) fn connect_with(&mut self, pair: Arc<QueuePair>) {
        self.pair = Some(pair);
    }

    /// Returns the queue pair with which the connection of this epoch is being made.
    pub(crate) fn connecting_pair(&self, epoch: u32) -> Option<Arc<QueuePair>> {
        let is_pending = self.state == ConnectionState::Connecting && self.epoch == epoch;
        self.pair.clone().filter(|_| is_pending)
    }

    /// Takes the access that broke the connection before this one.
    pub(crate) fn take_refused(&mut self) -> Option<RdmaAccess> {
        self.refused.take()
    }

    /// Returns the epoch of a broken connection whose peer is asked for its expected PSN.
    pub(crate) fn unclear_epoch(&self) -> Option<u32> {
        (self.state == ConnectionState::Unclear).then_some(self.epoch)
    }

    /// Returns whether a completion with this epoch, modulo 256, belongs to the current connection.
    #[inline]
    pub(crate) fn has_epoch(&self, epoch: u32) -> bool {
        self.epoch & 0xff == epoch && self.pair.is_some()
    }

    /// Marks the connection as listed if it waits for the doorbell. Returns whether it was not
    /// listed before.
    #[inline]
    pub(crate) fn mark_listed(&mut self) -> bool {
        let is_new = self.awaits_doorbell() && !self.listed;
        self.listed |= is_new;
        is_new
    }

    /// Updates the mark after a flush. Returns whether the connection stays listed.
    pub(crate) fn refresh_listed(&mut self) -> bool {
        self.listed = self.awaits_doorbell();
        self.listed
    }

    /// Marks the connection as made. Sets the PSN of its first packet, and the data bytes of a packet.
    pub(crate) fn set_ready(&mut self, psn: u32, mtu: u32) {
        self.state = ConnectionState::Ready;
        self.next_psn = psn % PSNS;
        self.mtu = mtu.max(256);
    }

    /// Returns whether nothing is outstanding but unsignaled messages.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.posted.len() == self.unsignaled && self.refused.is_none()
    }

    /// Returns whether every request is known to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_idle() && self.unsignaled == 0
    }

    /// Returns the progress of the connection.
    pub(crate) fn progress(&self) -> ConnectionProgress {
        let together = self.posted.iter().take(RequestBatch::MAX_REQUESTS);
        match self.state {
            ConnectionState::Connecting | ConnectionState::Unclear => ConnectionProgress::Broken,
            // The connection is closed, and the peer about to be lost.
            ConnectionState::Ready if self.pair.is_none() => ConnectionProgress::Broken,
            ConnectionState::Ready if !self.posted.is_empty() => ConnectionProgress::At {
                epoch: self.epoch,
                number: self.first,
                bytes: together.map(|it| u64::from(it.operation.len())).sum(),
                unsignaled: self.posted.len() == self.unsignaled,
            },
            _ => ConnectionProgress::None,
        }
    }

    /// Returns whether a queued request waits for the doorbell.
    fn awaits_doorbell(&self) -> bool {
        !self.queue.is_empty() && self.state == ConnectionState::Ready
    }
}

/// Makes the id that a completion carries.
fn make_id(peer: u32, epoch: u32, number: u32) -> u64 {
    u64::from(peer) << 40 | u64::from(epoch & 0xff) << 32 | u64::from(number)
}

/// Splits an id into the peer, the connection's epoch modulo 256, and the number of the request.
pub(crate) fn parse_id(id: u64) -> (u32, u32, u32) {
    ((id >> 40) as u32, (id >> 32) as u32 & 0xff, id as u32)
}

#[cfg(test)]
mod tests {
    use super::{make_id, parse_id};

    #[test]
    fn an_id_contains_peer_epoch_and_number() {
        assert_eq!(parse_id(make_id(4095, 3, u32::MAX)), (4095, 3, u32::MAX));
        assert_eq!(parse_id(make_id(7, 259, 1)), (7, 3, 1));
    }
}
