//! What the helper began and did not end at once: when it is looked at again.

use hydrant_foresight::{Region, Time, plan::RegionId};

/// After so many nanoseconds the helper looks again; each time after twice as many, up to the last.
const FIRST_LOOK: u64 = 4_000;
const LAST_LOOK: u64 = 1 << 30;

/// Something to be looked at again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pub(super) region: RegionId,
    pub(super) what: What,
    at: Time,
    /// How long it is waited for the next time.
    pause_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Another thread registers it, under this number.
    Registering(u64),
    /// Firehoses are on their way to this memory of a peer.
    Moving(Region),
    /// It was to be given up, and was in use.
    InUse,
}

/// All that is to be looked at again.
#[derive(Default)]
pub(super) struct AllUnfinished(Vec<Unfinished>);

impl AllUnfinished {
    /// A region is to be looked at for the first time.
    pub(super) fn add(&mut self, region: RegionId, what: What, now: Time) {
        self.0.retain(|it| (it.region, it.what) != (region, what));
        self.0.push(Unfinished {
            region,
            what,
            at: now.after(FIRST_LOOK),
            pause_ns: 2 * FIRST_LOOK,
        });
    }

    /// What was in use may be free by now: it is looked at at once.
    pub(super) fn may_be_free(&mut self, now: Time) {
        for it in self.0.iter_mut().filter(|it| it.what == What::InUse) {
            it.at = it.at.min(now);
            it.pause_ns = FIRST_LOOK;
        }
    }

    /// Whether firehoses are on their way to this memory of a peer.
    pub(super) fn is_moving(&self, region: Region) -> bool {
        self.0.iter().any(|it| it.what == What::Moving(region))
    }

    /// Whether something was in use when it was to be given up.
    pub(super) fn has_used(&self) -> bool {
        self.0.iter().any(|it| it.what == What::InUse)
    }

    /// What is to be looked at now, if anything is; it is off the list then.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Unfinished> {
        let at = self.0.iter().position(|it| it.at <= now)?;
        Some(self.0.swap_remove(at))
    }

    /// The regions of all that is to be looked at, which is off the list then.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = RegionId> {
        self.0.drain(..).map(|it| it.region)
    }

    /// What was looked at is as it was: it is looked at after twice as long. What is in use is left alone in the end,
    /// until [it may be free](Self::may_be_free): it may be in use for good, and in virtual time nobody would find out
    /// that all others wait for nothing.
    pub(super) fn put_back(&mut self, mut it: Unfinished, now: Time) {
        it.at = match it.what {
            What::InUse if it.pause_ns >= LAST_LOOK => Time::NEVER,
            _ => now.after(it.pause_ns),
        };
        it.pause_ns = (2 * it.pause_ns).min(LAST_LOOK);
        self.0.push(it);
    }

    /// When there is something to look at next.
    pub(super) fn first(&self) -> Option<Time> {
        let looks = self.0.iter().map(|it| it.at);
        looks.filter(|at| *at != Time::NEVER).min()
    }
}

#[cfg(test)]
mod tests {
    use hydrant_foresight::{
        Communication, FRAMES, Kind, Region, Way,
        plan::{Action, Config, Plan},
    };

    use super::*;

    /// A region that a plan knows.
    fn region() -> RegionId {
        let mut plan = Plan::new(Config::DEFAULT).unwrap();
        let thread = plan.add_thread();
        let (addr, bytes) = (1 << 20, 1 << 16);
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
        all.may_be_free(now);
        assert!(all.take_due(now).is_some());
    }

    #[test]
    fn what_another_registers_is_looked_at_until_it_is() {
        // Each second, roughly.
        assert!(looks(What::Registering(7)) > 3000);
    }
}
