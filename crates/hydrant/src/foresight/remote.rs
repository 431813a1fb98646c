//! Memory of peers: firehoses are moved to it ahead of expected puts and gets, and released after
//! them. This goes beyond the paper, whose helpers manage own memory alone.
//!
//! The plan is the same: a move takes the place of a registration, and a release that of a
//! deregistration. The plan tells memory apart by its address. So the address of a peer's memory
//! has the peer in its upper bits, which no real address uses. The peer registers what a move asks
//! for, unless its own helper has registered it already. Once the firehoses are released, the
//! peer's helper evicts the memory.

use hydrant_foresight::{
    Communication, CommunicationKind, Costs, FRAMES, LinearCost, PageRun, RegistrationOutcome,
    Time,
    plan::{HelperTask, Invalid, Plan, PlanConfig, RegionId, Stats, ThreadId},
    sharing::Sharing,
};
use hydrant_pinning::{Attached, Detached};
use rustc_hash::{FxHashMap, FxHashSet};

use super::unfinished::{AllUnfinished, UnfinishedKind};
use crate::{Rank, registration::Registration, uses::RemoteUse};

/// The bits of an address.
const ADDRESS: u32 = 48;
/// The extra time of a move beyond the registration at the peer: more than two messages and their
/// handlers take.
const ROUND_TRIP_NS: f64 = 20_000.0;
/// The time of a release here: one message.
const MESSAGE_NS: f64 = 2_000.0;
/// The flag of a communication that is a use of a peer's memory.
const REMOTE: u16 = 1 << 8;

/// Returns the record of a use of a peer's memory, or `None` if the address or the peer does not
/// fit.
pub(super) fn record(it: &RemoteUse) -> Option<Communication> {
    let peer = u64::from(it.peer.0) + 1;
    if it.addr >> ADDRESS != 0 || peer >> (u64::BITS - ADDRESS) != 0 {
        return None;
    }
    let mut stack = [0; FRAMES];
    stack[0] = it.site;
    stack[FRAMES - 1] = it.region;
    Some(Communication {
        begun: Time(u64::try_from(it.begun.as_nanos()).unwrap_or(u64::MAX)),
        kind: CommunicationKind(REMOTE | it.kind as u16),
        outcome: if it.is_attached {
            RegistrationOutcome::Found
        } else {
            RegistrationOutcome::OnDemand
        },
        addr: peer << ADDRESS | it.addr,
        bytes: it.len,
        region: PageRun::default(),
        stack,
    })
}

/// Returns whether a record is of a peer's memory.
pub(super) fn is_remote(it: &Communication) -> bool {
    it.kind.0 & REMOTE != 0
}

/// Returns the peer and its memory of a region of the plan.
fn memory_of(region: PageRun) -> (Rank, (u64, u64)) {
    let peer = (region.addr >> ADDRESS).saturating_sub(1) as u32;
    let addr = region.addr & ((1 << ADDRESS) - 1);
    (Rank(peer), (addr, region.bytes))
}

/// The helper's plan for memory of peers.
pub(super) struct RemotePlan {
    plan: Plan,
    page_bytes: u64,
    threads: Vec<ThreadId>,
    /// The key of the segment or exposed buffer that holds each region.
    region_keys: FxHashMap<PageRun, u64>,
    unfinished: AllUnfinished,
    /// Regions that were used while their firehoses were moving.
    used_early: FxHashSet<PageRun>,
    /// True once there was any use.
    is_used: bool,
    moved: u64,
    given_back: u64,
}

