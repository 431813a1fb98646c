//! Completes requests that the NIC reports as done.

use hydrant_conduit::Ticket;

use super::{
    Connection, EndedOperation, PostedRequest, make_id, operation::RdmaOperation, parse_id,
    pool::SendPool,
};

impl Connection {
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
}
