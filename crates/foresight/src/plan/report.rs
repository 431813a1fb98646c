//! The helper's reports on its actions.

use super::region::RegionState;
use super::{HelperTask, Plan, RegionId};
use crate::communication::PageRun;
use crate::time::Time;

/// The most neighbours of a deregistered region that are checked. The next use of any other neighbour finds it torn.
const MOST_MENDED: usize = 16;

impl Plan {
    /// Reports that a region was registered, or found registered.
    ///
    /// # Panics
    ///
    /// If the plan did not ask for that; this holds for all reports.
    pub fn registered(&mut self, id: RegionId) {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            RegionState::Registering,
            "the region is not being registered"
        );
        region.state = RegionState::Registered;
        region.is_ahead = true;
        self.set_held(id, false);
        self.requeue(id);
    }

    /// As [`registered`](Self::registered), for a region that was used during its registration. Decides now whether
    /// it is kept for its next use.
    ///
    /// # Panics
    ///
    /// As [`registered`](Self::registered).
    pub fn registered_late(&mut self, id: RegionId, now: Time) -> Option<HelperTask> {
        self.registered(id);
        self.regions.at_mut(id).is_ahead = false;
        self.reconsider_or_requeue(id, now)
    }

    /// Reports that a region could not be registered; its next use registers it.
    ///
    /// # Panics
    ///
    /// If the plan did not ask for that.
    pub fn not_registered(&mut self, id: RegionId) {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            RegionState::Registering,
            "the region is not being registered"
        );
        region.state = RegionState::Absent;
        region.uses.expect_nothing();
        self.registered_bytes = self.registered_bytes.saturating_sub(region.bytes());
        self.stats.failed += 1;
        self.requeue(id);
        self.note_room();
    }

    /// Reports that a region was deregistered, or found absent. Returns true if it is expected to be registered
    /// again; if not, the driver may forget it.
    ///
    /// # Panics
    ///
    /// If the plan did not ask for that.
    pub fn deregistered(&mut self, id: RegionId) -> bool {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            RegionState::Deregistering,
            "the region is not being deregistered"
        );
        region.state = RegionState::Absent;
        region.is_ahead = false;
        self.set_held(id, false);
        let region = self.regions.at(id);
        let is_expected = region.earliest().is_some();
        self.registered_bytes = self.registered_bytes.saturating_sub(region.bytes());
        self.requeue(id);
        self.note_room();
        is_expected
    }

    /// The registered, unused regions that share memory with a deregistered one, 16 at most. A NIC registers whole
    /// pages once, so adjacent buffers share a page, which is now deregistered. The driver checks which of them are
    /// [torn](Self::torn). Further neighbours cost their next use.
    pub fn neighbours(&self, id: RegionId) -> Vec<(RegionId, PageRun)> {
        self.regions.registered_beside(id, MOST_MENDED)
    }

    /// Reports that part of a registered region was deregistered with a neighbour. It is registered again if it is
    /// expected. Its next use may find it registered or not, and is charged as if the region itself had been
    /// deregistered.
    ///
    /// # Panics
    ///
    /// If the region is not among the [neighbours](Self::neighbours).
    pub fn torn(&mut self, id: RegionId, now: Time) -> Option<HelperTask> {
        self.charge_for(id, self.reregister_ns(id), now);
        let region = self.regions.at_mut(id);
        assert!(region.can_go(), "the region is not registered");
        let memory = region.memory;
        if !region.is_kept() {
            self.lost(memory);
            return None;
        }
        region.state = RegionState::Registering;
        self.regions.settle(id);
        Some(HelperTask::Register { id, region: memory })
    }

    /// Reports that a region could not be deregistered because it is in use; its next record decides.
    ///
    /// # Panics
    ///
    /// If the plan did not ask for that.
    pub fn still_used(&mut self, id: RegionId) {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            RegionState::Deregistering,
            "the region is not being deregistered"
        );
        region.state = RegionState::Registered;
        let charged_ns = std::mem::take(&mut region.charged_ns);
        self.worth.refund(charged_ns);
        self.set_held(id, true);
        self.requeue(id);
    }

    /// Decides again about a region that was [still used](Self::still_used) and may be free by now. Returns nothing
    /// if its next record came before.
    pub fn try_again(&mut self, id: RegionId, now: Time) -> Option<HelperTask> {
        if !self.is_in_use(id) {
            return None;
        }
        // Until the helper's report, it counts as in use. Most are, and then no index changes.
        let action = self.deregister_unneeded(id, now);
        if action.is_none() {
            self.set_held(id, false);
            self.requeue(id);
        }
        action
    }

    /// True if a region was in use when it was to be deregistered, and is undecided since.
    pub fn is_in_use(&self, id: RegionId) -> bool {
        (self.regions.get(id)).is_some_and(|it| it.state == RegionState::Registered && it.is_held)
    }

    /// The regions that overlap this memory and were in use when they were to be deregistered.
    pub fn in_use_within(&self, memory: PageRun) -> Vec<RegionId> {
        self.regions.held_within(memory)
    }

    /// Notes that a region is no longer registered, though the helper did not deregister it. Does nothing if the plan
    /// knows that already or asked for it.
    pub fn lost(&mut self, memory: PageRun) {
        let Some(id) = self.regions.exact(memory) else {
            return;
        };
        let region = self.regions.at_mut(id);
        if region.state != RegionState::Registered {
            return;
        }
        region.state = RegionState::Absent;
        region.is_ahead = false;
        self.registered_bytes = self.registered_bytes.saturating_sub(region.bytes());
        self.set_held(id, false);
        self.requeue(id);
        self.note_room();
    }

    /// Notes that operations deregistered `others` first, because their own `short` bytes would have exceeded the
    /// [room](Plan::room_bytes). The operations used `needed` bytes at once, if that is not zero.
    pub fn crowded_out(&mut self, others: &[PageRun], short: u64, needed: u64, now: Time) {
        let mut takes_ns = 0_u64;
        for it in others {
            self.lost(*it);
            let pages = self.page_count(it.bytes);
            takes_ns = takes_ns.saturating_add(self.config.costs.deregister.of(pages));
            if let Some(id) = self.regions.exact(*it) {
                self.charge_for(id, self.reregister_ns(id), now);
            }
        }
        self.worth.charge(takes_ns);
        let before = self.bound.bytes();
        self.bound.raise_in_use(needed);
        let short = short.saturating_sub(self.bound.bytes() - before);
        if self.bound.count_loss(takes_ns, short, now) {
            self.regions.forget_shortages();
        }
        if self.bound.bytes() > before {
            self.note_room();
        }
    }

    /// Notes that there is more room. Postponed regions are tried again by the next look at the queue.
    pub(super) fn note_room(&mut self) {
        self.has_new_room |= self.regions.postponed().next().is_some();
    }
}
