//! Whether there is room under the limits, and what is given up for it.

use super::{Deregistering, Local, Requester, run_of};
use crate::{Action, Decisions, Run, table::Extent};

/// Whether there is room.
pub(super) enum Room {
    Yes,
    /// When others are done.
    Later,
    /// Not while peers hold what they hold.
    Never,
}

impl Local {
    /// After peers gave back: no more victims stay than the limits allow, and who waited for
    /// room is looked at.
    pub(in crate::engine) fn settle(&mut self, out: &mut Decisions) {
        while self.rest() > self.rest_limit() {
            if !self.evict_next(out) {
                break;
            }
        }
        self.retry(out);
    }

    /// Who waits for room is begun anew, in order, as long as there is some.
    pub(super) fn retry(&mut self, out: &mut Decisions) {
        while let Some(id) = self.queue.pop_first() {
            // All it needs, as if nothing of it were there: extents that it would use a little
            // of may be what is in its way.
            if let Some(request) = self.requests.get(&id) {
                let count = request.needs.iter().map(|need| need.run.count).sum();
                let requester = request.requester;
                match self.make_room(count, requester, out) {
                    Room::Yes => {}
                    Room::Later => {
                        self.queue.insert(id);
                        return;
                    }
                    Room::Never => self.with(id, |request| request.waits = false),
                }
            }
            self.begin(id, out);
            if self.queue.contains(&id) {
                return;
            }
        }
    }

    /// Buckets that are neither held by peers nor registered for them.
    fn rest(&self) -> u64 {
        self.planned
            .saturating_sub(self.attached.saturating_add(self.pledged))
    }

    /// Buckets that may be registered beside what peers hold.
    fn rest_limit(&self) -> u64 {
        let most = if self.adaptive {
            self.limits.total
        } else {
            self.limits.victims
        };
        most - self.reserve
    }

    /// Buckets that may be registered for peers' operations and nothing be given up for them.
    pub(in crate::engine) fn room(&self) -> u64 {
        let all = (self.limits.total - self.reserve).saturating_sub(self.planned);
        self.rest_limit().saturating_sub(self.rest()).min(all)
    }

    /// Buckets that may be registered when a requester gets some.
    fn total(&self, requester: Requester) -> u64 {
        match requester {
            Requester::Own(_) => self.limits.total,
            _ => self.limits.total - self.reserve,
        }
    }

    fn has_room(&self, count: u64, requester: Requester) -> bool {
        let of_its_kind = match requester {
            Requester::Move(_) => self.attached + self.pledged + count <= self.peers_limit,
            Requester::Pin(_) => true,
            Requester::Own(_) => self.rest() + count <= self.rest_limit() + self.reserve,
            _ => self.rest() + count <= self.rest_limit(),
        };
        of_its_kind && self.planned + count <= self.total(requester)
    }

    pub(super) fn make_room(
        &mut self,
        count: u64,
        requester: Requester,
        out: &mut Decisions,
    ) -> Room {
        if let Requester::Move(_) = requester
            && self.attached + self.pledged + count > self.peers_limit
        {
            // What peers hold is not given up for peers.
            return Room::Never;
        }
        while !self.has_room(count, requester) {
            if self.evict_next(out) {
                continue;
            }
            // Whoever uses the rest gives it back, unless that is peers.
            let stays = self.attached + self.permanent;
            let rest = self.rest_limit().saturating_sub(self.permanent);
            let possible = count <= self.total(requester).saturating_sub(stays)
                && (requester.is_peer() || count <= rest);
            return if possible && self.planned > stays {
                Room::Later
            } else {
                Room::Never
            };
        }
        Room::Yes
    }

    /// Gives up the oldest victim.
    pub(super) fn evict_next(&mut self, out: &mut Decisions) -> bool {
        match self.editor.take_victim() {
            Some(extent) => {
                self.gone(extent, out);
                true
            }
            None => false,
        }
    }

    pub(super) fn evict(&mut self, slot: u32, out: &mut Decisions) -> bool {
        match self.editor.remove(slot) {
            Some(extent) => {
                self.gone(extent, out);
                true
            }
            None => false,
        }
    }

    fn gone(&mut self, extent: Extent, out: &mut Decisions) {
        let run = run_of(&extent);
        self.planned -= run.count;
        self.transient.remove(&run.first);
        self.ending_transient.remove(&run.first);
        self.leave(extent.key, run, out);
    }

    pub(super) fn leave(&mut self, key: u64, run: Run, out: &mut Decisions) {
        let id = self.next_id();
        self.stats.deregistrations += 1;
        self.deregistering_ids.insert(id, run.first);
        self.deregistering.insert(
            run.first,
            Deregistering {
                run,
                waiters: Vec::new(),
            },
        );
        out.actions.push(Action::Deregister { id, key, run });
    }
}
