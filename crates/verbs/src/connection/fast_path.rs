//! The fast path: an access that has ended when the call that posts it returns.
//!
//! The caller is the only thread that takes completions meanwhile. So a hit on an idle connection
//! needs no entry among the posted requests and no second lookup of the connection. No poll hands
//! the access up.

use std::io;

use super::{
    Connection, ConnectionState, PostedRequest, RdmaAccess, RdmaOperation, SendPool, make_id,
};
use crate::ffi;

/// The outcome of an access that was posted by the fast path.
pub(crate) enum FastOutcome {
    Done,
    /// In flight. Carries the id of its completion.
    InFlight(u64),
    /// In flight, and the poll took a completion that may be of another request, or a failure.
    Unclear,
    /// The NIC refused the request.
    Refused(io::Error),
}

impl Connection {
    /// Returns whether only unsignaled messages are in flight, and there is room for a request.
    #[inline(always)]
    pub(crate) fn can_post_fast(&self, pool: &SendPool) -> bool {
        self.state == ConnectionState::Ready
            && self.posted.len() == self.unsignaled
            && self.queue.is_empty()
            && self.posted.len() < pool.limits().depth
            && pool.has_room()
    }

    /// Posts an access on a connection that [allows it](Self::can_post_fast), and polls once:
    /// `poll_once` takes one completion. The access is not counted among the posted requests. So the
    /// completion queue has room for one request more than may be counted. Unless the access is done,
    /// the caller must then call [`leave_fast_path`](Self::leave_fast_path).
    ///
    /// # Safety
    /// 1. Conditions 1, 2 and 3 of [`post_now`](Self::post_now).
    /// 2. Inline data is readable, and unchanged, until this returns.
    #[allow(unsafe_code)] // posts a work request
    #[inline(always)]
    pub(crate) unsafe fn post_fast(
        &mut self,
        pool: &SendPool,
        access: &RdmaAccess,
        poll_once: impl FnOnce() -> Option<ffi::ibv_wc>,
    ) -> FastOutcome {
        let Some(pair) = &self.pair else {
            return FastOutcome::Refused(io::ErrorKind::NotConnected.into());
        };
        let number = self.first.wrapping_add(self.posted.len() as u32);
        let id = make_id(self.peer, self.epoch, number);
        // SAFETY: the caller's conditions 1 and 2: the memory is registered or inline, and stays as
        // it must until the request completes.
        let posted = unsafe { pair.post_one(&access.request(id, pair), true) };
        let fast = match posted {
            Err(cause) => FastOutcome::Refused(cause),
            Ok(()) => match poll_once() {
                Some(it) if it.wr_id == id && it.status == ffi::IBV_WC_SUCCESS => FastOutcome::Done,
                Some(_) => FastOutcome::Unclear,
                None => FastOutcome::InFlight(id),
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

    /// Adds the access to the posted requests, so that it is waited for like any other.
    ///
    /// # Safety
    /// 1. and 2. as [`RdmaOperation::access`].
    #[allow(unsafe_code)] // has the caller's memory read
    #[cold]
    pub(crate) unsafe fn leave_fast_path(
        &mut self,
        pool: &SendPool,
        access: RdmaAccess,
        fast: &FastOutcome,
    ) {
        // SAFETY: the caller's conditions 1 and 2.
        let operation = unsafe { RdmaOperation::access(access, pool) };
        self.note_in_flight(pool, operation);
        self.unsignaled = 0;
        if matches!(fast, FastOutcome::Refused(_)) {
            self.close(pool);
        }
    }

    /// Completes the requests posted before, which are all messages.
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
