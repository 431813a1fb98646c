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

mod fast_path;
mod operation;
mod pool;

use std::{collections::VecDeque, io, sync::Arc};

use hydrant_conduit::{Error, Rank, Ticket};

use crate::{
    ffi,
    nic::{QueuePair, RequestBatch},
};

use operation::{Recovery, request};

pub(crate) use fast_path::FastOutcome;
pub use operation::Opcode;
pub(crate) use operation::{RdmaAccess, RdmaAtomic, RdmaOperation, RemoteRange};
pub(crate) use pool::{SendLimits, SendPool};

/// From this many work requests in flight, more are queued to share a doorbell: the NIC has enough
/// to do meanwhile.
const BUSY: usize = 8;

/// Most unsignaled messages in a row. The next message is signaled, and its completion completes
/// them.
const UNSIGNALED: usize = 7;

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

/// How often in a row the local NIC may fail to send to a reachable peer. One more counts as a
/// failure of the NIC itself.
const UNSENT: u32 = 16;

/// The modulus of packet sequence numbers (PSNs).
const PSNS: u32 = 1 << 24;

/// The consequence of a failed request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionFailure {
    /// The connection must be made again.
    Broken,
    /// The peer must be asked which packet it expects next.
    Unclear,
    /// The peer cannot be reached.
    Lost(&'static str),
}

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

    /// Posts an operation at once, if no earlier one is queued and the NIC is not busy. Returns the
    /// id that its completion carries, or gives the operation back.
    ///
    /// # Safety
    /// 1. The operation's local memory is registered under its `lkey` until the operation has ended,
    ///    or the operation has a copy of the data.
    /// 2. Until the operation has ended, nobody writes to the memory for a write. Nobody else uses it
    ///    for a read, or the result of an atomic operation.
    /// 3. The peer bears the change of its memory, if `rkey` opens memory that was not registered
    ///    for that.
    #[allow(unsafe_code)] // posts a work request
    #[inline(always)] // callers with a known operation build the request directly
    pub(crate) unsafe fn post_now(
        &mut self,
        pool: &SendPool,
        mut operation: RdmaOperation,
    ) -> Result<io::Result<u64>, RdmaOperation> {
        let Some(pair) = &self.pair else {
            return Err(operation);
        };
        if self.state != ConnectionState::Ready
            || !self.queue.is_empty()
            || self.posted.len() >= pool.limits().depth
            || self.posted.len() - self.unsignaled >= BUSY
            || !pool.has_room()
            || !operation.prepare(pool)
        {
            return Err(operation);
        }
        let number = self.first.wrapping_add(self.posted.len() as u32);
        let id = make_id(self.peer, self.epoch, number);
        let unsignaled = matches!(operation, RdmaOperation::Send { .. })
            && self.unsignaled < UNSIGNALED.min(pool.limits().depth - 1)
            && pool.has_plenty();
        // SAFETY: 1. The caller's condition 1; slots and words of the pool stay registered. 2. The
        // caller's condition 2; the operation owns its slot, word or copy until it has ended.
        let posted = unsafe { pair.post_one(&request(id, &operation, pool, pair), !unsignaled) };
        self.note_in_flight(pool, operation);
        self.unsignaled = if unsignaled { self.unsignaled + 1 } else { 0 };
        Ok(match posted {
            Ok(()) => Ok(id),
            Err(cause) => {
                self.close(pool);
                Err(cause)
            }
        })
    }

    /// Queues an operation that could not be posted at once. Flushes the queue unless the NIC is
    /// busy with this connection.
    ///
    /// # Safety
    /// 1., 2. and 3. as [`post_now`](Self::post_now): a later [`flush`](Self::flush) posts the
    /// operation.
    #[allow(unsafe_code)] // queues what is posted later
    pub(crate) unsafe fn push(
        &mut self,
        pool: &SendPool,
        operation: RdmaOperation,
    ) -> io::Result<()> {
        let urgent = matches!(operation, RdmaOperation::Send { .. });
        self.queue.push_back(operation);
        if urgent || self.posted.len() < BUSY || self.queue.len() >= BUSY {
            self.flush(pool)?;
        }
        Ok(())
    }

    /// Posts the queued operations, as far as there is room.
    #[allow(unsafe_code)] // posts work requests
    pub(crate) fn flush(&mut self, pool: &SendPool) -> io::Result<()> {
        let (ConnectionState::Ready, Some(pair)) = (self.state, &self.pair) else {
            return Ok(());
        };
        let pair = Arc::clone(pair);
        while !self.queue.is_empty() {
            let mut batch = RequestBatch::new();
            let mut taken = 0;
            while !batch.is_full() && self.posted.len() < pool.limits().depth {
                let Some(operation) = self.queue.front_mut() else {
                    break;
                };
                if !pool.has_room() || !operation.prepare(pool) {
                    break;
                }
                let number = self.first.wrapping_add(self.posted.len() as u32);
                let id = make_id(self.peer, self.epoch, number);
                batch.push(&request(id, operation, pool, &pair));
                taken += 1;
                if let Some(operation) = self.queue.pop_front() {
                    self.note_in_flight(pool, operation);
                }
            }
            if taken == 0 {
                return Ok(());
            }
            // One completion for the batch: it completes all requests before it.
            batch.signal_last();
            self.unsignaled = 0;
            // SAFETY: 1., 2. Every queued operation came through `push` or `post_now`. Their callers
            // guarantee its conditions 1, 2 and 3 until it has ended. A queued one has not ended.
            if let Err(cause) = unsafe { pair.post(&mut batch) } {
                self.close(pool);
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Adds an operation to the requests that the NIC has.
    #[inline(always)]
    fn note_in_flight(&mut self, pool: &SendPool, operation: RdmaOperation) {
        pool.note_posted();
        self.count_packets(operation.len());
        let end = self.next_psn;
        self.posted.push_back(PostedRequest { operation, end });
    }

    /// Advances the next PSN by the packets of a request of `len` bytes.
    #[inline(always)]
    fn count_packets(&mut self, len: u32) {
        let packets = if len <= self.mtu {
            1
        } else {
            len.div_ceil(self.mtu)
        };
        self.next_psn = (self.next_psn + packets) % PSNS;
    }

    /// Completes all requests up to this number, after a completion of the current epoch.
    pub(crate) fn complete_through(
        &mut self,
        pool: &SendPool,
        number: u32,
        ended: &mut Vec<EndedOperation>,
    ) {
        let count = number.wrapping_sub(self.first).wrapping_add(1) as usize;
        if count > self.posted.len() {
            return; // A later completion already completed it.
        }
        for posted in self.posted.drain(..count) {
            posted.operation.succeed(pool, ended);
        }
        self.unsignaled = self.unsignaled.min(self.posted.len());
        self.first = self.first.wrapping_add(count as u32);
        self.unsent = 0;
        pool.note_done(count as u32);
    }

    /// As [`complete_through`](Self::complete_through), if the completion ends the operation with
    /// this ticket and only messages before it. No poll hands the operation up then. Returns
    /// whether that was so.
    #[inline]
    pub(crate) fn complete_one(
        &mut self,
        pool: &SendPool,
        completion: u64,
        ticket: Ticket,
    ) -> bool {
        let (.., number) = parse_id(completion);
        let before = number.wrapping_sub(self.first) as usize;
        let alone = completion == make_id(self.peer, self.epoch, number)
            && self.pair.is_some()
            && matches!(
                self.posted.get(before),
                Some(PostedRequest { operation: RdmaOperation::Access(access, _), .. }) if access.last && access.ticket == ticket
            )
            && (before == 0 || self.are_messages(before));
        if alone {
            for _ in 0..before {
                if let Some(PostedRequest {
                    operation: RdmaOperation::Send { slot, .. },
                    ..
                }) = self.posted.pop_front()
                {
                    pool.slots().give_back(slot);
                }
            }
            if let Some(PostedRequest {
                operation: RdmaOperation::Access(_, Some(copied)),
                ..
            }) = self.posted.pop_front()
            {
                pool.copies().give_back(copied);
            }
            self.first = number.wrapping_add(1);
            self.unsent = 0;
            pool.note_done(before as u32 + 1);
        }
        alone
    }

    /// Returns whether the first `count` posted requests are messages.
    fn are_messages(&self, count: usize) -> bool {
        let is_message =
            |posted: &PostedRequest| matches!(posted.operation, RdmaOperation::Send { .. });
        self.posted.iter().take(count).all(is_message)
    }

    /// Handles the failure of the request of this number, which broke the connection. Later
    /// requests are queued again.
    pub(crate) fn fail(
        &mut self,
        pool: &SendPool,
        number: u32,
        status: ffi::ibv_wc_status,
        ended: &mut Vec<EndedOperation>,
    ) -> ConnectionFailure {
        let before = number.wrapping_sub(self.first) as usize;
        if before >= self.posted.len() {
            return ConnectionFailure::Lost("a completion of an unknown request");
        }
        if before > 0 {
            self.complete_through(pool, number.wrapping_sub(1), ended);
        }
        match status {
            ffi::IBV_WC_REM_ACCESS_ERR | ffi::IBV_WC_REM_INV_REQ_ERR | ffi::IBV_WC_REM_OP_ERR => {
                self.handle_refusal(pool)
            }
            // Soft-RoCE reports this when it finds no route to the peer, for example while the link
            // is down.
            ffi::IBV_WC_LOC_QP_OP_ERR if self.unsent < UNSENT => {
                self.unsent += 1;
                self.mark_unclear(pool);
                ConnectionFailure::Unclear
            }
            ffi::IBV_WC_RETRY_EXC_ERR
            | ffi::IBV_WC_RNR_RETRY_EXC_ERR
            | ffi::IBV_WC_RESP_TIMEOUT_ERR
            | ffi::IBV_WC_WR_FLUSH_ERR => {
                self.mark_unclear(pool);
                ConnectionFailure::Unclear
            }
            _ => {
                self.close(pool);
                ConnectionFailure::Lost(describe(status))
            }
        }
    }

    /// Closes the connection as if the NIC had reported that no acknowledgement came.
    pub(crate) fn mark_unclear(&mut self, pool: &SendPool) {
        self.close(pool);
        self.state = ConnectionState::Unclear;
    }

    /// Handles a refusal by the peer's NIC of the first posted request.
    fn handle_refusal(&mut self, pool: &SendPool) -> ConnectionFailure {
        self.close(pool);
        let access = match self.posted.pop_front().map(|posted| posted.operation) {
            Some(RdmaOperation::Access(access, _)) => access,
            Some(RdmaOperation::Atomic(mut atomic)) => {
                atomic.release_word(pool);
                atomic.as_access()
            }
            Some(RdmaOperation::Send { slot, .. }) => {
                pool.slots().give_back(slot);
                return ConnectionFailure::Lost("it refused a message");
            }
            None => return ConnectionFailure::Lost("it refused a request that was not sent"),
        };
        self.refused = Some(access);
        let again = self.posted.drain(..).map(|posted| posted.operation);
        let mut again: VecDeque<RdmaOperation> =
            again.map(|operation| operation.reset(pool)).collect();
        again.append(&mut self.queue);
        again.retain(|operation| !is_part_of(operation, access.ticket));
        self.queue = again;
        self.reconnect();
        ConnectionFailure::Broken
    }

    /// Prepares a new connection after the peer told which packet it expects next. Requests that it
    /// received are done; the others are queued again.
    pub(crate) fn resume_from(
        &mut self,
        pool: &SendPool,
        expected_psn: u32,
        ended: &mut Vec<EndedOperation>,
    ) {
        let mut again = VecDeque::new();
        let mut done = true;
        for PostedRequest { operation, end } in self.posted.drain(..) {
            // Requests are done in order: after one that is not done, none is.
            done = done && expected_psn.wrapping_sub(end) % PSNS < PSNS / 2;
            match operation.recovery(done) {
                Recovery::Done => operation.succeed(pool, ended),
                Recovery::Resend => again.push_back(operation.reset(pool)),
                Recovery::ResultLost => {
                    if let RdmaOperation::Atomic(mut atomic) = operation {
                        atomic.release_word(pool);
                        let peer = Rank(self.peer);
                        ended.push((atomic.ticket, Err(Error::ResultLost { peer })));
                    }
                }
            }
        }
        again.append(&mut self.queue);
        self.queue = again;
        self.reconnect();
    }

    /// Drops the queue pair. The NIC then has no request of this connection.
    fn close(&mut self, pool: &SendPool) {
        self.pair = None;
        // The peer will tell which requests were done.
        self.unsignaled = 0;
        pool.note_done(self.posted.len() as u32);
    }

    /// Begins the next epoch.
    fn reconnect(&mut self) {
        self.first = 0;
        self.state = ConnectionState::Connecting;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Ends the connection and all its operations: the peer is gone.
    pub(crate) fn end(&mut self, pool: &SendPool, lost: &Error, ended: &mut Vec<EndedOperation>) {
        if self.pair.is_some() {
            self.close(pool);
        }
        self.state = ConnectionState::Ended;
        if let Some(access) = self.refused.take() {
            ended.push((access.ticket, Err(lost.clone())));
        }
        let posted = self.posted.drain(..).map(|posted| posted.operation);
        for operation in posted.chain(self.queue.drain(..)) {
            match operation {
                RdmaOperation::Send { slot, .. } => pool.slots().give_back(slot),
                RdmaOperation::Atomic(mut atomic) => {
                    atomic.release_word(pool);
                    ended.push((atomic.ticket, Err(lost.clone())));
                }
                RdmaOperation::Access(access, _) if access.last => {
                    ended.push((access.ticket, Err(lost.clone())));
                }
                RdmaOperation::Access(..) => {}
            }
        }
    }
}

fn is_part_of(operation: &RdmaOperation, ticket: Ticket) -> bool {
    matches!(operation, RdmaOperation::Access(access, _) if access.ticket == ticket)
}

/// Makes the id that a completion carries.
fn make_id(peer: u32, epoch: u32, number: u32) -> u64 {
    u64::from(peer) << 40 | u64::from(epoch & 0xff) << 32 | u64::from(number)
}

/// Splits an id into the peer, the connection's epoch modulo 256, and the number of the request.
pub(crate) fn parse_id(id: u64) -> (u32, u32, u32) {
    ((id >> 40) as u32, (id >> 32) as u32 & 0xff, id as u32)
}

fn describe(status: ffi::ibv_wc_status) -> &'static str {
    match status {
        ffi::IBV_WC_LOC_PROT_ERR => "local memory was not registered as it should be",
        _ => "the connection failed",
    }
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
