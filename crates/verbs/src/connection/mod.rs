//! The connection to a peer: what this rank asks of it, in order.
//!
//! Each direction of a pair has a connection of its own. So an access that the peer's NIC
//! refuses, which breaks a connection, leaves no doubt about the rest: everything before the
//! refused request was done, nothing after it was, and nothing of the peer's own is touched.
//! The connection is made anew, what came after is asked again, and the peer says what was wrong.
//!
//! If acknowledgements stay away the peer, if it is there, says which packet it expects next.
//! From that follows what was done, for every request takes a known number of packets; the rest
//! is asked again. So a link that is down for a while costs time and nothing else.

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
pub(crate) use operation::{Opcode, RdmaAccess, RdmaAtomic, RdmaOperation, RemoteRange};
pub(crate) use pool::{SendLimits, SendPool};

/// Work requests under way from which on more are kept back, to share a doorbell: the NIC has
/// enough to do meanwhile.
const BUSY: usize = 8;

/// Messages in a row that are unsignaled: the next one is signaled, and its completion stands for
/// them.
const UNSIGNALED: usize = 7;

/// An operation that ended.
pub(crate) type EndedOperation = (Ticket, Result<(), Error>);

/// How a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// Never used.
    Idle,
    /// Being made, or made anew.
    Connecting,
    Ready,
    /// Broken; the peer is asked how far it got.
    Unclear,
    /// The peer is gone.
    Ended,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionProgress {
    /// Nothing is with the NIC.
    None,
    /// The connection is made, or made anew.
    Broken,
    /// The oldest request that is not known to be done.
    At {
        epoch: u32,
        number: u32,
        /// What it carries, and those whose completion may come with its own.
        bytes: u64,
        /// Whether it is unsignaled, and so are all after it: no completion will come.
        unsignaled: bool,
    },
}

pub(crate) struct Connection {
    /// How it stands. The control thread connects; whoever polls finds it broken.
    state: ConnectionState,
    /// Counts the connections made, from 0.
    epoch: u32,
    /// What work requests are posted to; none while there is no connection.
    pair: Option<Arc<QueuePair>>,
    /// What the peer's NIC refused, while the peer is asked why.
    refused: Option<RdmaAccess>,
    /// Whether it is among those whose doorbell is due: every poll flushes them.
    listed: bool,
    /// The peer's rank.
    peer: u32,
    /// Operations that are not with the NIC yet, in order.
    queue: VecDeque<RdmaOperation>,
    /// Those that are, in order, until their completions are taken.
    posted: VecDeque<PostedRequest>,
    /// How many of these, the last ones, are messages that are unsignaled.
    unsignaled: usize,
    /// The number of the first one posted.
    first: u32,
    /// The PSN of the next packet, and the bytes of data that one carries.
    next_psn: u32,
    mtu: u32,
    /// How often in a row the own NIC could not send, with nothing done between.
    unsent: u32,
}

/// RdmaOperation that is with the NIC.
#[derive(Debug)]
struct PostedRequest {
    operation: RdmaOperation,
    /// The PSN after that of its last packet.
    end: u32,
}

/// How often in a row the own NIC may be unable to send although the peer was reached, before that
/// is the NIC's own failure.
const UNSENT: u32 = 16;

/// Packet sequence numbers (PSNs) are counted modulo this.
const PSNS: u32 = 1 << 24;

