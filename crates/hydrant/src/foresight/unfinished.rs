//! Requests of the helper that did not end at once, and the times to check them again.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_foresight::{PageRun, Time, plan::RegionId};

/// The first pause before a check, in nanoseconds. Each further pause is twice as long, up to the
/// last.
const FIRST_PAUSE: u64 = 4_000;
const LAST_PAUSE: u64 = 1 << 30;

/// A request to be checked again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pub(super) region: RegionId,
    pub(super) kind: UnfinishedKind,
    /// The pause before the next check.
    pause_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum UnfinishedKind {
    /// Another thread registers the memory, under this number.
    Registering(u64),
    /// Firehoses are moving to this memory of a peer.
    Moving(PageRun),
    /// The memory was to be evicted and was in use.
    InUse,
}

/// The time of the next check, and the pause after it.
#[derive(Clone, Copy, Debug)]
struct Recheck {
    at: Time,
    pause_ns: u64,
}

type UnfinishedKey = (RegionId, UnfinishedKind);

/// All requests to be checked again. Each query takes logarithmic time, because the helper asks
/// after each use.
#[derive(Default)]
pub(super) struct AllUnfinished {
    rechecks: BTreeMap<UnfinishedKey, Recheck>,
    by_time: BTreeSet<(Time, UnfinishedKey)>,
    /// The number of regions that were in use.
    in_use: usize,
}

impl AllUnfinished {
    /// Adds a request that is to be checked for the first time.
    pub(super) fn add(&mut self, region: RegionId, kind: UnfinishedKind, now: Time) {
        let recheck = Recheck {
            at: now.after(FIRST_PAUSE),
            pause_ns: 2 * FIRST_PAUSE,
        };
        self.set((region, kind), recheck);
    }

    /// Notes that a region which was in use may be free now. It is checked at once.
    pub(super) fn note_may_be_free(&mut self, region: RegionId, now: Time) {
        let key = (region, UnfinishedKind::InUse);
        if let Some(recheck) = self.rechecks.get(&key) {
            let at = recheck.at.min(now);
            self.set(
                key,
                Recheck {
                    at,
                    pause_ns: FIRST_PAUSE,
                },
            );
        }
    }

    /// Notes that all regions which were in use may be free now.
    pub(super) fn note_all_may_be_free(&mut self, now: Time) {
        let in_use = self
            .rechecks
            .keys()
            .filter(|it| it.1 == UnfinishedKind::InUse);
        for (region, _) in in_use.copied().collect::<Vec<_>>() {
            self.note_may_be_free(region, now);
        }
    }

    /// Returns whether firehoses are moving to this region.
    pub(super) fn is_moving(&self, id: RegionId, region: PageRun) -> bool {
        self.rechecks
            .contains_key(&(id, UnfinishedKind::Moving(region)))
    }

    /// Returns whether a region was in use when it was to be evicted.
    pub(super) fn has_in_use(&self) -> bool {
        self.in_use > 0
    }

    /// Takes a request whose time has come.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Unfinished> {
        let (_, key) = *self.by_time.first().filter(|it| it.0 <= now)?;
        let recheck = self.remove(key)?;
        let (region, kind) = key;
        Some(Unfinished {
            region,
            kind,
            pause_ns: recheck.pause_ns,
        })
    }

    /// Takes all requests. Returns their regions.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = RegionId> + use<> {
        let all = std::mem::take(self);
        all.rechecks.into_keys().map(|it| it.0)
    }

    /// Puts back a request that did not change, with twice the pause. Checks of memory in use stop
    /// in the end, until [it may be free](Self::note_may_be_free). It may be in use forever, and in
    /// virtual time the checks would hide that all other threads wait for nothing.
    pub(super) fn put_back(&mut self, it: Unfinished, now: Time) {
        let at = match it.kind {
            UnfinishedKind::InUse if it.pause_ns >= LAST_PAUSE => Time::NEVER,
            _ => now.after(it.pause_ns),
        };
        let pause_ns = (2 * it.pause_ns).min(LAST_PAUSE);
        self.set((it.region, it.kind), Recheck { at, pause_ns });
    }

    /// Returns the time of the next check.
    pub(super) fn first(&self) -> Option<Time> {
        let (at, _) = self.by_time.first()?;
        (*at != Time::NEVER).then_some(*at)
    }

    fn set(&mut self, key: UnfinishedKey, recheck: Recheck) {
        self.remove(key);
        self.rechecks.insert(key, recheck);
        self.by_time.insert((recheck.at, key));
        self.in_use += usize::from(key.1 == UnfinishedKind::InUse);
    }

    fn remove(&mut self, key: UnfinishedKey) -> Option<Recheck> {
        let recheck = self.rechecks.remove(&key)?;
        self.by_time.remove(&(recheck.at, key));
        self.in_use -= usize::from(key.1 == UnfinishedKind::InUse);
        Some(recheck)
    }
}

