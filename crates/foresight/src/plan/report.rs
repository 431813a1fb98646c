//! What became of what the plan asked for.

use super::region::State;
use super::{Action, Plan, RegionId};
use crate::communication::Region;
use crate::time::Time;

/// The most regions put off for want of room that are tried again when room comes.
const MOST_RETRIED: usize = 4;

/// The most neighbours of a region that was deregistered that are looked at. Others are found torn by their next use.
const MOST_MENDED: usize = 16;

impl Plan {
    /// A region was registered, or found to be.
    ///
    /// # Panics
    ///
    /// As all reports, if that was not asked for.
    pub fn registered(&mut self, id: RegionId) {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            State::Registering,
            "only what is being registered is registered"
        );
        region.state = State::Registered;
        region.is_ahead = true;
        self.set_held(id, false);
        self.requeue(id);
    }

    /// As [`registered`](Self::registered), of a region that was used while it was on its way: whether it is kept for
    /// its next use is decided now.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn registered_late(&mut self, id: RegionId, now: Time) -> Option<Action> {
        self.registered(id);
        self.regions.at_mut(id).is_ahead = false;
        self.reconsider(id, now)
    }

    /// A region could not be registered: that is left to its next user.
    ///
    /// # Panics
    ///
    /// If that was not asked for.
    pub fn not_registered(&mut self, id: RegionId) {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            State::Registering,
            "only what is being registered fails"
        );
        region.state = State::Absent;
        region.expect_nothing();
        self.registered_bytes = self.registered_bytes.saturating_sub(region.bytes());
        self.stats.failed += 1;
        self.requeue(id);
        self.retry_postponed();
    }

    /// A region was deregistered, or found to be. Says whether it is expected to be registered again: if not,
    /// nothing of it needs to be kept.
    ///
    /// # Panics
    ///
    /// If that was not asked for.
    pub fn deregistered(&mut self, id: RegionId) -> bool {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            State::Deregistering,
            "only what is being deregistered is absent"
        );
        region.state = State::Absent;
        region.is_ahead = false;
        let is_expected = region.earliest().is_some();
        self.registered_bytes = self.registered_bytes.saturating_sub(region.bytes());
        self.requeue(id);
        self.retry_postponed();
        is_expected
    }

    /// Those that share memory with a region that was deregistered, and are registered and not in use: where a NIC
    /// registers whole pages once, buffers that lie side by side share a page, which went with it. The driver looks
    /// which of them are [torn](Self::torn). They are 16 at most: where more overlap, the others cost their next use.
    pub fn neighbours(&self, id: RegionId) -> Vec<(RegionId, Region)> {
        self.regions.registered_beside(id, MOST_MENDED)
    }

    /// A part of a registered region was deregistered with another one: it is to be registered again, if it is expected.
    /// Its next use may find it registered or not, and pays for that as if it had been given up itself.
    ///
    /// # Panics
    ///
    /// If it is not one of those that [share memory](Self::neighbours) with that.
    pub fn torn(&mut self, id: RegionId, now: Time) -> Option<Action> {
        self.charge_for(id, self.again_ns(id), now);
        let region = self.regions.at_mut(id);
        assert!(region.can_go(), "only what is registered is torn");
        let memory = region.memory;
        if !region.is_kept() {
            self.lost(memory);
            return None;
        }
        region.state = State::Registering;
        self.regions.settle(id);
        Some(Action::Register { id, region: memory })
    }

    /// A region could not be deregistered because somebody uses it: its next record decides.
    ///
    /// # Panics
    ///
    /// If that was not asked for.
    pub fn still_used(&mut self, id: RegionId) {
        let region = self.regions.at_mut(id);
        assert_eq!(
            region.state,
            State::Deregistering,
            "only what is being deregistered is still used"
        );
        region.state = State::Registered;
        let charged_ns = std::mem::take(&mut region.charged_ns);
        self.worth.refund(charged_ns);
        self.set_held(id, true);
        self.requeue(id);
    }

    /// A region that was [still used](Self::still_used) may be free by now: what is to be done about that. Nothing,
    /// if its next record came before.
    pub fn try_again(&mut self, id: RegionId, now: Time) -> Option<Action> {
        if !self.is_in_use(id) {
            return None;
        }
        self.set_held(id, false);
        self.requeue(id);
        self.reconsider(id, now)
    }

    /// Whether a region was still used when it was to be deregistered, and nothing came of it since.
    pub fn is_in_use(&self, id: RegionId) -> bool {
        (self.regions.get(id)).is_some_and(|it| it.state == State::Registered && it.is_held)
    }

    /// The regions that were still used when they were to be deregistered, and that overlap this memory.
    pub fn in_use_within(&self, memory: Region) -> Vec<RegionId> {
        self.regions.held_within(memory)
    }

    /// A region is not registered any more, though the helper did not give it up: nothing changes if that is known, or
    /// asked for.
    pub fn lost(&mut self, memory: Region) {
        let Some(id) = self.regions.exact(memory) else {
            return;
        };
        let region = self.regions.at_mut(id);
        if region.state != State::Registered {
            return;
        }
        region.state = State::Absent;
        region.is_ahead = false;
        self.registered_bytes = self.registered_bytes.saturating_sub(region.bytes());
        self.set_held(id, false);
        self.requeue(id);
        self.retry_postponed();
    }

    /// Operations used `needed` bytes at once, if that is not zero, and deregistered others first because with their own
    /// `short` bytes more would have been registered than [there is room for](Plan::room_bytes).
    pub fn crowded_out(&mut self, others: &[Region], short: u64, needed: u64, now: Time) {
        let mut takes_ns = 0_u64;
        for it in others {
            self.lost(*it);
            let pages = self.page_count(it.bytes);
            takes_ns = takes_ns.saturating_add(self.config.costs.deregister.of(pages));
            if let Some(id) = self.regions.exact(*it) {
                self.charge_for(id, self.again_ns(id), now);
            }
        }
        self.worth.charge(takes_ns);
        let before = self.bound.bytes();
        self.bound.at_once(needed);
        let short = short.saturating_sub(self.bound.bytes() - before);
        if self.bound.cost(takes_ns, short, now) {
            self.regions.forget_short();
        }
        if self.bound.bytes() > before {
            self.retry_postponed();
        }
    }

    /// Room may have come for regions that were put off: the most urgent is tried, and more once these have it.
    pub(super) fn retry_postponed(&mut self) {
        let postponed = self.regions.postponed().take(MOST_RETRIED);
        for id in postponed.collect::<Vec<_>>() {
            self.regions.at_mut(id).is_postponed = false;
            self.requeue(id);
        }
    }
}
