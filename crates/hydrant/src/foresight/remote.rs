//! Memory of peers: firehoses are moved to it ahead of the puts and gets that are expected, and given back after
//! them. Beyond the paper, whose helpers look after own memory alone.
//!
//! It is the same plan: a move is what registering is, and giving firehoses back what deregistering is. What is
//! told apart by its address is a peer's memory as it is own: the peer is in the address's upper bits, which no
//! address has. The peer registers what a move asks for, if its own helper has not foreseen that; once the
//! firehoses are back, its helper gives the memory up.

use hydrant_foresight::{
    Communication, Costs, FRAMES, Kind, LinearCost, Region, Time, Way,
    plan::{Action, Config, Invalid, Plan, RegionId, Stats, ThreadId},
    sharing::Sharing,
};
use hydrant_pinning::{Attached, Detached};
use rustc_hash::{FxHashMap, FxHashSet};

use super::unfinished::{AllUnfinished, What};
use crate::{Rank, registration::Registration, uses::RemoteUse};

/// Bits of an address.
const ADDRESS: u32 = 48;
/// More than what two messages take, one after the other, and a handler for each: how much longer a move takes than
/// what the peer registers for it.
const ROUND_TRIP_NS: f64 = 20_000.0;
/// What giving firehoses back takes here: a message.
const MESSAGE_NS: f64 = 2_000.0;
/// Kinds of communications that are uses of peers' memory.
const REMOTE: u16 = 1 << 8;

/// The record of a use of a peer's memory; none of memory that it has no room for.
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
        kind: Kind(REMOTE | it.kind as u16),
        way: if it.is_attached {
            Way::Found
        } else {
            Way::OnDemand
        },
        addr: peer << ADDRESS | it.addr,
        bytes: it.len,
        region: Region::default(),
        stack,
    })
}

/// Whether a record is of a peer's memory.
pub(super) fn is_remote(it: &Communication) -> bool {
    it.kind.0 & REMOTE != 0
}

/// The peer and its memory that a region of the plan is.
fn place_of(region: Region) -> (Rank, (u64, u64)) {
    let peer = (region.addr >> ADDRESS).saturating_sub(1) as u32;
    let addr = region.addr & ((1 << ADDRESS) - 1);
    (Rank(peer), (addr, region.bytes))
}

/// What the helper knows of peers' memory.
pub(super) struct RemotePlan {
    plan: Plan,
    page_bytes: u64,
    threads: Vec<ThreadId>,
    /// What of a peer's the memory is part of, by region: its segment, or a buffer that it exposed.
    wholes: FxHashMap<Region, u64>,
    unfinished: AllUnfinished,
    /// What was used while its firehoses were on their way.
    used_early: FxHashSet<Region>,
    /// Whether there was any use.
    is_used: bool,
    moved: u64,
    given_back: u64,
}

