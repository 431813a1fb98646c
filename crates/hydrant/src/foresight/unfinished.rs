//! What the helper began and did not end at once: when it is looked at again.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_foresight::{Region, Time, plan::RegionId};

/// After so many nanoseconds the helper looks again; each time after twice as many, up to the last.
const FIRST_LOOK: u64 = 4_000;
const LAST_LOOK: u64 = 1 << 30;

/// Something to be looked at again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pub(super) region: RegionId,
    pub(super) what: What,
    /// How long it is waited for the next time.
    pause_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// Another thread registers it, under this number.
    Registering(u64),
    /// Firehoses are on their way to this memory of a peer.
    Moving(Region),
    /// It was to be given up, and was in use.
    InUse,
}

/// The moment of the next look, and the pause after it.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Time,
    pause_ns: u64,
}

type Key = (RegionId, What);

/// All that is to be looked at again. Each question takes as many steps as a tree is deep: the helper asks after each use.
#[derive(Default)]
pub(super) struct AllUnfinished {
    looks: BTreeMap<Key, Look>,
    by_time: BTreeSet<(Time, Key)>,
    /// The number of regions that were in use.
    in_use: usize,
}

impl AllUnfinished {
    /// A region is to be looked at for the first time.
    pub(super) fn add(&mut self, region: RegionId, what: What, now: Time) {
        let look = Look {
            at: now.after(FIRST_LOOK),
            pause_ns: 2 * FIRST_LOOK,
        };
        self.set((region, what), look);
    }

    /// A region was in use and may be free by now: it is looked at at once.
    pub(super) fn may_be_free(&mut self, region: RegionId, now: Time) {
        let key = (region, What::InUse);
        if let Some(look) = self.looks.get(&key) {
            let at = look.at.min(now);
            self.set(
                key,
                Look {
                    at,
                    pause_ns: FIRST_LOOK,
                },
            );
        }
    }

    /// All regions that were in use may be free by now.
    pub(super) fn all_may_be_free(&mut self, now: Time) {
        let in_use = self.looks.keys().filter(|it| it.1 == What::InUse);
        for (region, _) in in_use.copied().collect::<Vec<_>>() {
            self.may_be_free(region, now);
        }
    }

    /// Whether firehoses are on their way to this region, which is that memory of a peer.
    pub(super) fn is_moving(&self, id: RegionId, region: Region) -> bool {
        self.looks.contains_key(&(id, What::Moving(region)))
    }

    /// Whether something was in use when it was to be given up.
    pub(super) fn has_used(&self) -> bool {
        self.in_use > 0
    }

    /// What is to be looked at now, if anything is; it is off the list then.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Unfinished> {
        let (_, key) = *self.by_time.first().filter(|it| it.0 <= now)?;
        let look = self.remove(key)?;
        let (region, what) = key;
        Some(Unfinished {
            region,
            what,
            pause_ns: look.pause_ns,
        })
    }

    /// The regions of all that is to be looked at, which is off the list then.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = RegionId> + use<> {
        let all = std::mem::take(self);
        all.looks.into_keys().map(|it| it.0)
    }

    /// What was looked at is as it was: it is looked at after twice as long. What is in use is left alone in the end,
    /// until [it may be free](Self::may_be_free): it may be in use for good, and in virtual time nobody would find out
    /// that all others wait for nothing.
    pub(super) fn put_back(&mut self, it: Unfinished, now: Time) {
        let at = match it.what {
            What::InUse if it.pause_ns >= LAST_LOOK => Time::NEVER,
            _ => now.after(it.pause_ns),
        };
        let pause_ns = (2 * it.pause_ns).min(LAST_LOOK);
        self.set((it.region, it.what), Look { at, pause_ns });
    }

    /// When there is something to look at next.
    pub(super) fn first(&self) -> Option<Time> {
        let (at, _) = self.by_time.first()?;
        (*at != Time::NEVER).then_some(*at)
    }

    fn set(&mut self, key: Key, look: Look) {
        self.remove(key);
        self.looks.insert(key, look);
        self.by_time.insert((look.at, key));
        self.in_use += usize::from(key.1 == What::InUse);
    }

    fn remove(&mut self, key: Key) -> Option<Look> {
        let look = self.looks.remove(&key)?;
        self.by_time.remove(&(look.at, key));
        self.in_use -= usize::from(key.1 == What::InUse);
        Some(look)
    }
}

#[cfg(test)]
mod tests {
    use hydrant_foresight::{
        Communication, FRAMES, Kind, Region, Way,
        plan::{Action, Config, Plan, ThreadId},
    };

    use super::*;

    /// A region that a plan knows.
    fn region() -> RegionId {
        let mut plan = Plan::new(Config::DEFAULT).unwrap();
        let thread = plan.add_thread();
        region_at(&mut plan, thread, 1 << 20)
    }

    /// A region of a plan, at an address.
    fn region_at(plan: &mut Plan, thread: ThreadId, addr: u64) -> RegionId {
        let bytes = 1 << 16;
        let used = Communication {
            begun: Time(1),
            kind: Kind(1),
            way: Way::OnDemand,
            addr,
            bytes,
            region: Region { addr, bytes },
            stack: [1; FRAMES],
        };
        match plan.used(thread, &used, Time(1)) {
            Some(Action::Deregister { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    /// How often something is looked at in an hour that stays as it is.
    fn looks(what: What) -> usize {
        let mut all = AllUnfinished::default();
        all.add(region(), what, Time(0));
        let mut looks = 0;
        while let Some(now) = all.first().filter(|at| at.0 < 3_600_000_000_000) {
            let it = all.take_due(now).unwrap();
            all.put_back(it, now);
            looks += 1;
        }
        looks
    }

    #[test]
    fn what_stays_in_use_is_left_alone_in_the_end() {
        assert_eq!(looks(What::InUse), 19);
    }

    #[test]
    fn what_was_in_use_for_long_is_looked_at_when_it_may_be_free() {
        let mut all = AllUnfinished::default();
        all.add(region(), What::InUse, Time(0));
        while let Some(now) = all.first() {
            let it = all.take_due(now).unwrap();
            all.put_back(it, now);
        }
        assert!(all.has_used());
        let now = Time(9_000_000_000);
        assert!(all.take_due(now).is_none());
        all.all_may_be_free(now);
        assert!(all.take_due(now).is_some() && !all.has_used());
    }

    #[test]
    fn only_what_was_freed_is_looked_at_at_once() {
        let mut plan = Plan::new(Config::DEFAULT).unwrap();
        let thread = plan.add_thread();
        let regions = [1 << 20, 2 << 20].map(|addr| region_at(&mut plan, thread, addr));
        let mut all = AllUnfinished::default();
        for id in regions {
            all.add(id, What::InUse, Time(0));
        }
        while let Some(now) = all.first() {
            let it = all.take_due(now).unwrap();
            all.put_back(it, now);
        }
        let now = Time(9_000_000_000);
        all.may_be_free(regions[1], now);
        assert_eq!(all.first(), Some(now));
        assert_eq!(all.take_due(now).map(|it| it.region), Some(regions[1]));
        assert!(all.take_due(now).is_none() && all.has_used());
    }

    #[test]
    fn what_another_registers_is_looked_at_until_it_is() {
        // Each second, roughly.
        assert!(looks(What::Registering(7)) > 3000);
    }
}
