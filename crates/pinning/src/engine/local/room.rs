//! The room under the limits, and evictions that make room.

use super::{LocalTable, PendingDeregistration, Requester, run_of};
use crate::{Action, Decisions, Run, table::Extent};

/// The answer to a request for room.
pub(super) enum RoomAnswer {
    Yes,
    /// There will be room when others are done.
    Later,
    /// There is none while peers hold what they hold.
    Never,
}

impl LocalTable {
    /// Applies the limits after peers gave memory back: evicts victims above them, and retries the
    /// requests that wait for room.
    pub(in crate::engine) fn settle(&mut self, out: &mut Decisions) {
        while self.beside_peers() > self.beside_peers_limit() {
            if !self.evict_next(out) {
                break;
            }
        }
        self.retry(out);
    }

    /// Begins the waiting requests again, in order, as long as there is room.
    pub(super) fn retry(&mut self, out: &mut Decisions) {
        while let Some(id) = self.queue.pop_first() {
            // The count has all needs, as if nothing were registered: extents that the request
            // would use in part may be in its way.
            if let Some(request) = self.requests.get(&id) {
                let count = request.needs.iter().map(|need| need.run.count).sum();
                let requester = request.requester;
                match self.make_room(count, requester, out) {
                    RoomAnswer::Yes => {}
                    RoomAnswer::Later => {
                        self.queue.insert(id);
                        return;
                    }
                    RoomAnswer::Never => self.with_request(id, |request| request.waits = false),
                }
            }
            self.begin(id, out);
            if self.queue.contains(&id) {
                return;
            }
        }
    }

    /// The buckets that are neither held by peers nor registered for them.
    fn beside_peers(&self) -> u64 {
        self.planned
            .saturating_sub(self.attached.saturating_add(self.pledged))
    }

    /// The most buckets that may be registered beside the peers' ones.
    fn beside_peers_limit(&self) -> u64 {
        let most = if self.adaptive {
            self.limits.total
        } else {
            self.limits.victims
        };
        most - self.reserve
    }

    /// The buckets that can be registered for peers' operations without evicting.
    pub(in crate::engine) fn room(&self) -> u64 {
        let all = (self.limits.total - self.reserve).saturating_sub(self.planned);
        self.beside_peers_limit()
            .saturating_sub(self.beside_peers())
            .min(all)
    }

    /// The most buckets that may be registered once a requester has its own.
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
            Requester::Own(_) => {
                self.beside_peers() + count <= self.beside_peers_limit() + self.reserve
            }
            _ => self.beside_peers() + count <= self.beside_peers_limit(),
        };
        of_its_kind && self.planned + count <= self.total(requester)
    }

    pub(super) fn make_room(
        &mut self,
        count: u64,
        requester: Requester,
        out: &mut Decisions,
    ) -> RoomAnswer {
        if let Requester::Move(_) = requester
            && self.attached + self.pledged + count > self.peers_limit
        {
            // Extents that peers hold are not evicted for peers.
            return RoomAnswer::Never;
        }
        while !self.has_room(count, requester) {
            if self.evict_next(out) {
                continue;
            }
            // Every other user gives its buckets back; peers may not.
            let stays = self.attached + self.permanent;
            let rest = self.beside_peers_limit().saturating_sub(self.permanent);
            let possible = count <= self.total(requester).saturating_sub(stays)
                && (requester.is_peer() || count <= rest);
            return if possible && self.planned > stays {
                RoomAnswer::Later
            } else {
                RoomAnswer::Never
            };
        }
        RoomAnswer::Yes
    }

    /// Evicts the oldest victim.
    pub(super) fn evict_next(&mut self, out: &mut Decisions) -> bool {
        match self.editor.take_victim() {
            Some(extent) => {
                self.note_evicted(extent, out);
                true
            }
            None => false,
        }
    }

    pub(super) fn evict(&mut self, slot: u32, out: &mut Decisions) -> bool {
        match self.editor.remove(slot) {
            Some(extent) => {
                self.note_evicted(extent, out);
                true
            }
            None => false,
        }
    }

    fn note_evicted(&mut self, extent: Extent, out: &mut Decisions) {
        let run = run_of(&extent);
        self.planned -= run.count;
        self.transient.remove(&run.first);
        self.ending_transient.remove(&run.first);
        self.deregister(extent.key, run, out);
    }

    pub(super) fn deregister(&mut self, key: u64, run: Run, out: &mut Decisions) {
        let id = self.next_id();
        self.stats.deregistrations += 1;
        self.deregistering_ids.insert(id, run.first);
        self.deregistering.insert(
            run.first,
            PendingDeregistration {
                run,
                waiters: Vec::new(),
            },
        );
        out.actions.push(Action::Deregister { id, key, run });
    }
}
