//! Posts requests: at once, or queued and flushed in batches that share a doorbell.

use std::{io, sync::Arc};

use super::{
    Connection, ConnectionState, PSNS, PostedRequest, make_id,
    operation::{RdmaOperation, request},
    pool::SendPool,
};
use crate::nic::RequestBatch;

/// From this many work requests in flight, more are queued to share a doorbell: the NIC has enough
/// to do meanwhile.
const BUSY: usize = 8;

/// Most unsignaled messages in a row. The next message is signaled, and its completion completes
/// them.
const UNSIGNALED: usize = 7;

impl Connection {
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
    pub(super) fn note_in_flight(&mut self, pool: &SendPool, operation: RdmaOperation) {
        pool.note_posted();
        self.count_packets(operation.len());
        let end = self.next_psn;
        self.posted.push_back(PostedRequest { operation, end });
    }

    /// Advances the next PSN by the packets of a request of `len` bytes.
    #[inline(always)]
    pub(super) fn count_packets(&mut self, len: u32) {
        let packets = if len <= self.mtu {
            1
        } else {
            len.div_ceil(self.mtu)
        };
        self.next_psn = (self.next_psn + packets) % PSNS;
    }
}
