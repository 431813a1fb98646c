//! Registrations and deregistrations: decided on, begun when there is room, done or failed.

use super::{Coming, Local, only};
use crate::engine::impossible::impossible;
use crate::{Action, Decisions, Refusal, Registered, Run, table::Extent};

impl Local {
    /// A registration was done.
    pub(in crate::engine) fn registered(
        &mut self,
        id: u64,
        result: Result<Registered, Refusal>,
        out: &mut Decisions,
    ) {
        let Some(first) = self.coming_ids.remove(&id) else {
            return impossible("a registration ended that was not begun");
        };
        let Some(coming) = self.coming.remove(&first) else {
            return impossible("a registration ended that was not begun");
        };
        if coming.pledged {
            self.pledged -= coming.welcome.count;
        }
        match result {
            Ok(got) if got.run.contains(coming.need) && coming.welcome.contains(got.run) => {
                self.arrived(&coming, got, out);
            }
            Ok(_) => self.failed(coming, Refusal::NotMapped, out),
            Err(why) => self.failed(coming, why, out),
        }
        self.start(out);
        self.retry(out);
    }

    fn arrived(&mut self, coming: &Coming, got: Registered, out: &mut Decisions) {
        let spare = coming.welcome.count - got.run.count;
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
                // The table is full, or was told nonsense: what is in is taken out again.
                if bucket > extent.base
                    && let Some(slot) = self.editor.get(extent.base)
                {
                    self.editor.remove(slot);
                }
                self.planned -= got.run.count;
                self.leave(got.key, got.run, out);
                self.refuse(&coming.waiters, Refusal::Exhausted, out);
                return;
            }
        }
        if coming.passing {
            self.arrived_passing(got.run.first, &coming.waiters, out);
            return;
        }
        for (id, run) in &coming.waiters {
            self.resume(*id, only(*run), out);
        }
        if let Some(slot) = self.editor.get(got.run.first) {
            self.editor.queue(slot);
        }
    }

    fn failed(&mut self, mut coming: Coming, why: Refusal, out: &mut Decisions) {
        self.stats.failed += 1;
        self.actual -= coming.welcome.count;
        self.planned -= coming.welcome.count;
        let narrower = coming.welcome != coming.need;
        if narrower || (why == Refusal::Exhausted && !coming.retried) {
            // Less, or the same after victims are given up, a quarter of what is there.
            if !narrower {
                coming.retried = true;
                let mut spare = (self.planned / 4).max(coming.need.count);
                while spare > 0 {
                    let before = self.planned;
                    if !self.evict_next(out) {
                        break;
                    }
                    spare = spare.saturating_sub(before - self.planned);
                }
            }
            coming.welcome = coming.need;
            coming.started = false;
            self.planned += coming.welcome.count;
            if coming.pledged {
                self.pledged += coming.welcome.count;
            }
            self.await_registration(coming, out);
            return;
        }
        // Who waits for what was only welcome has it tried anew.
        let need = coming.need;
        let (refused, others): (Vec<_>, Vec<_>) = std::mem::take(&mut coming.waiters)
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
                self.with(id, |claim| claim.pending += 1);
            }
            self.refuse(&[(id, Run { first, count })], why, out);
            if rest.count > 0 {
                self.resume(id, only(rest), out);
            }
        }
        for (id, run) in others {
            self.resume(id, only(run), out);
        }
    }

    fn refuse(&mut self, waiters: &[(u64, Run)], why: Refusal, out: &mut Decisions) {
        for (id, run) in waiters {
            if let Some(claim) = self.claims.get_mut(id) {
                claim.refused.push((*run, why));
                claim.pending -= 1;
                self.look_at(*id, out);
            }
        }
    }

    /// A deregistration was done.
    pub(in crate::engine) fn deregistered(&mut self, id: u64, out: &mut Decisions) {
        let Some(leaving) =
            (self.leaving_ids.remove(&id)).and_then(|first| self.leaving.remove(&first))
        else {
            return impossible("a deregistration ended that was not begun");
        };
        self.actual -= leaving.run.count;
        self.note();
        self.start(out);
        for (id, need) in leaving.waiters {
            self.resume(id, need, out);
        }
        self.retry(out);
    }

    pub(super) fn await_registration(&mut self, coming: Coming, out: &mut Decisions) {
        let first = coming.welcome.first;
        self.coming_ids.insert(coming.id, first);
        self.coming.insert(first, coming);
        self.starting.push_back(first);
        self.start(out);
    }

    /// Starts registrations for which there is room by now.
    fn start(&mut self, out: &mut Decisions) {
        while let Some(first) = self.starting.front() {
            let Some(coming) = self.coming.get_mut(first).filter(|coming| !coming.started) else {
                self.starting.pop_front();
                continue;
            };
            if self.actual + coming.welcome.count > self.limits.total {
                break;
            }
            self.actual += coming.welcome.count;
            coming.started = true;
            out.actions.push(Action::Register {
                id: coming.id,
                need: coming.need,
                welcome: coming.welcome,
            });
            self.stats.registrations += 1;
            self.starting.pop_front();
        }
        self.note();
    }

    fn note(&mut self) {
        self.stats.registered = self.actual;
        self.stats.peak = self.stats.peak.max(self.actual);
    }
}
