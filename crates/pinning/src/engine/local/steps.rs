//! The life of a request: it begins, waits for registrations or room, and is done.

use super::{LocalRequest, LocalTable, Requester};
use crate::{Decisions, Refusal, Use, wire::Need};

impl LocalTable {
    /// Begins a request. It is done when [`take_done`](Self::take_done) returns it.
    pub(in crate::engine) fn request(
        &mut self,
        requester: Requester,
        needs: Vec<Need>,
        used: Use,
        out: &mut Decisions,
    ) -> u64 {
        let id = self.next_id();
        let request = LocalRequest {
            requester,
            needs,
            used,
            holds: Vec::new(),
            refused: Vec::new(),
            pending: 0,
            restart: false,
            outdated: false,
            waits: requester.may_wait(),
        };
        self.requests.insert(id, request);
        if requester.may_wait() && !self.queue.is_empty() {
            // The order is kept: the requests before it wait, too.
            self.stats.stalls += 1;
            self.queue.insert(id);
        } else {
            self.begin(id, out);
            if self.queue.contains(&id) {
                // Its own holds may have been in its way.
                self.retry(out);
            }
        }
        id
    }

    /// Returns an open request.
    pub(in crate::engine) fn get(&self, id: u64) -> Option<&LocalRequest> {
        self.requests.get(&id)
    }

    /// Returns true if a request waits for a registration, or for room.
    pub(in crate::engine) fn is_open(&self, id: u64) -> bool {
        let open = |request: &LocalRequest| request.pending > 0;
        self.queue.contains(&id) || self.requests.get(&id).is_some_and(open)
    }

    /// Returns true if a request waits for a registration or a deregistration.
    pub(in crate::engine) fn is_pending(&self, id: u64) -> bool {
        (self.requests.get(&id)).is_some_and(|request| request.pending > 0)
    }

    /// Ends a request and gives its references back. With `unpin`, extents that nobody else uses
    /// are deregistered at once.
    pub(in crate::engine) fn end(&mut self, id: u64, unpin: bool, out: &mut Decisions) {
        let Some(request) = self.requests.remove(&id) else {
            return self.impossible.note("a request ends twice");
        };
        self.queue.remove(&id);
        self.drop_holds(id, &request.holds, unpin, out);
        self.retry(out);
    }

    pub(super) fn begin(&mut self, id: u64, out: &mut Decisions) {
        let Some(request) = self.requests.get_mut(&id) else {
            return self.impossible.note("a request begins after its end");
        };
        request.pending = 1;
        request.restart = false;
        let (requester, needs) = (request.requester, request.needs.clone());
        // Nothing is registered in vain: without a shared part, all of the request is refused.
        let shares_none = self.is_kept_from(requester, &needs);
        for need in needs {
            if shares_none {
                self.with_request(id, |request| {
                    request.refused.push((need.run, Refusal::Limit));
                });
            } else {
                self.cover_unless_outdated(id, need, out);
            }
        }
        self.finish_wait(id, out);
    }

    pub(super) fn resume(&mut self, id: u64, need: Need, out: &mut Decisions) {
        if self.requests.contains_key(&id) {
            self.cover_unless_outdated(id, need, out);
            self.finish_wait(id, out);
        }
    }

    /// Covers a need, or refuses it if memory of the request has changed since it was judged.
    fn cover_unless_outdated(&mut self, id: u64, need: Need, out: &mut Decisions) {
        match self.requests.get_mut(&id) {
            Some(request) if request.outdated => {
                request.refused.push((need.run, Refusal::Limit));
            }
            _ => self.cover(id, need, out),
        }
    }

    pub(super) fn finish_wait(&mut self, id: u64, out: &mut Decisions) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.pending -= 1;
            self.finish_if_ready(id, out);
        }
    }

    /// Finishes a request that waits for nothing: it is done, or waits for room.
    pub(super) fn finish_if_ready(&mut self, id: u64, out: &mut Decisions) {
        let Some(request) = self.requests.get_mut(&id) else {
            return self.impossible.note("a request is looked at after its end");
        };
        if request.pending > 0 {
            return;
        }
        if request.restart {
            let holds = std::mem::take(&mut request.holds);
            request.refused.clear();
            self.stats.stalls += 1;
            self.queue.insert(id);
            self.drop_holds(id, &holds, false, out);
            return;
        }
        request.holds.sort_unstable_by_key(|hold| hold.run.first);
        self.done.push((request.requester, id));
    }

    pub(super) fn with_request(&mut self, id: u64, change: impl FnOnce(&mut LocalRequest)) {
        if let Some(request) = self.requests.get_mut(&id) {
            change(request);
        }
    }
}
