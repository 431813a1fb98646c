//! The uses of one region, and the first times of those that are expected.

use super::ThreadId;
use super::tree::count;
use crate::predictor::Forecast;
use crate::signature::Signature;
use crate::time::Time;

/// The most uses remembered of one region; the oldest is forgotten.
pub(super) const MOST_USES: usize = 64;

/// One call site's use of a region (§3.2: a region "which multiple communication call sites may use").
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionUse {
    pub(super) thread: ThreadId,
    pub(super) signature: Signature,
    /// Its next expected time, until that has passed.
    pub(super) forecast: Option<Forecast>,
}

impl RegionUse {
    fn is_of(&self, thread: ThreadId, signature: Signature) -> bool {
        (self.thread, self.signature) == (thread, signature)
    }
}

/// The first times of expected uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct FirstTimes {
    /// The earliest deadline.
    pub(super) deadline: Option<Time>,
    /// The earliest deadline of the uses that do not await a landmark.
    pub(super) due: Option<Time>,
    /// The time at which the first use is overdue: a period after its expected time.
    pub(super) overdue: Option<Time>,
}

impl FirstTimes {
    fn of(forecast: Option<Forecast>) -> Self {
        let Some(it) = forecast else {
            return Self::default();
        };
        Self {
            deadline: Some(it.earliest),
            due: (!it.awaits).then_some(it.earliest),
            overdue: Some(it.expected.after(it.period_ns.max(1))),
        }
    }

    fn join(self, other: Self) -> Self {
        let first = |a: Option<Time>, b: Option<Time>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            deadline: first(self.deadline, other.deadline),
            due: first(self.due, other.due),
            overdue: first(self.overdue, other.overdue),
        }
    }

    /// True if one of these times is that of the given use.
    fn include(&self, of_one: Self) -> bool {
        let is_first = |all: Option<Time>, one: Option<Time>| one.is_some() && all == one;
        is_first(self.deadline, of_one.deadline)
            || is_first(self.due, of_one.due)
            || is_first(self.overdue, of_one.overdue)
    }
}

/// The uses of a region, the newest last.
///
/// The first times change with the forecasts. The plan asks for them several times for each change, so they are kept.
#[derive(Debug, Default)]
pub(super) struct RegionUses {
    all: Vec<RegionUse>,
    first: FirstTimes,
}

