//! References on extents: those of requests, those of peers, and their return.

use std::collections::hash_map::Entry;

use super::{LocalHold, LocalTable};
use crate::{Decisions, Run};

impl LocalTable {
    /// Hands a request's holds to a peer, with the preferred buckets that were registered around
    /// them. They stay held until [`detach`](Self::detach).
    pub(in crate::engine) fn attach(&mut self, id: u64) -> Vec<LocalHold> {
        let Some(mut request) = self.requests.remove(&id) else {
            return Vec::new();
        };
        for index in 0..request.holds.len() {
            let next = request.holds.get(index + 1).map(|hold| hold.run.first);
            let hold = &mut request.holds[index];
            let extent = self.editor.extent(hold.slot);
            let preferred = (request.needs.iter())
                .find(|need| need.run.overlaps(hold.run))
                .map_or(hold.run.end(), |need| need.preferred.end());
            let end = preferred.min(extent.end).min(next.unwrap_or(u64::MAX));
            hold.run.count = end.max(hold.run.end()) - hold.run.first;
            let held = self.outside.entry(extent.base).or_default();
            if held.count == 0 {
                self.attached += extent.end - extent.base;
            }
            held.count += 1;
            held.most = held.most.max(hold.run.count);
        }
        request.holds
    }

    /// Keeps a request's holds registered for good, each extent once.
    pub(super) fn attach_for_good(&mut self, id: u64, out: &mut Decisions) -> Vec<LocalHold> {
        let holds = self.attach(id);
        for hold in &holds {
            let base = self.editor.extent(hold.slot).base;
            // There is one reference for each extent, on the slot that was noted first.
            match self.kept.entry(base) {
                Entry::Occupied(_) => self.detach(hold.slot, false, out),
                Entry::Vacant(place) => _ = place.insert(hold.slot),
            }
        }
        holds
    }

    /// Counts a request's extents as permanent, so that nobody waits for their room.
    pub(super) fn settle_for_good(&mut self, id: u64) {
        if let Some(request) = self.requests.get(&id) {
            self.permanent += self.extents(request).iter().map(|it| it.count).sum::<u64>();
        }
    }

    /// Takes back one reference of a peer.
    pub(in crate::engine) fn detach(&mut self, slot: u32, unpin: bool, out: &mut Decisions) {
        let extent = self.editor.extent(slot);
        if let Some(held) = self.outside.get_mut(&extent.base) {
            held.count -= 1;
            if held.count == 0 {
                self.outside.remove(&extent.base);
                self.attached -= extent.end - extent.base;
            }
        }
        let unused = self.editor.drop_reference(slot);
        if unused && unpin {
            self.evict(slot, out);
        }
    }

    pub(super) fn drop_holds(
        &mut self,
        of: u64,
        holds: &[LocalHold],
        unpin: bool,
        out: &mut Decisions,
    ) {
        for hold in holds {
            let base = self.editor.extent(hold.slot).base;
            let unused = self.editor.drop_reference(hold.slot);
            if self.transient.get(&base) == Some(&of) {
                self.end_transient(base, out);
            } else if unused && unpin {
                self.evict(hold.slot, out);
            }
        }
        self.sweep(out);
    }

    /// Queues a bucket again that an attempt to hit held for a moment without telling a waiter.
    pub(in crate::engine) fn recover_missed_release(&mut self, bucket: u64, out: &mut Decisions) {
        if let Some(slot) = self.editor.get(bucket)
            && self.editor.references(slot) == 0
        {
            self.editor.requeue(slot);
        }
        self.sweep(out);
        self.retry(out);
    }

    /// Queues a record again whose last awaited reference was given back without the lock.
    pub(in crate::engine) fn released(&mut self, slot: u32, out: &mut Decisions) {
        self.editor.requeue(slot);
        self.sweep(out);
        self.retry(out);
    }

    /// Evicts all extents of a run, even those kept for good, where nobody holds them. The caller
    /// tries again when something was given back. No peer uses the extents kept for good.
    pub(in crate::engine) fn give_up(&mut self, run: Run, out: &mut Decisions) {
        for extent in self.editor.extents_in(run) {
            if let Some(slot) = self.kept.remove(&extent.first) {
                self.detach(slot, false, out);
            }
        }
        self.withdraw(run, out);
    }

    /// Evicts the extents of a run that nobody holds, and closes the others to new holders.
    pub(in crate::engine) fn withdraw(&mut self, run: Run, out: &mut Decisions) {
        for extent in self.editor.extents_in(run) {
            if let Some(slot) = self.editor.get(extent.first)
                && !self.evict(slot, out)
            {
                self.editor.close(slot);
                // A holder may have let go before, when nobody awaited that. Any later release leads
                // here again.
                self.evict(slot, out);
            }
        }
    }
}
