//! The conditions to deregister, to register, and to evict at the limit.

use super::region::RegionState;
use super::{HelperTask, Plan, RegionId};
use crate::time::Time;

/// The number of neighbours checked that would be torn by a deregistration.
const MOST_TORN: usize = 8;

/// The most postponed regions that are checked when room comes.
const MOST_RETRIED: usize = 4;

/// The room for one more region.
enum RoomFor {
    Enough,
    /// There is enough once this region is deregistered.
    Instead(RegionId),
    /// No region that is needed later can make room within the limit.
    None,
    /// So many bytes are missing.
    Short(u64),
}

impl Plan {
    /// Decides about a region that has changed. It is deregistered, or else it has its new place in the queue and the
    /// indexes.
    pub(super) fn reconsider_or_requeue(&mut self, id: RegionId, now: Time) -> Option<HelperTask> {
        let action = self.reconsider(id, now);
        if action.is_none() {
            self.requeue(id);
        }
        action
    }

    fn reconsider(&mut self, id: RegionId, now: Time) -> Option<HelperTask> {
        let is_free = self.regions.at(id).can_go();
        is_free.then(|| self.deregister_unneeded(id, now))?
    }

    /// The deregistration condition, for a registered region.
    pub(super) fn deregister_unneeded(&mut self, id: RegionId, now: Time) -> Option<HelperTask> {
        // A use may have registered it meanwhile.
        self.queue.remove(id);
        let region = self.regions.at(id);
        let takes_ns = self
            .config
            .costs
            .to_deregister(self.page_count(region.bytes()), self.queue.len());
        let again = now.after(takes_ns).after(self.config.sharing.delay_ns());
        // Without a forecast this is a first use, or an unpredictable one.
        let is_needed = region.earliest().is_some_and(|deadline| again > deadline);
        if is_needed {
            return None;
        }
        let reregister_ns = self.reregister_ns(id);
        let wasted_ns = self.wasted_ns(id);
        if !self.worth.affords(wasted_ns, now) {
            let region = self.regions.at_mut(id);
            (region.is_spared, region.spared_ns) = (true, wasted_ns);
            return None;
        }
        self.charge_for(id, reregister_ns, now);
        Some(self.deregister(id))
    }

    /// The cost of registering a region again on demand for its next use.
    pub(super) fn reregister_ns(&self, id: RegionId) -> u64 {
        let pages = self.page_count(self.regions.at(id).bytes());
        self.config.costs.register.of(pages)
    }

    /// The cost of deregistering a region whose next use is not foreseen: its own registration, and those of the
    /// regions that it tears. Long regions keep their shared pages apart, and tear nothing.
    fn wasted_ns(&self, id: RegionId) -> u64 {
        let mut all_ns = self.reregister_ns(id);
        if self.worth.is_bounded() && !self.is_worth_parting(self.regions.at(id).memory) {
            for (other, _) in self.regions.registered_beside(id, MOST_TORN) {
                all_ns = all_ns.saturating_add(self.reregister_ns(other));
            }
        }
        all_ns
    }

    /// Charges a region that is deregistered, or torn; its next use may pay for that.
    pub(super) fn charge_for(&mut self, id: RegionId, ns: u64, now: Time) {
        self.worth.charge(ns);
        let region = self.regions.at_mut(id);
        region.charged_ns = region.charged_ns.saturating_add(ns);
        region.charged_at = now;
    }

    /// Deregisters spared regions, once that is worth its cost.
    pub(super) fn give_up_spared(&mut self, now: Time) -> Option<HelperTask> {
        while let Some(id) = self.regions.first_spared()
            && self.worth.affords(self.regions.at(id).spared_ns, now)
        {
            self.regions.at_mut(id).is_spared = false;
            let action = self.reconsider_or_requeue(id, now);
            if action.is_some() {
                return action;
            }
        }
        None
    }

    pub(super) fn deregister(&mut self, id: RegionId) -> HelperTask {
        let region = self.regions.at_mut(id);
        region.state = RegionState::Deregistering;
        let memory = region.memory;
        self.regions.settle(id);
        HelperTask::Deregister { id, region: memory }
    }

    /// Queues a region for registration at its present deadline, or takes it out of the queue. An idle region also
    /// releases its shared pages.
    pub(super) fn requeue(&mut self, id: RegionId) {
        self.regions.settle(id);
        let region = self.regions.at(id);
        let is_wanted = region.state == RegionState::Absent && !region.is_postponed;
        match region.due().filter(|_| is_wanted) {
            Some(due) => {
                let cost_ns = self.registration_ns(region.bytes());
                self.queue.insert(id, due, cost_ns);
            }
            None => self.queue.remove(id),
        }
        if region.is_idle() {
            self.note_idle_pages(id);
        }
    }

    /// Drops forecasts whose use is overdue by a period.
    pub(super) fn expire(&mut self, now: Time) -> Option<HelperTask> {
        while let Some((at, id)) = self.regions.first_overdue()
            && at <= now
        {
            let region = self.regions.at_mut(id);
            region.uses.expire(now);
            let is_over = region.earliest().is_none();
            if is_over {
                region.is_postponed = false;
            }
            if region.state == RegionState::Registered
                && region.earliest().is_none()
                && region.is_ahead
            {
                region.is_ahead = false;
                self.stats.unused += 1;
            }
            if is_over {
                let _ = self.regions.take_shortage(id);
            }
            let action = self.reconsider_or_requeue(id, now);
            if action.is_some() {
                return action;
            }
        }
        None
    }