impl RegionUses {
    /// The first times of all expected uses.
    pub(super) fn first(&self) -> FirstTimes {
        self.first
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RegionUse> {
        self.all.iter()
    }

    /// The forecast of a use, if there is one.
    pub(super) fn forecast(&self, thread: ThreadId, signature: Signature) -> Option<Forecast> {
        let mut all = self.all.iter();
        all.find(|it| it.is_of(thread, signature))?.forecast
    }

    /// Adds a use, or replaces its forecast. Returns the oldest use, if there were too many.
    pub(super) fn put(&mut self, new: RegionUse) -> Option<RegionUse> {
        let before = self.remove(new.thread, new.signature);
        let is_full = before.is_none() && self.all.len() == MOST_USES;
        let oldest = is_full.then(|| self.all.remove(0));
        if let Some(it) = oldest {
            self.leave(it);
        }
        self.all.push(new);
        self.first = self.first.join(FirstTimes::of(new.forecast));
        oldest
    }

    /// Removes a use, if it is there.
    pub(super) fn remove(&mut self, thread: ThreadId, signature: Signature) -> Option<RegionUse> {
        let at = (self.all.iter()).position(|it| it.is_of(thread, signature))?;
        let gone = self.all.remove(at);
        self.leave(gone);
        Some(gone)
    }

    /// Drops the forecasts of uses that are overdue.
    pub(super) fn expire(&mut self, now: Time) {
        for it in &mut self.all {
            if FirstTimes::of(it.forecast)
                .overdue
                .is_some_and(|at| at <= now)
            {
                it.forecast = None;
            }
        }
        self.look();
    }

    /// Drops all forecasts.
    pub(super) fn expect_nothing(&mut self) {
        self.all.iter_mut().for_each(|it| it.forecast = None);
        self.first = FirstTimes::default();
    }

    /// Updates the first times after a use has left. Others are looked at only if it was the first.
    fn leave(&mut self, gone: RegionUse) {
        if self.first.include(FirstTimes::of(gone.forecast)) {
            self.look();
        }
    }

    fn look(&mut self) {
        let times = self.all.iter().map(|it| {
            count();
            FirstTimes::of(it.forecast)
        });
        self.first = times.fold(FirstTimes::default(), FirstTimes::join);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn forecast() -> impl Strategy<Value = Option<Forecast>> {
        let any = (0u64..50, 0u64..50, 0u64..50, any::<bool>()).prop_map(
            |(expected, early, period_ns, awaits)| Forecast {
                expected: Time(expected),
                earliest: Time(expected.saturating_sub(early)),
                period_ns,
                awaits,
            },
        );
        prop::option::weighted(0.7, any)
    }

    /// A change of the uses.
    #[derive(Clone, Debug)]
    enum UseChange {
        Put(u64, Option<Forecast>),
        Remove(u64),
        Expire(u64),
        ExpectNothing,
    }

    fn change() -> impl Strategy<Value = UseChange> {
        prop_oneof![
            20 => (0u64..90, forecast()).prop_map(|it| UseChange::Put(it.0, it.1)),
            4 => (0u64..90).prop_map(UseChange::Remove),
            1 => (0u64..90).prop_map(UseChange::Expire),
            1 => Just(UseChange::ExpectNothing),
        ]
    }

    proptest! {
        /// They equal a plain list whose minima are sought each time.
        #[test]
        fn they_are_a_list_and_its_minima(changes in prop::collection::vec(change(), 0..300)) {
            let mut uses = RegionUses::default();
            let mut model: Vec<(u64, Option<Forecast>)> = Vec::new();
            for change in changes {
                match change {
                    UseChange::Put(site, forecast) => {
                        let known = model.iter().any(|it| it.0 == site);
                        model.retain(|it| it.0 != site);
                        let oldest = (!known && model.len() == MOST_USES).then(|| model.remove(0).0);
                        model.push((site, forecast));
                        let put = uses.put(RegionUse {
                            thread: ThreadId(0),
                            signature: Signature(site),
                            forecast,
                        });
                        prop_assert_eq!(put.map(|it| it.signature.0), oldest);
                    }
                    UseChange::Remove(site) => {
                        let removed = uses.remove(ThreadId(0), Signature(site));
                        prop_assert_eq!(removed.is_some(), model.iter().any(|it| it.0 == site));
                        model.retain(|it| it.0 != site);
                    }
                    UseChange::Expire(now) => {
                        uses.expire(Time(now));
                        for it in &mut model {
                            it.1 = it.1.filter(|it| it.expected.0 + it.period_ns.max(1) > now);
                        }
                    }
                    UseChange::ExpectNothing => {
                        uses.expect_nothing();
                        model.iter_mut().for_each(|it| it.1 = None);
                    }
                }
                let expected: Vec<_> = model.iter().filter_map(|it| it.1).collect();
                let first = uses.first();
                prop_assert_eq!(first.deadline, expected.iter().map(|it| it.earliest).min());
                prop_assert_eq!(first.due, expected.iter().filter(|it| !it.awaits).map(|it| it.earliest).min());
                prop_assert_eq!(first.overdue, expected.iter().map(|it| Time(it.expected.0 + it.period_ns.max(1))).min());
                let all: Vec<_> = uses.iter().map(|it| (it.signature.0, it.forecast)).collect();
                prop_assert_eq!(all, model.clone());
                for site in 0..90 {
                    let known = model.iter().find(|it| it.0 == site).and_then(|it| it.1);
                    prop_assert_eq!(uses.forecast(ThreadId(0), Signature(site)), known);
                }
            }
        }
    }
}
