//! One way from a use to the next, and its landmark.

use std::collections::VecDeque;

use super::history::History;
use super::{Forecast, Observation};
use crate::time::Time;

/// What happened so far, as a sum of hashes: of two moments, the difference is what happened between,
/// whichever the order.
pub(super) type Sum = u64;

/// A landmark is this many times the lead before the use, at least.
const MARGIN: f64 = 1.5;

/// A landmark gives way to a later one if that comes in less than this share of its time.
const NEARER: f64 = 0.7;

/// How often a landmark must have come before its use to be relied on.
const TRUSTED: u32 = 2;

/// A communication that has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// When it began.
    pub(super) at: Time,
    /// When the helper heard of it.
    pub(super) heard: Time,
    /// What had happened by then.
    pub(super) sum: Sum,
}

impl Passed {
    /// How long before a use it was.
    fn before(&self, used: Time) -> Gap {
        Gap {
            begun_ns: used.since(self.at),
            heard_ns: used.since(self.heard),
        }
    }
}

/// How long before a use a communication was.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Since it began.
    begun_ns: u64,
    /// Since the helper heard of it.
    heard_ns: u64,
}

/// One way from a use to the next of the same signature.
#[derive(Debug)]
pub(super) struct Way {
    /// What happens on it, the second use included.
    pub(super) taken: Sum,
    pub(super) periods: History,
    /// What happens on it up to its landmark, this included.
    pub(super) landmark: Option<Sum>,
    /// The times from the landmark to the use.
    gaps: History,
    /// How much of each was left when the helper heard of the landmark.
    left: History,
    /// How often the landmark came.
    times_seen: u32,
}

impl Way {
    pub(super) fn new(taken: Sum) -> Self {
        Self {
            taken,
            periods: History::default(),
            landmark: None,
            gaps: History::default(),
            left: History::default(),
            times_seen: 0,
        }
    }

    /// The use has come: looks back for the landmark, and whether there is a better one.
    pub(super) fn learn_landmark(
        &mut self,
        seen: &Observation,
        last_sum: Sum,
        recent: &VecDeque<Passed>,
    ) {
        let far_enough = (seen.lead_ns as f64 * MARGIN) as u64;
        let mut best = None;
        let mut found = None;
        for passed in recent.iter().rev() {
            // Further back is the use before.
            if passed.sum == last_sum {
                break;
            }
            let since = passed.sum.wrapping_sub(last_sum);
            let gap = passed.before(seen.at);
            if self.landmark == Some(since) {
                found = Some(gap);
            }
            if best.is_none() && gap.heard_ns >= far_enough {
                best = Some((since, gap));
            }
            if best.is_some() && (found.is_some() || self.landmark.is_none()) {
                break;
            }
        }
        if let Some(gap) = found {
            self.gaps.push(gap.begun_ns);
            self.left.push(gap.heard_ns);
            self.times_seen = self.times_seen.saturating_add(1);
        }
        if found.is_none() || self.is_outdone(seen.lead_ns, best) {
            self.replace_landmark(best);
        }
    }

    /// Whether the landmark comes too late by now, or another one much nearer.
    fn is_outdone(&self, lead_ns: u64, best: Option<(Sum, Gap)>) -> bool {
        let usual = |times: &History| times.quantile(9, 0.5);
        let (Some(gap_ns), Some(left_ns)) = (usual(&self.gaps), usual(&self.left)) else {
            return true;
        };
        let nearer = |(since, gap): (Sum, Gap)| {
            Some(since) != self.landmark && (gap.begun_ns as f64) < gap_ns as f64 * NEARER
        };
        left_ns < lead_ns || best.is_some_and(nearer)
    }

    fn replace_landmark(&mut self, best: Option<(Sum, Gap)>) {
        let since = best.map(|it| it.0);
        if since == self.landmark && since.is_some() {
            return;
        }
        self.landmark = since;
        self.gaps.clear();
        self.left.clear();
        self.times_seen = 0;
        if let Some((_, gap)) = best {
            self.gaps.push(gap.begun_ns);
            self.left.push(gap.heard_ns);
            self.times_seen = 1;
        }
    }

    /// Whether the landmark came often enough to be relied on.
    pub(super) fn is_trusted(&self) -> bool {
        self.landmark.is_some() && self.times_seen >= TRUSTED
    }

    /// When the use comes, if the landmark came now.
    pub(super) fn expected_at(&self, at: Time) -> Option<Forecast> {
        if !self.is_trusted() {
            return None;
        }
        // The scale alone, for which any of them does.
        let period_ns = self.periods.newest()?;
        let expected_ns = self.gaps.densest(period_ns)?;
        let earliest_ns = self.gaps.hardly_less()?;
        Some(Forecast {
            expected: at.after(expected_ns),
            earliest: at.after(earliest_ns.min(expected_ns)),
            period_ns,
            awaits: false,
        })
    }
}