impl RemotePlan {
    /// `most_bytes`: what firehoses there are for.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(super) fn new(local: Config, most_bytes: u64) -> Result<Self, Invalid> {
        let register = local.costs.register;
        let config = Config {
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
            ..local
        };
        Ok(Self {
            plan: Plan::new(config)?,
            page_bytes: config.page_bytes,
            threads: Vec::new(),
            wholes: FxHashMap::default(),
            unfinished: AllUnfinished::default(),
            used_early: FxHashSet::default(),
            is_used: false,
            moved: 0,
            given_back: 0,
        })
    }

    /// Another thread of the application.
    pub(super) fn add_thread(&mut self) {
        self.threads.push(self.plan.add_thread());
    }

    /// The helper shares its core with others from now on, or no longer.
    pub(super) fn share(&mut self, sharing: Sharing) {
        self.plan.share(sharing);
    }

    /// A thread did something that is no use of a peer's memory, which may tell what comes next.
    pub(super) fn passed(&mut self, thread: usize, it: &Communication, now: Time) {
        if self.is_used && it.way == Way::Copied {
            let action = self.plan.used(self.threads[thread], it, now);
            debug_assert_eq!(action, None, "it wants no registration");
        }
    }

    /// A thread used a peer's memory.
    pub(super) fn used(
        &mut self,
        thread: usize,
        it: &Communication,
        registration: &Registration,
        now: Time,
    ) {
        self.is_used = true;
        let region = Region::of_pages(self.page_bytes, it.addr, it.bytes);
        self.note_whole(region, it.stack[FRAMES - 1]);
        let mut stack = it.stack;
        stack[FRAMES - 1] = 0;
        let it = Communication {
            region,
            stack,
            ..*it
        };
        match self.plan.used(self.threads[thread], &it, now) {
            Some(action) => self.carry_out(action, registration, now),
            // It came before the helper knew that they are there.
            None if self.is_moving(region) => _ = self.used_early.insert(region),
            // They are to be there next time, and what was asked for one operation is not.
            None if it.way == Way::OnDemand => _ = self.attach(region, registration),
            None => {}
        }
    }

    /// Does one thing that is due, if there is one.
    pub(super) fn look(&mut self, registration: &Registration, now: Time) -> bool {
        if let Some(action) = self.plan.look(now) {
            self.carry_out(action, registration, now);
            return true;
        }
        let Some(it) = self.unfinished.take_due(now) else {
            return false;
        };
        match it.what {
            What::Moving(region) => {
                let (peer, place) = place_of(region);
                let attached = registration.attached(peer, place);
                if attached == Attached::Coming {
                    self.unfinished.put_back(it, now);
                    return true;
                }
                if attached == Attached::No {
                    // Of what others gave back a part of since it came, the rest is of no use.
                    let _ = registration.detach(peer, place);
                }
                self.moved_to((it.region, region), attached, registration, now);
            }
            What::InUse | What::Registering(_) => debug_assert!(false, "that is of own memory"),
        }
        true
    }

    /// The helper is to rest: all firehoses are given back that were moved ahead.
    pub(super) fn rest(&mut self, registration: &Registration, now: Time) {
        // Whether they are there or on their way is the same to whoever gives them back.
        for region in self.unfinished.take_all() {
            self.plan.registered(region);
        }
        self.used_early.clear();
        while let Some(action) = self.plan.rest() {
            self.carry_out(action, registration, now);
        }
    }

    /// When there is something to do next.
    pub(super) fn wake(&self) -> Option<Time> {
        let looks = self.unfinished.first();
        looks.into_iter().chain(self.plan.wake()).min()
    }

    /// What happened: the plan's count, moves ahead, and times that firehoses were given back.
    pub(super) fn stats(&self) -> (Stats, u64, u64) {
        (self.plan.stats(), self.moved, self.given_back)
    }

    /// Whether firehoses are on their way to memory of a peer.
    fn is_moving(&self, region: Region) -> bool {
        let id = self.plan.known(region);
        id.is_some_and(|id| self.unfinished.is_moving(id, region))
    }

    fn carry_out(&mut self, action: Action, registration: &Registration, now: Time) {
        match action {
            Action::Register { id, region } => match self.attach(region, registration) {
                Attached::Coming => self.unfinished.add(id, What::Moving(region), now),
                attached => self.moved_to((id, region), attached, registration, now),
            },
            Action::Deregister { id, region } => self.give_back((id, region), registration),
        }
    }

    /// Firehoses were moved to a region, or could not be.
    fn moved_to(
        &mut self,
        (id, region): (RegionId, Region),
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

    fn attach(&mut self, region: Region, registration: &Registration) -> Attached {
        let (peer, place) = place_of(region);
        let Some(whole) = self.wholes.get(&region) else {
            return Attached::No;
        };
        let attached = registration.attach(peer, *whole, place);
        self.moved += u64::from(attached == Attached::Coming);
        attached
    }

    /// Firehoses are given back: those in use and those on their way as soon as they can be.
    fn give_back(&mut self, (id, region): (RegionId, Region), registration: &Registration) {
        let (peer, place) = place_of(region);
        let outcome = registration.detach(peer, place);
        self.given_back += u64::from(outcome != Detached::Nothing);
        let _ = self.plan.deregistered(id);
    }

    /// Notes what of a peer's a region is part of. The plan forgets regions without a word: those go here when they
    /// are as many as those that it remembers.
    fn note_whole(&mut self, region: Region, whole: u64) {
        let Self { plan, wholes, .. } = self;
        if wholes.len() > 2 * plan.regions() {
            wholes.retain(|region, _| plan.known(*region).is_some());
        }
        wholes.insert(region, whole);
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
    fn a_peer_s_memory_is_found_again_in_its_record() {
        for (peer, addr) in [
            (0, 0),
            (3, 0x7fff_1234_5678),
            (65_533, (1 << ADDRESS) - 4096),
        ] {
            let it = record(&used(peer, addr)).expect("there is room");
            assert!(is_remote(&it));
            let region = Region::of_pages(4096, it.addr, it.bytes);
            let (found, (start, bytes)) = place_of(region);
            assert_eq!(found, Rank(peer));
            assert!(start <= addr && addr + 100 <= start + bytes, "{region:?}");
        }
        assert_eq!(record(&used(65_535, 0)), None);
        assert_eq!(record(&used(0, 1 << ADDRESS)), None);
    }

    #[test]
    fn what_the_plan_forgot_is_forgotten_here() {
        let config = Config {
            regions: 4,
            ..Config::DEFAULT
        };
        let mut remote = RemotePlan::new(config, u64::MAX).expect("a plan");
        remote.add_thread();
        for page in 0..100 {
            let it = record(&used(1, page * 4096)).expect("there is room");
            let region = Region::of_pages(4096, it.addr, it.bytes);
            remote.note_whole(region, 7);
            // Each is used once, and expected again by nobody.
            let it = Communication { region, ..it };
            match remote.plan.used(remote.threads[0], &it, Time(1000 * page)) {
                Some(Action::Deregister { id, .. }) => _ = remote.plan.deregistered(id),
                other => panic!("{other:?}"),
            }
            assert!(remote.wholes.len() <= 2 * remote.plan.regions() + 1);
            assert!(remote.wholes.contains_key(&region));
        }
    }
}