impl RemotePlan {
    /// `most_bytes`: the bytes that this rank has firehoses for.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(super) fn new(local: PlanConfig, most_bytes: u64) -> Result<Self, Invalid> {
        let register = local.costs.register;
        let config = PlanConfig {
            costs: Costs {
                register: LinearCost {
                    per_operation_ns: register.per_operation_ns + ROUND_TRIP_NS,
                    ..register
                },
                deregister: LinearCost {
                    per_page_ns: 0.0,
                    per_operation_ns: MESSAGE_NS,
                },
                ..local.costs
            },
            limit_bytes: most_bytes,
            // A page of a peer is registered by the peer, so nobody asks for shared pages here.
            pages_apart: 0,
            ..local
        };
        Ok(Self {
            plan: Plan::new(config)?,
            page_bytes: config.page_bytes,
            threads: Vec::new(),
            region_keys: FxHashMap::default(),
            unfinished: AllUnfinished::default(),
            used_early: FxHashSet::default(),
            is_used: false,
            moved: 0,
            given_back: 0,
        })
    }

    /// Adds a thread of the application.
    pub(super) fn add_thread(&mut self) {
        self.threads.push(self.plan.add_thread());
    }

    /// Sets how the helper shares its core.
    pub(super) fn share(&mut self, sharing: Sharing) {
        self.plan.share(sharing);
    }

    /// Notes another communication of a thread. It may predict the next use.
    pub(super) fn note_other(&mut self, thread: usize, it: &Communication, now: Time) {
        if self.is_used && it.outcome == RegistrationOutcome::Copied {
            let action = self.plan.used(self.threads[thread], it, now);
            debug_assert_eq!(action, None, "it wants no registration");
        }
    }

    /// Handles a use of a peer's memory by a thread.
    pub(super) fn used(
        &mut self,
        thread: usize,
        it: &Communication,
        registration: &Registration,
        now: Time,
    ) {
        self.is_used = true;
        let region = PageRun::of_pages(self.page_bytes, it.addr, it.bytes);
        self.note_region_key(region, it.stack[FRAMES - 1]);
        let mut stack = it.stack;
        stack[FRAMES - 1] = 0;
        let it = Communication {
            region,
            stack,
            ..*it
        };
        match self.plan.used(self.threads[thread], &it, now) {
            Some(action) => self.carry_out(action, registration, now),
            // The use came before the helper knew that the firehoses are there.
            None if self.is_moving(region) => _ = self.used_early.insert(region),
            // The firehoses must be there next time. Those that an operation asked for are not
            // kept.
            None if it.outcome == RegistrationOutcome::OnDemand => {
                _ = self.attach(region, registration)
            }
            None => {}
        }
    }

    /// Does one thing that is due. Returns whether there was one.
    pub(super) fn run_due(&mut self, registration: &Registration, now: Time) -> bool {
        if let Some(action) = self.plan.next_action(now) {
            self.carry_out(action, registration, now);
            return true;
        }
        let Some(it) = self.unfinished.take_due(now) else {
            return false;
        };
        match it.kind {
            UnfinishedKind::Moving(region) => {
                let (peer, place) = memory_of(region);
                let attached = registration.attached(peer, place);
                if attached == Attached::Coming {
                    self.unfinished.put_back(it, now);
                    return true;
                }
                if attached == Attached::No {
                    // Others released a part since it came, and the rest is useless.
                    let _ = registration.detach(peer, place);
                }
                self.moved_to((it.region, region), attached, registration, now);
            }
            UnfinishedKind::InUse | UnfinishedKind::Registering(_) => {
                debug_assert!(false, "only own memory is registered or in use")
            }
        }
        true
    }

    /// Releases all firehoses that were moved ahead, because the helper is to rest.
    pub(super) fn release_all(&mut self, registration: &Registration, now: Time) {
        // A release is the same for firehoses that are there and for those that are moving.
        for region in self.unfinished.take_all() {
            self.plan.registered(region);
        }
        self.used_early.clear();
        while let Some(action) = self.plan.deregister_last() {
            self.carry_out(action, registration, now);
        }
    }

    /// Returns the time when there is something to do next.
    pub(super) fn wake(&self) -> Option<Time> {
        let looks = self.unfinished.first();
        looks.into_iter().chain(self.plan.wake()).min()
    }

    /// Returns the counts of the plan, the moves ahead, and the releases.
    pub(super) fn stats(&self) -> (Stats, u64, u64) {
        (self.plan.stats(), self.moved, self.given_back)
    }

    /// Returns whether firehoses are moving to memory of a peer.
    fn is_moving(&self, region: PageRun) -> bool {
        let id = self.plan.find(region);
        id.is_some_and(|id| self.unfinished.is_moving(id, region))
    }

    fn carry_out(&mut self, action: HelperTask, registration: &Registration, now: Time) {
        match action {
            HelperTask::Register { id, region } => match self.attach(region, registration) {
                Attached::Coming => self.unfinished.add(id, UnfinishedKind::Moving(region), now),
                attached => self.moved_to((id, region), attached, registration, now),
            },
            HelperTask::Deregister { id, region } => self.give_back((id, region), registration),
        }
    }

    /// Handles the end of a move of firehoses to a region.
    fn moved_to(
        &mut self,
        (id, region): (RegionId, PageRun),
        attached: Attached,
        registration: &Registration,
        now: Time,
    ) {
        let was_used = self.used_early.remove(&region);
        match attached {
            Attached::All if was_used => {
                if let Some(action) = self.plan.registered_late(id, now) {
                    self.carry_out(action, registration, now);
                }
            }
            Attached::All => self.plan.registered(id),
            Attached::No | Attached::Coming => self.plan.not_registered(id),
        }
    }

    fn attach(&mut self, region: PageRun, registration: &Registration) -> Attached {
        let (peer, place) = memory_of(region);
        let Some(key) = self.region_keys.get(&region) else {
            return Attached::No;
        };
        let attached = registration.attach(peer, *key, place);
        self.moved += u64::from(attached == Attached::Coming);
        attached
    }

    /// Releases firehoses. Those in use and those moving are released as soon as possible.
    fn give_back(&mut self, (id, region): (RegionId, PageRun), registration: &Registration) {
        let (peer, place) = memory_of(region);
        let outcome = registration.detach(peer, place);
        self.given_back += u64::from(outcome != Detached::Nothing);
        let _ = self.plan.deregistered(id);
    }

    /// Notes the key that holds a region. The plan forgets regions without a report. So the keys of
    /// forgotten regions are dropped when they are as many as those of known ones.
    fn note_region_key(&mut self, region: PageRun, key: u64) {
        let Self {
            plan, region_keys, ..
        } = self;
        if region_keys.len() > 2 * plan.regions() {
            region_keys.retain(|region, _| plan.find(*region).is_some());
        }
        region_keys.insert(region, key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::uses::UseKind;

    fn used(peer: u32, addr: u64) -> RemoteUse {
        RemoteUse {
            kind: UseKind::Put,
            peer: Rank(peer),
            region: 7,
            addr,
            len: 100,
            is_attached: false,
            begun: Duration::from_nanos(5),
            site: 9,
        }
    }

    #[test]
    fn the_memory_of_a_peer_is_found_again_in_its_record() {
        for (peer, addr) in [
            (0, 0),
            (3, 0x7fff_1234_5678),
            (65_533, (1 << ADDRESS) - 4096),
        ] {
            let it = record(&used(peer, addr)).expect("there is room");
            assert!(is_remote(&it));
            let region = PageRun::of_pages(4096, it.addr, it.bytes);
            let (found, (start, bytes)) = memory_of(region);
            assert_eq!(found, Rank(peer));
            assert!(start <= addr && addr + 100 <= start + bytes, "{region:?}");
        }
        assert_eq!(record(&used(65_535, 0)), None);
        assert_eq!(record(&used(0, 1 << ADDRESS)), None);
    }

    #[test]
    fn pages_that_buffers_of_a_peer_share_are_noted_nowhere() {
        let mut remote = RemotePlan::new(PlanConfig::DEFAULT, u64::MAX).expect("a plan");
        remote.add_thread();
        let mut now = 0;
        for first in [0, 999, 0, 999] {
            let mut it = record(&used(1, first * 4096)).expect("there is room");
            it.bytes = 1000 * 4096;
            let region = PageRun::of_pages(4096, it.addr, it.bytes);
            now += 1_000_000_000;
            let begun = Time(now);
            let it = Communication {
                region,
                begun,
                ..it
            };
            match remote.plan.used(remote.threads[0], &it, begun) {
                Some(HelperTask::Deregister { id, .. }) => _ = remote.plan.deregistered(id),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(remote.plan.take_shared(), []);
    }

    #[test]
    fn regions_that_the_plan_forgot_are_forgotten_here() {
        let config = PlanConfig {
            regions: 4,
            ..PlanConfig::DEFAULT
        };
        let mut remote = RemotePlan::new(config, u64::MAX).expect("a plan");
        remote.add_thread();
        for page in 0..100 {
            let it = record(&used(1, page * 4096)).expect("there is room");
            let region = PageRun::of_pages(4096, it.addr, it.bytes);
            remote.note_region_key(region, 7);
            // Each is used once, and not expected again.
            let it = Communication { region, ..it };
            match remote.plan.used(remote.threads[0], &it, Time(1000 * page)) {
                Some(HelperTask::Deregister { id, .. }) => _ = remote.plan.deregistered(id),
                other => panic!("{other:?}"),
            }
            assert!(remote.region_keys.len() <= 2 * remote.plan.regions() + 1);
            assert!(remote.region_keys.contains_key(&region));
        }
    }
}
