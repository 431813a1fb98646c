//! One path from a use to the next, and its landmark.

use std::collections::VecDeque;

use super::history::History;
use super::{Forecast, Observation};
use crate::time::Time;

/// The communications so far, as a sum of hashes. The difference of two sums stands for the communications between,
/// in any order.
pub(super) type Sum = u64;

/// A landmark lies at least this many times the lead before the use.
const MARGIN: f64 = 1.5;

/// A landmark gives way to a later one whose gap is below this share of its gap.
const NEARER: f64 = 0.7;

/// The number of times that a landmark must precede its use before it is trusted.
const TRUSTED: u32 = 2;

/// A communication that has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// The time of its begin.
    pub(super) at: Time,
    /// The time at which the helper heard of it.
    pub(super) heard: Time,
    /// The sum at that time, this communication included.
    pub(super) sum: Sum,
}

impl Passed {
    /// The gap between this communication and a use.
    fn before(&self, used: Time) -> Gap {
        Gap {
            begun_ns: used.since(self.at),
            heard_ns: used.since(self.heard),
        }
    }
}

/// The gap between a communication and a later use.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Time since the communication began.
    begun_ns: u64,
    /// Time since the helper heard of it.
    heard_ns: u64,
}

/// One path from a use to the next of the same signature.
#[derive(Debug)]
pub(super) struct ProgramPath {
    /// The sum of its communications, the second use included.
    pub(super) taken: Sum,
    pub(super) periods: History,
    /// The sum of its communications up to the landmark, the landmark included.
    pub(super) landmark: Option<Sum>,
    /// The times from the landmark to the use.
    gaps: History,
    /// The time left of each gap when the helper heard of the landmark.
    left: History,
    /// The number of times that the landmark came.
    times_seen: u32,
}

impl ProgramPath {
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

    /// The bytes of the path's histories.
    #[cfg(all(test, not(loom)))]
    pub(super) fn bytes(&self) -> usize {
        self.periods.bytes() + self.gaps.bytes() + self.left.bytes()
    }

    /// Looks back from a use for the path's landmark, and for a better one.
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
            // Earlier communications precede the last use.
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

    /// True if the landmark comes too late by now, or if another is much nearer.
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

    /// True if the landmark came often enough to be trusted.
    pub(super) fn is_trusted(&self) -> bool {
        self.landmark.is_some() && self.times_seen >= TRUSTED
    }

    /// The forecast of the use, if the landmark came at `at`.
    pub(super) fn expected_at(&self, at: Time) -> Option<Forecast> {
        if !self.is_trusted() {
            return None;
        }
        // The period only sets a scale, so any of them will do.
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