    /// The registration condition.
    pub(super) fn register_first(&mut self, now: Time) -> Option<HelperTask> {
        self.retry_postponed(now);
        while let Some(first) = self.queue.first() {
            let bytes = self.regions.at(first.region).bytes();
            if !self.is_due(bytes, first.deadline, now) {
                return None;
            }
            match self.room_for(bytes, first.wanted) {
                RoomFor::Enough => {
                    self.queue.remove(first.region);
                    return Some(self.register(first.region, now));
                }
                RoomFor::Instead(victim) => return Some(self.deregister(victim)),
                lacking => self.note_lack(first.region, &lacking),
            }
            self.queue.remove(first.region);
            self.regions.at_mut(first.region).is_postponed = true;
            self.regions.settle(first.region);
        }
        None
    }

    /// Queues the most urgent postponed regions again, if room has come. Those without room stay as they are: moving
    /// them to the queue and back would change several trees for each region that is deregistered.
    fn retry_postponed(&mut self, now: Time) {
        if !std::mem::take(&mut self.has_new_room) {
            return;
        }
        let mut first = [None; MOST_RETRIED];
        for (slot, id) in first.iter_mut().zip(self.regions.postponed()) {
            *slot = Some(id);
        }
        let mut promised = 0_u64;
        for id in first.into_iter().flatten() {
            let region = self.regions.at(id);
            let bytes = region.bytes();
            let due = region.due().filter(|due| self.is_due(bytes, *due, now));
            if let Some(wanted) = due {
                let room = self.room_for(promised.saturating_add(bytes), wanted);
                match room {
                    RoomFor::Enough => promised = promised.saturating_add(bytes),
                    RoomFor::Instead(_) => {}
                    RoomFor::None | RoomFor::Short(_) => {
                        self.note_lack(id, &room);
                        continue;
                    }
                }
            }
            self.regions.at_mut(id).is_postponed = false;
            self.requeue(id);
        }
    }

    /// True if a registration can be postponed no longer.
    fn is_due(&self, bytes: u64, deadline: Time, now: Time) -> bool {
        now.after(self.to_delay_ns(bytes)) > deadline
    }

    /// The room for `bytes` bytes that are wanted at some time.
    fn room_for(&self, bytes: u64, wanted: Time) -> RoomFor {
        let known = self.registered_bytes.saturating_add(bytes);
        if known > self.config.limit_bytes {
            return self
                .victim(bytes, wanted)
                .map_or(RoomFor::None, RoomFor::Instead);
        }
        let all = known.max(self.actual_bytes.saturating_add(bytes));
        match all.saturating_sub(self.room_bytes()) {
            0 => RoomFor::Enough,
            short => RoomFor::Short(short),
        }
    }

    /// Notes that there is no room for a region that is due.
    fn note_lack(&mut self, id: RegionId, lack: &RoomFor) {
        match lack {
            RoomFor::Short(bytes) => self.regions.note_shortage(id, *bytes),
            RoomFor::None => self.stats.postponed += 1,
            RoomFor::Enough | RoomFor::Instead(_) => {}
        }
    }

    fn register(&mut self, id: RegionId, now: Time) -> HelperTask {
        let region = self.regions.at_mut(id);
        region.state = RegionState::Registering;
        region.registered_from = now;
        let region = region.memory;
        self.regions.settle(id);
        self.registered_bytes = self.registered_bytes.saturating_add(region.bytes);
        HelperTask::Register { id, region }
    }

    /// The registered region needed last, if that need is after `wanted`, and if such regions together make enough
    /// room. The comparison uses the time of need, not the deadline, which spacing may move earlier. Otherwise two
    /// regions would evict each other in turn.
    fn victim(&self, bytes: u64, wanted: Time) -> Option<RegionId> {
        let (last, id) = self.regions.last_needed()?;
        let freed = self.regions.needed_after(wanted);
        let left = self.registered_bytes.saturating_sub(freed);
        let fits = left.saturating_add(bytes) <= self.config.limit_bytes;
        (last > wanted && fits).then_some(id)
    }

    pub(super) fn page_count(&self, bytes: u64) -> u64 {
        bytes / self.config.page_bytes
    }

    /// The duration of one item of each queue: the distance between deadlines.
    pub(super) fn registration_ns(&self, bytes: u64) -> u64 {
        let register_ns = self.config.costs.register.of(self.page_count(bytes));
        self.one_use_ns().saturating_add(register_ns)
    }

    /// The longest duration of one item of the deregistration queue.
    fn one_use_ns(&self) -> u64 {
        let pages = self.page_count(self.regions.longest_bytes());
        self.config
            .costs
            .one_use(pages, self.queue.len(), self.regions.len())
    }

    /// t_p of the registration condition, with the allowance for sharing the core.
    pub(super) fn to_delay_ns(&self, bytes: u64) -> u64 {
        let longest = self.page_count(self.regions.longest_bytes());
        let (queued, cached) = (self.queue.len(), self.regions.len());
        let takes_ns = self
            .config
            .costs
            .to_delay(self.page_count(bytes), longest, queued, cached);
        takes_ns.saturating_add(self.config.sharing.delay_ns())
    }
}
