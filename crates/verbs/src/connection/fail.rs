//! Handles failed requests: the connection is made again, the peer is asked for its progress, or
//! the peer is lost.

use std::collections::VecDeque;

use hydrant_conduit::{Error, Rank, Ticket};

use super::{
    Connection, ConnectionState, EndedOperation, PSNS, PostedRequest,
    operation::{RdmaOperation, Recovery},
    pool::SendPool,
};
use crate::ffi;

/// How often in a row the local NIC may fail to send to a reachable peer. One more counts as a
/// failure of the NIC itself.
const UNSENT: u32 = 16;

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
            // With on-demand paging, own memory may not be mapped. That is looked at before requests are posted again.
            ffi::IBV_WC_LOC_PROT_ERR
                if pool.limits().paged_rank.is_some() && self.unsent < UNSENT =>
            {
                self.unsent += 1;
                self.mark_unclear(pool);
                ConnectionFailure::Unclear
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
        let refused = match pool.limits().paged_rank {
            Some(rank) => not_permitted(&again, rank, ended),
            None => Vec::new(),
        };
        again.append(&mut self.queue);
        again.retain(|operation| !(refused.iter()).any(|ticket| is_part_of(operation, *ticket)));
        self.queue = again;
        self.reconnect();
    }

    /// Drops the queue pair. The NIC then has no request of this connection.
    pub(super) fn close(&mut self, pool: &SendPool) {
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

/// Ends the operations whose own memory is not mapped, or does not permit them. Returns their tickets. The NIC of
/// `rank` found that out, too, but it does not always tell which request failed.
fn not_permitted(
    operations: &VecDeque<RdmaOperation>,
    rank: Rank,
    ended: &mut Vec<EndedOperation>,
) -> Vec<Ticket> {
    let mut refused = Vec::new();
    for operation in operations {
        if let RdmaOperation::Access(access, None) = operation
            && !access.own_memory_permits()
            && !refused.contains(&access.ticket)
        {
            let (peer, addr, len) = (rank, access.addr, access.len.into());
            refused.push(access.ticket);
            ended.push((access.ticket, Err(Error::BadAddress { peer, addr, len })));
        }
    }
    refused
}

fn is_part_of(operation: &RdmaOperation, ticket: Ticket) -> bool {
    matches!(operation, RdmaOperation::Access(access, _) if access.ticket == ticket)
}

fn describe(status: ffi::ibv_wc_status) -> &'static str {
    match status {
        ffi::IBV_WC_LOC_PROT_ERR => "local memory was not registered as it should be",
        _ => "the connection failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Opcode, RdmaAccess};

    #[test]
    fn an_access_whose_own_memory_is_gone_is_ended_once() {
        static READABLE: [u8; 64] = [1; 64];
        let mut writable = [0_u8; 64];
        let readable = READABLE.as_ptr().expose_provenance() as u64;
        let writable = writable.as_mut_ptr().expose_provenance() as u64;
        let access = |ticket, opcode, addr, last| {
            let access = RdmaAccess {
                ticket: Ticket(ticket),
                opcode,
                addr,
                len: 64,
                last,
                ..RdmaAccess::NOTHING
            };
            RdmaOperation::Access(access, None)
        };
        let operations = VecDeque::from([
            access(1, Opcode::Write, readable, true),
            access(2, Opcode::Read, readable, true),
            // Two parts of one access.
            access(3, Opcode::Write, 1 << 62, false),
            access(3, Opcode::Write, (1 << 62) + 64, true),
            access(4, Opcode::Read, writable, true),
        ]);
        let mut ended = Vec::new();
        let refused = not_permitted(&operations, Rank(5), &mut ended);
        assert_eq!(refused, [Ticket(2), Ticket(3)]);
        let errors: Vec<_> = ended
            .into_iter()
            .map(|(ticket, outcome)| (ticket, outcome.unwrap_err()))
            .collect();
        let bad = |addr| Error::BadAddress {
            peer: Rank(5),
            addr,
            len: 64,
        };
        assert_eq!(
            format!("{errors:?}"),
            format!(
                "{:?}",
                [(Ticket(2), bad(readable)), (Ticket(3), bad(1 << 62))]
            )
        );
        assert!(is_part_of(&operations[3], Ticket(3)));
    }
}
