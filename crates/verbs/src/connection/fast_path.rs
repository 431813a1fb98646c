//! The access that has ended when the call that posts it returns, handed up by no poll.
//!
//! Who posts it takes completions alone meanwhile. Then a hit on a connection where nothing is under way
//! needs no entry in the queue of what is, and no second look at the connection.

use std::io;

use super::{
    Connection, ConnectionState, PostedRequest, RdmaAccess, RdmaOperation, SendPool, make_id,
};
use crate::ffi;

/// What became of it.
pub(crate) enum FastOutcome {
    Done,
    /// It is under way: the name of its completion.
    UnderWay(u64),
    /// It is under way, and a completion was taken that may be of something else, or a failure.
    Unclear,
    /// The NIC does not take it.
    Refused(io::Error),
}

impl Connection {
    /// Whether nothing is under way but unsignaled messages, and there is room.
    #[inline(always)]
    pub(crate) fn can_post_fast(&self, pool: &SendPool) -> bool {
        self.state == ConnectionState::Ready
            && self.posted.len() == self.unsignaled
            && self.queue.is_empty()
            && self.posted.len() < pool.limits().depth
            && pool.has_room()
    }

    /// Posts an access on a connection that [is free](Self::can_post_fast), and looks once what has ended:
    /// `look` takes one completion. It is not counted among what is posted, so the completions have
    /// room for one more than may be counted; unless it is done, [`leave_fast_path`](Self::leave_fast_path)
    /// makes up for that.
    ///
    /// # Safety
    /// 1. As [`post_now`](Self::post_now).
    /// 2. What goes along is readable, and unchanged, until this returns.
    #[allow(unsafe_code)] // posts a work request
    #[inline(always)]
    pub(crate) unsafe fn post_fast(
        &mut self,
        pool: &SendPool,
        access: &RdmaAccess,
        look: impl FnOnce() -> Option<ffi::ibv_wc>,
    ) -> FastOutcome {
        let Some(pair) = &self.pair else {
            return FastOutcome::Refused(io::ErrorKind::NotConnected.into());
        };
        let number = self.first.wrapping_add(self.posted.len() as u32);
        let id = make_id(self.peer, self.epoch, number);
        // SAFETY: the same contract.
        let posted = unsafe { pair.post_one(&access.request(id, pair), true) };
        let fast = match posted {
            Err(cause) => FastOutcome::Refused(cause),
            Ok(()) => match look() {
                Some(it) if it.wr_id == id && it.status == ffi::IBV_WC_SUCCESS => FastOutcome::Done,
                Some(_) => FastOutcome::Unclear,
                None => FastOutcome::UnderWay(id),
            },
        };
        if matches!(fast, FastOutcome::Done) {
            self.count_packets(access.len);
            if self.unsignaled > 0 {
                self.complete_messages(pool);
            }
            self.first = number.wrapping_add(1);
            self.unsent = 0;
        }
        fast
    }

    /// It is to be waited for like any other.
    ///
    /// # Safety
    /// As [`RdmaOperation::access`].
    #[allow(unsafe_code)] // has the caller's memory read
    #[cold]
    pub(crate) unsafe fn leave_fast_path(
        &mut self,
        pool: &SendPool,
        access: RdmaAccess,
        fast: &FastOutcome,
    ) {
        // SAFETY: the same contract.
        let operation = unsafe { RdmaOperation::access(access, pool) };
        self.note_in_flight(pool, operation);
        self.unsignaled = 0;
        if matches!(fast, FastOutcome::Refused(_)) {
            self.close(pool);
        }
    }

    /// All that was posted before are messages, and they are done.
    fn complete_messages(&mut self, pool: &SendPool) {
        let count = self.posted.len() as u32;
        for PostedRequest { operation, .. } in self.posted.drain(..) {
            if let RdmaOperation::Send { slot, .. } = operation {
                pool.slots().give_back(slot);
            }
        }
        self.unsignaled = 0;
        pool.note_done(count);
    }
}