/// What a failed request means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConnectionFailure {
    /// The connection is to be made anew.
    Broken,
    /// The peer is to be asked how far it got.
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

    /// Whether the peer is gone, so that nothing can be asked of it.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.state == ConnectionState::Ended
    }

    /// Whether it was never used.
    pub(crate) fn is_unused(&self) -> bool {
        self.state == ConnectionState::Idle
    }

    /// It was never used, and is to be made.
    pub(crate) fn begin_connecting(&mut self) {
        self.state = ConnectionState::Connecting;
    }

    /// If it is being made: the number of the one that is, and the key of the access that broke
    /// the one before, or 0.
    pub(crate) fn pending_connect(&self) -> Option<(u32, u64)> {
        let key = self.refused.map_or(0, |access| access.whole.key);
        (self.state == ConnectionState::Connecting).then_some((self.epoch, key))
    }

    /// It is being made with this queue pair.
    pub(crate) fn connect_with(&mut self, pair: Arc<QueuePair>) {
        self.pair = Some(pair);
    }

    /// The queue pair with which the connection of this number is being made.
    pub(crate) fn connecting_pair(&self, epoch: u32) -> Option<Arc<QueuePair>> {
        let asked = self.state == ConnectionState::Connecting && self.epoch == epoch;
        self.pair.clone().filter(|_| asked)
    }

    /// The access that broke the connection before this one, once.
    pub(crate) fn take_refused(&mut self) -> Option<RdmaAccess> {
        self.refused.take()
    }

    /// Its number, if it broke and the peer is to say how far it got.
    pub(crate) fn unclear_epoch(&self) -> Option<u32> {
        (self.state == ConnectionState::Unclear).then_some(self.epoch)
    }

    /// Whether a completion that names this number, modulo 256, is of the connection that is there.
    #[inline]
    pub(crate) fn has_epoch(&self, epoch: u32) -> bool {
        self.epoch & 0xff == epoch && self.pair.is_some()
    }

    /// Whether it is to be listed among those whose doorbell is due: once.
    #[inline]
    pub(crate) fn mark_listed(&mut self) -> bool {
        let news = self.awaits_doorbell() && !self.listed;
        self.listed |= news;
        news
    }

    /// Whether it stays listed.
    pub(crate) fn refresh_listed(&mut self) -> bool {
        self.listed = self.awaits_doorbell();
        self.listed
    }

    /// The connection is there: its first packet's number, and how much data a packet carries.
    pub(crate) fn set_ready(&mut self, psn: u32, mtu: u32) {
        self.state = ConnectionState::Ready;
        self.next_psn = psn % PSNS;
        self.mtu = mtu.max(256);
    }

    /// Whether nothing is under way, of which the NIC may tell.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.posted.len() == self.unsignaled && self.refused.is_none()
    }

    /// Whether everything that was asked is known to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_idle() && self.unsignaled == 0
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> ConnectionProgress {
        let together = self.posted.iter().take(RequestBatch::MAX_REQUESTS);
        match self.state {
            ConnectionState::Connecting | ConnectionState::Unclear => ConnectionProgress::Broken,
            // It is closed, and about to be lost.
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

    /// Whether something waits for the doorbell.
    fn awaits_doorbell(&self) -> bool {
        !self.queue.is_empty() && self.state == ConnectionState::Ready
    }

    /// Hands work to the NIC, if nothing is in its way and the NIC has not plenty to do: the name
    /// of its completion. Else the work.
    ///
    /// # Safety
    /// 1. Own memory that the operation names is registered under its `lkey`, and stays so until the
    ///    operation has ended; or the operation has a copy of it.
    /// 2. Until then it stays as it is for a write, and nobody else writes to it for a read or to
    ///    the result of an atomic operation.
    /// 3. The peer bears what the operation changes there, if its `rkey` opens memory that nobody
    ///    registered for that.
    #[allow(unsafe_code)] // posts a work request
    #[inline(always)] // where it is known what is asked, the request is made at once
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
        // SAFETY: 1., 2., 3. as the caller of this says; what has a slot or a word of the pool has
        // it until it has ended.
        let asked = unsafe { pair.post_one(&request(id, &operation, pool, pair), !unsignaled) };
        self.note_in_flight(pool, operation);
        self.unsignaled = if unsignaled { self.unsignaled + 1 } else { 0 };
        Ok(match asked {
            Ok(()) => Ok(id),
            Err(cause) => {
                self.close(pool);
                Err(cause)
            }
        })
    }

    /// Adds something to be done, which could not be done at once. It is on its way when this
    /// returns, unless the connection is not there or the NIC has plenty to do.
    ///
    /// # Safety
    /// As [`post_now`](Self::post_now): what is queued is posted by a later [`flush`](Self::flush).
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

    /// Hands what is queued to the NIC, as far as there is room.
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
            // One completion for all: what came before is done then, too.
            batch.signal_last();
            self.unsignaled = 0;
            // SAFETY: all that is queued was given to `push` or `post_now`, whose callers promised
            // 1., 2. and 3. of each until it has ended; it has not, for then it is not queued.
            if let Err(cause) = unsafe { pair.post(&mut batch) } {
                self.close(pool);
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Notes what is with the NIC.
    #[inline(always)]
    fn note_in_flight(&mut self, pool: &SendPool, operation: RdmaOperation) {
        pool.note_posted();
        self.count_packets(operation.len());
        let end = self.next_psn;
        self.posted.push_back(PostedRequest { operation, end });
    }

    /// A request of so many bytes was handed to the NIC.
    #[inline(always)]
    fn count_packets(&mut self, len: u32) {
        let packets = if len <= self.mtu {
            1
        } else {
            len.div_ceil(self.mtu)
        };
        self.next_psn = (self.next_psn + packets) % PSNS;
    }

    /// A completion came that names the connection's epoch and a number: everything up to that
    /// request is done.
    pub(crate) fn complete_through(
        &mut self,
        pool: &SendPool,
        number: u32,
        ended: &mut Vec<EndedOperation>,
    ) {
        let count = number.wrapping_sub(self.first).wrapping_add(1) as usize;
        if count > self.posted.len() {
            return; // Retired by a later completion.
        }
        for posted in self.posted.drain(..count) {
            posted.operation.succeed(pool, ended);
        }
        self.unsignaled = self.unsignaled.min(self.posted.len());
        self.first = self.first.wrapping_add(count as u32);
        self.unsent = 0;
        pool.note_done(count as u32);
    }

    /// As [`complete_through`](Self::complete_through), if that is the end of the one operation that is looked for and of
    /// messages before it: then no poll hands it up.
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

    /// Whether so many, the first that were posted, are messages.
    fn are_messages(&self, count: usize) -> bool {
        let is_message =
            |posted: &PostedRequest| matches!(posted.operation, RdmaOperation::Send { .. });
        self.posted.iter().take(count).all(is_message)
    }

    /// The request of that number failed; the connection is broken. What came after it is queued
    /// again.
    pub(crate) fn fail(
        &mut self,
        pool: &SendPool,
        number: u32,
        status: ffi::ibv_wc_status,
        ended: &mut Vec<EndedOperation>,
    ) -> ConnectionFailure {
        let before = number.wrapping_sub(self.first) as usize;
        if before >= self.posted.len() {
            return ConnectionFailure::Lost("a completion of what was not asked for");
        }
        if before > 0 {
            self.complete_through(pool, number.wrapping_sub(1), ended);
        }
        match status {
            ffi::IBV_WC_REM_ACCESS_ERR | ffi::IBV_WC_REM_INV_REQ_ERR | ffi::IBV_WC_REM_OP_ERR => {
                self.handle_refusal(pool)
            }
            // What soft-RoCE says when it finds no way to the peer, as while the link is down.
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

    /// The NIC says nothing of what it was asked: as if it had said that no answer came.
    pub(crate) fn mark_unclear(&mut self, pool: &SendPool) {
        self.close(pool);
        self.state = ConnectionState::Unclear;
    }

    /// The peer's NIC refused the first of what was posted.
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
            None => return ConnectionFailure::Lost("it refused what was not asked"),
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

    /// The peer says which packet it expects next on the connection that broke.
    pub(crate) fn resume_from(
        &mut self,
        pool: &SendPool,
        expected_psn: u32,
        ended: &mut Vec<EndedOperation>,
    ) {
        let mut again = VecDeque::new();
        let mut done = true;
        for PostedRequest { operation, end } in self.posted.drain(..) {
            // In order: after one that is not done none is.
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

    /// No request is with the NIC any more when its queue pair is gone.
    fn close(&mut self, pool: &SendPool) {
        self.pair = None;
        // How far it came is found out.
        self.unsignaled = 0;
        pool.note_done(self.posted.len() as u32);
    }

    fn reconnect(&mut self) {
        self.first = 0;
        self.state = ConnectionState::Connecting;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// The peer is gone: everything under way ends.
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

/// What a completion names.
fn make_id(peer: u32, epoch: u32, number: u32) -> u64 {
    u64::from(peer) << 40 | u64::from(epoch & 0xff) << 32 | u64::from(number)
}

/// The peer, the connection's epoch modulo 256, and the number of a request.
pub(crate) fn parse_id(id: u64) -> (u32, u32, u32) {
    ((id >> 40) as u32, (id >> 32) as u32 & 0xff, id as u32)
}

fn describe(status: ffi::ibv_wc_status) -> &'static str {
    match status {
        ffi::IBV_WC_LOC_PROT_ERR => "own memory was not registered as it should be",
        _ => "the connection failed",
    }
}

#[cfg(test)]
mod tests {
    use super::{make_id, parse_id};

    #[test]
    fn completions_name_what_they_complete() {
        assert_eq!(parse_id(make_id(4095, 3, u32::MAX)), (4095, 3, u32::MAX));
        assert_eq!(parse_id(make_id(7, 259, 1)), (7, 3, 1));
    }
}
