//! Registrations and deregistrations: their start when there is room, and their end.

use super::{LocalTable, PendingRegistration, Requester, exact_need};
use crate::{Action, Decisions, Refusal, RegisteredExtent, Run, table::Extent, wire::Need};

impl LocalTable {
    /// Handles the end of a registration.
    pub(in crate::engine) fn registered(
        &mut self,
        id: u64,
        result: Result<RegisteredExtent, Refusal>,
        out: &mut Decisions,
    ) {
        let Some(first) = self.registering_ids.remove(&id) else {
            return self
                .impossible
                .note("a registration ended that was not begun");
        };
        let Some(registering) = self.registering.remove(&first) else {
            return self
                .impossible
                .note("a registration ended that was not begun");
        };
        if registering.pledged {
            self.pledged -= registering.preferred.count;
        }
        match result {
            Ok(got) if registering.outdated => self.drop_outdated(registering, got, out),
            Ok(got)
                if got.run.contains(registering.need)
                    && registering.preferred.contains(got.run) =>
            {
                self.record_extent(&registering, got, out);
            }
            Ok(_) => self.handle_failure(registering, Refusal::NotMapped, out),
            Err(why) => self.handle_failure(registering, why, out),
        }
        self.start(out);
        self.retry(out);
    }

    fn record_extent(
        &mut self,
        registering: &PendingRegistration,
        got: RegisteredExtent,
        out: &mut Decisions,
    ) {
        let spare = registering.preferred.count - got.run.count;
        self.planned -= spare;
        self.actual -= spare;
        let extent = Extent {
            key: got.key,
            base: got.run.first,
            end: got.run.end(),
            writable: got.writable,
        };
        for bucket in got.run.buckets() {
            if self.editor.insert(bucket, &extent, 0).is_err() {
                // The table is full, or the driver reported a wrong extent: the recorded buckets
                // are removed.
                if bucket > extent.base
                    && let Some(slot) = self.editor.get(extent.base)
                {
                    self.editor.remove(slot);
                }
                self.planned -= got.run.count;
                self.deregister(got.key, got.run, out);
                self.refuse(&registering.waiters, Refusal::Exhausted, out);
                return;
            }
        }
        if registering.transient {
            self.record_transient(got.run.first, &registering.waiters, out);
            return;
        }
        for (id, run) in &registering.waiters {
            self.resume(*id, exact_need(*run), out);
        }
        if let Some(slot) = self.editor.get(got.run.first) {
            self.editor.queue(slot);
        }
    }

    /// Makes void what was decided about a run before its memory changed. Registrations that are not done become outdated.
    /// Requests that would register the run after a deregistration are refused: they named what was there before, and the
    /// pages may still be on their way out.
    pub(in crate::engine) fn outdate(&mut self, run: Run, out: &mut Decisions) {
        for registering in self.registering.values_mut() {
            registering.outdated |= registering.preferred.overlaps(run);
        }
        for (id, request) in &mut self.requests {
            let is_open = request.pending > 0 || self.queue.contains(id);
            let overlaps = |need: &Need| need.preferred.overlaps(run) || need.run.overlaps(run);
            request.outdated |=
                is_open && request.requester.is_judged() && request.needs.iter().any(overlaps);
        }
        let mut refused = Vec::new();
        for deregistering in self.deregistering.values_mut() {
            let overtaken = |(_, need): &mut (u64, Need)| need.preferred.overlaps(run);
            refused.extend(deregistering.waiters.extract_if(.., overtaken));
        }
        for (id, need) in refused {
            self.refuse(&[(id, need.run)], Refusal::Limit, out);
        }
    }

    /// Ends a registration that may hold the pages from before a change. Nobody finds it, because some of its waiters may
    /// have begun after the change. They are refused, so that their data is copied.
    fn drop_outdated(
        &mut self,
        mut registering: PendingRegistration,
        got: RegisteredExtent,
        out: &mut Decisions,
    ) {
        let spare = registering.preferred.count - registering.need.count;
        self.planned -= spare;
        self.actual -= spare;
        // It is registered until its deregistration ends.
        self.actual += got.run.count;
        registering.preferred = registering.need;
        self.deregister(got.key, got.run, out);
        self.handle_failure(registering, Refusal::Limit, out);
    }