#[cfg(test)]
mod tests {
    use hydrant_foresight::{
        Communication, CommunicationKind, FRAMES, PageRun, RegistrationOutcome,
        plan::{HelperTask, Plan, PlanConfig, ThreadId},
    };

    use super::*;

    /// Returns a region that a plan knows.
    fn region() -> RegionId {
        let mut plan = Plan::new(PlanConfig::DEFAULT).unwrap();
        let thread = plan.add_thread();
        region_at(&mut plan, thread, 1 << 20)
    }

    /// Returns a region of a plan at an address.
    fn region_at(plan: &mut Plan, thread: ThreadId, addr: u64) -> RegionId {
        let bytes = 1 << 16;
        let used = Communication {
            begun: Time(1),
            kind: CommunicationKind(1),
            outcome: RegistrationOutcome::OnDemand,
            addr,
            bytes,
            region: PageRun { addr, bytes },
            stack: [1; FRAMES],
        };
        match plan.used(thread, &used, Time(1)) {
            Some(HelperTask::Deregister { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Counts the checks of a request in an hour in which it does not change.
    fn rechecks(kind: UnfinishedKind) -> usize {
        let mut all = AllUnfinished::default();
        all.add(region(), kind, Time(0));
        let mut rechecks = 0;
        while let Some(now) = all.first().filter(|at| at.0 < 3_600_000_000_000) {
            let it = all.take_due(now).unwrap();
            all.put_back(it, now);
            rechecks += 1;
        }
        rechecks
    }

    #[test]
    fn checks_of_memory_in_use_stop_in_the_end() {
        assert_eq!(rechecks(UnfinishedKind::InUse), 19);
    }

    #[test]
    fn memory_long_in_use_is_checked_when_it_may_be_free() {
        let mut all = AllUnfinished::default();
        all.add(region(), UnfinishedKind::InUse, Time(0));
        while let Some(now) = all.first() {
            let it = all.take_due(now).unwrap();
            all.put_back(it, now);
        }
        assert!(all.has_in_use());
        let now = Time(9_000_000_000);
        assert!(all.take_due(now).is_none());
        all.note_all_may_be_free(now);
        assert!(all.take_due(now).is_some() && !all.has_in_use());
    }

    #[test]
    fn only_freed_memory_is_checked_at_once() {
        let mut plan = Plan::new(PlanConfig::DEFAULT).unwrap();
        let thread = plan.add_thread();
        let regions = [1 << 20, 2 << 20].map(|addr| region_at(&mut plan, thread, addr));
        let mut all = AllUnfinished::default();
        for id in regions {
            all.add(id, UnfinishedKind::InUse, Time(0));
        }
        while let Some(now) = all.first() {
            let it = all.take_due(now).unwrap();
            all.put_back(it, now);
        }
        let now = Time(9_000_000_000);
        all.note_may_be_free(regions[1], now);
        assert_eq!(all.first(), Some(now));
        assert_eq!(all.take_due(now).map(|it| it.region), Some(regions[1]));
        assert!(all.take_due(now).is_none() && all.has_in_use());
    }

    #[test]
    fn a_registration_by_another_thread_is_checked_until_it_ends() {
        // About once a second.
        assert!(rechecks(UnfinishedKind::Registering(7)) > 3000);
    }
}
