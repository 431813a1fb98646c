//! Memory that the rank itself asks for, beside its operations: pinned for peers, kept for own
//! operations, or held for the own NIC.

use super::{Lifetime, LocalHold, LocalTable, Requester, exact_need};
use crate::{Action, Decisions, Error, Refusal, Run, Use};

impl LocalTable {
    /// Registers memory for peers for good, all of it or none. [`Action::Pinned`] returns the
    /// outcome.
    pub(in crate::engine) fn pin(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.request(Requester::Pin(id), vec![exact_need(run)], Use::Write, out);
    }

    /// Registers memory for own operations for good, all of it or none.
    pub(in crate::engine) fn keep(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.request(Requester::Keep(id), vec![exact_need(run)], Use::Write, out);
    }

    /// Holds own memory that a hit did not find, for the own NIC to change it.
    pub(in crate::engine) fn hold_own(&mut self, id: u64, run: Run, out: &mut Decisions) {
        self.recover_missed_release(run.first, out);
        self.request(Requester::Own(id), vec![exact_need(run)], Use::Write, out);
    }

    /// Holds own memory for one transfer.
    pub(in crate::engine) fn hold_for(
        &mut self,
        id: u64,
        run: Run,
        (used, lasts): (Use, bool),
        out: &mut Decisions,
    ) {
        let lasts = if lasts {
            Lifetime::Persistent
        } else {
            Lifetime::Transient
        };
        self.request(Requester::Held(id, lasts), vec![exact_need(run)], used, out);
    }

    /// Gives held memory back. It stays registered as a victim, unless it is transient.
    pub(in crate::engine) fn release_own(&mut self, id: u64, out: &mut Decisions) {
        if let Some(request) = self.own.remove(&id) {
            let unpin = (self.get(request)).is_some_and(|it| it.requester.is_transient());
            self.end(request, unpin, out);
        }
    }

    /// Answers a pin, whose memory is registered or refused; `going` is a part of it that is being
    /// taken back.
    pub(in crate::engine) fn answer_pin(
        &mut self,
        id: u64,
        request: u64,
        going: Option<Run>,
        out: &mut Decisions,
    ) {
        let Some(it) = self.get(request) else {
            return self
                .impossible
                .note("memory was pinned for a request that is over");
        };
        let going = going.map(|run| (run, Refusal::Limit));
        // The system's refusal of one extent may have had the driver leave out the others.
        let of_the_system = (it.refused.iter()).find(|(_, why)| *why != Refusal::Limit);
        let refused = of_the_system.or(it.refused.first());
        let result = match refused.copied().or(going) {
            None => {
                let holds = self.attach_for_good(request, out);
                self.settle(out);
                Ok(holds.iter().map(LocalHold::grant).collect())
            }
            Some((run, why)) => {
                self.end(request, true, out);
                Err(self.no_room_error(run, why))
            }
        };
        out.actions.push(Action::Pinned { id, result });
    }

    /// Answers a request to keep memory, which is registered or refused.
    pub(in crate::engine) fn answer_keep(&mut self, id: u64, request: u64, out: &mut Decisions) {
        let Some(it) = self.get(request) else {
            return self
                .impossible
                .note("memory was kept for a request that is over");
        };
        let result = match it.refused.first() {
            // The request stays open, and holds the memory.
            None => Ok(it.holds.iter().map(LocalHold::grant).collect()),
            Some((run, why)) => Err(self.no_room_error(*run, *why)),
        };
        match result {
            Ok(_) => self.settle_for_good(request),
            Err(_) => self.end(request, true, out),
        }
        out.actions.push(Action::Pinned { id, result });
    }

    /// Answers a hold for the own NIC or for a transfer.
    pub(in crate::engine) fn answer_hold(&mut self, id: u64, request: u64, out: &mut Decisions) {
        let Some(it) = self.get(request) else {
            return self
                .impossible
                .note("memory was held for a request that is over");
        };
        let result = match it.refused.first() {
            None => Ok(it.holds.iter().map(LocalHold::grant).collect()),
            Some((run, why)) => Err(self.no_room_error(*run, *why)),
        };
        match result {
            Ok(_) => _ = self.own.insert(id, request),
            Err(_) => {
                let unpin = it.requester.is_transient();
                self.end(request, unpin, out);
            }
        }
        out.actions.push(Action::Pinned { id, result });
    }

    pub(super) fn no_room_error(&self, run: Run, why: Refusal) -> Error {
        let bytes = |buckets: u64| buckets * self.limits.geometry.bucket();
        match why {
            Refusal::Limit => Error::PastLimit {
                wanted: bytes(run.count),
                registered: bytes(self.stats.registered),
                limit: bytes(self.limits.total),
            },
            why => Error::Unreachable {
                rank: self.rank,
                addr: self.limits.geometry.address_of(run.first),
                len: bytes(run.count),
                why,
            },
        }
    }
}