    fn handle_failure(
        &mut self,
        mut registering: PendingRegistration,
        why: Refusal,
        out: &mut Decisions,
    ) {
        self.stats.failed += 1;
        self.actual -= registering.preferred.count;
        self.planned -= registering.preferred.count;
        let owner = registering.waiters.first();
        let is_ahead = owner.is_some_and(|(id, _)| self.is_of_the_background(*id));
        if is_ahead && !registering.outdated {
            // Others need less, and nothing is evicted for memory that nobody uses yet.
            let (ahead, others): (Vec<_>, Vec<_>) = (registering.waiters.into_iter())
                .partition(|(id, _)| self.is_of_the_background(*id));
            self.refuse(&ahead, why, out);
            for (id, run) in others {
                self.resume(id, exact_need(run), out);
            }
            return;
        }
        let narrower = registering.preferred != registering.need;
        if narrower || (why == Refusal::Exhausted && !registering.retried) {
            // The retry asks for less, or for the same after evicting a quarter of the registered
            // buckets.
            if !narrower {
                registering.retried = true;
                let mut spare = (self.planned / 4).max(registering.need.count);
                while spare > 0 {
                    let before = self.planned;
                    if !self.evict_next(out) {
                        break;
                    }
                    spare = spare.saturating_sub(before - self.planned);
                }
            }
            registering.preferred = registering.need;
            registering.started = false;
            self.planned += registering.preferred.count;
            if registering.pledged {
                self.pledged += registering.preferred.count;
            }
            self.await_registration(registering, out);
            return;
        }
        // A request that waits only for the preferred part gets another registration.
        let need = registering.need;
        let (refused, others): (Vec<_>, Vec<_>) = std::mem::take(&mut registering.waiters)
            .into_iter()
            .partition(|(_, run)| run.overlaps(need));
        for (id, run) in refused {
            let first = run.first.max(need.first);
            let count = run.end().min(need.end()) - first;
            let rest = Run {
                first: need.end(),
                count: run.end().saturating_sub(need.end()),
            };
            if rest.count > 0 {
                self.with_request(id, |request| request.pending += 1);
            }
            self.refuse(&[(id, Run { first, count })], why, out);
            if rest.count > 0 {
                self.resume(id, exact_need(rest), out);
            }
        }
        for (id, run) in others {
            self.resume(id, exact_need(run), out);
        }
    }

    fn is_of_the_background(&self, id: u64) -> bool {
        let request = self.requests.get(&id);
        request.is_some_and(|it| matches!(it.requester, Requester::Background(_)))
    }

    fn refuse(&mut self, waiters: &[(u64, Run)], why: Refusal, out: &mut Decisions) {
        for (id, run) in waiters {
            if let Some(request) = self.requests.get_mut(id) {
                request.refused.push((*run, why));
                request.pending -= 1;
                self.finish_if_ready(*id, out);
            }
        }
    }

    /// Handles the end of a deregistration.
    pub(in crate::engine) fn deregistered(&mut self, id: u64, out: &mut Decisions) {
        let Some(deregistering) = (self.deregistering_ids.remove(&id))
            .and_then(|first| self.deregistering.remove(&first))
        else {
            return self
                .impossible
                .note("a deregistration ended that was not begun");
        };
        self.actual -= deregistering.run.count;
        self.update_stats();
        self.start(out);
        for (id, need) in deregistering.waiters {
            self.resume(id, need, out);
        }
        self.retry(out);
    }

    pub(super) fn await_registration(
        &mut self,
        registering: PendingRegistration,
        out: &mut Decisions,
    ) {
        let first = registering.preferred.first;
        self.registering_ids.insert(registering.id, first);
        self.registering.insert(first, registering);
        self.starting.push_back(first);
        self.start(out);
    }

    /// Starts the registrations for which there is room by now.
    fn start(&mut self, out: &mut Decisions) {
        while let Some(first) = self.starting.front() {
            let Some(registering) = self
                .registering
                .get_mut(first)
                .filter(|registering| !registering.started)
            else {
                self.starting.pop_front();
                continue;
            };
            let actual = self.actual + registering.preferred.count;
            if actual > self.limits.total || (actual > self.planned && actual > self.within.most())
            {
                // The deregistrations that make room are in flight.
                break;
            }
            self.actual += registering.preferred.count;
            registering.started = true;
            out.actions.push(Action::Register {
                id: registering.id,
                need: registering.need,
                preferred: registering.preferred,
            });
            self.stats.registrations += 1;
            self.starting.pop_front();
        }
        self.update_stats();
    }

    fn update_stats(&mut self) {
        self.stats.registered = self.actual;
        self.stats.peak = self.stats.peak.max(self.actual);
    }
}
