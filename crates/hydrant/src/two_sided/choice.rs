//! Chooses the route of a long message by recent times: copied in parts, or written into the
//! receiver's buffer.
//!
//! The receiver chooses, and measures from the match to the end of the receive. That time includes
//! the registrations of both sides by the strategy in force. Each route is tried a few times for
//! each length, beginning with the one that the conduit's costs favour. The slower route is tried
//! again once the time saved since pays for the trial. Messages in flight together share the time:
//! each is charged its part.

/// Lengths by powers of two, for peers whose memory is mapped here and for others.
const CLASSES: usize = usize::BITS as usize + 1;
/// The number of trials before a route's time is believed. The first ones touch fresh memory and
/// wake sleepers.
const TRIES: u32 = 4;
/// Trials of the slower route may take one part in so many of the messages' time.
const TRIALS: u64 = 256;

/// A route of a long message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LongRoute {
    Copied,
    Written,
}

const ROUTES: [LongRoute; 2] = [LongRoute::Copied, LongRoute::Written];

/// The route of a message in flight, and its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimedRoute {
    pub(super) route: LongRoute,
    class: (usize, usize),
    since: u64,
}

/// The times of messages of about the same length.
#[derive(Clone, Copy, Default, Debug)]
struct LengthTimes {
    /// Mean nanoseconds by route; zero if no message has ended.
    mean: [u64; 2],
    /// Messages that ended, by route, up to [`TRIES`].
    samples: [u32; 2],
    /// Messages that were sent as trials, by route, up to [`TRIES`].
    tried: [u32; 2],
    /// Nanoseconds saved, which a trial may spend.
    saved: u64,
}

/// The times of long messages to this rank.
#[derive(Debug)]
pub(super) struct LongRouteChoice {
    /// The largest message that is copied first, before anything was measured.
    copied_first: usize,
    times_by_length: Box<[[LengthTimes; CLASSES]; 2]>,
    /// Messages in flight.
    in_flight: u64,
    /// The time of the last update.
    updated: u64,
    /// The clock that messages in flight share: it advances more slowly the more of them there are.
    shared: u64,
}

impl LongRouteChoice {
    pub(super) fn new(copied_first: usize) -> Self {
        Self {
            copied_first,
            times_by_length: Box::new([[LengthTimes::default(); CLASSES]; 2]),
            in_flight: 0,
            updated: 0,
            shared: 0,
        }
    }

    /// Chooses the route of a message that begins. `mapped`: the memory of its sender is mapped
    /// here.
    pub(super) fn begin(&mut self, now: u64, len: usize, mapped: bool) -> TimedRoute {
        self.advance_clock(now);
        self.in_flight += 1;
        let class = (
            usize::from(mapped),
            (usize::BITS - len.leading_zeros()) as usize,
        );
        let first = if len <= self.copied_first {
            ROUTES
        } else {
            [LongRoute::Written, LongRoute::Copied]
        };
        TimedRoute {
            route: self.times(class).choose(first),
            class,
            since: self.shared,
        }
    }

    /// Notes the end of a message. A failed message counts no time.
    pub(super) fn end(&mut self, now: u64, timed: TimedRoute, went_well: bool) {
        self.advance_clock(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        if went_well {
            let took = self.shared.saturating_sub(timed.since).max(1);
            self.times(timed.class).record(timed.route, took);
        }
    }

    fn advance_clock(&mut self, now: u64) {
        let passed = now.saturating_sub(self.updated);
        self.shared += passed / self.in_flight.max(1);
        self.updated = self.updated.max(now);
    }

    fn times(&mut self, (mapped, size): (usize, usize)) -> &mut LengthTimes {
        &mut self.times_by_length[mapped][size]
    }
}

impl LengthTimes {
    fn choose(&mut self, first: [LongRoute; 2]) -> LongRoute {
        if let Some(route) = first
            .into_iter()
            .find(|route| self.tried[*route as usize] < TRIES)
        {
            self.tried[route as usize] += 1;
            return route;
        }
        let [copied, written] = self.mean;
        let (better, worse) = match (copied, written) {
            // All trials of a route are still in flight, or failed.
            (0, _) | (_, 0) => return first[0],
            _ if copied < written => (LongRoute::Copied, LongRoute::Written),
            _ => (LongRoute::Written, LongRoute::Copied),
        };
        let more = copied.abs_diff(written).saturating_mul(TRIES.into());
        self.saved = (self.saved).saturating_add(copied.min(written) / TRIALS);
        if self.saved > more {
            self.saved = 0;
            // This message and the next ones are trials.
            self.tried[worse as usize] = 1;
            self.samples[worse as usize] = 0;
            return worse;
        }
        better
    }

    fn record(&mut self, route: LongRoute, nanos: u64) {
        let (mean, samples) = (
            &mut self.mean[route as usize],
            &mut self.samples[route as usize],
        );
        *mean = match *mean {
            0 => nanos,
            // The first messages register memory that stays registered, or wait for the scheduler.
            // No message is faster than its route can be.
            before if nanos < before && *samples < TRIES => nanos,
            before if nanos < before => before - (before - nanos).div_ceil(8),
            // A far longer time has another cause, and counts as twice the mean.
            before => before + (nanos - before).min(before) / 8,
        };
        *samples = (*samples + 1).min(TRIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `count` messages one after the other, with the given time for each route. Returns the
    /// number of copied ones.
    fn run(
        choice: &mut LongRouteChoice,
        now: &mut u64,
        count: u32,
        len: usize,
        took: [u64; 2],
    ) -> u32 {
        let mut copied = 0;
        for _ in 0..count {
            let timed = choice.begin(*now, len, false);
            *now += took[timed.route as usize];
            choice.end(*now, timed, true);
            copied += u32::from(timed.route == LongRoute::Copied);
        }
        copied
    }

    #[test]
    fn the_faster_route_wins_whatever_is_tried_first() {
        for copied_first in [0, usize::MAX] {
            let (mut choice, mut now) = (LongRouteChoice::new(copied_first), 7);
            let copied = run(&mut choice, &mut now, 100, 1 << 16, [29_000, 62_000]);
            assert_eq!(copied, 100 - TRIES);
            let copied = run(&mut choice, &mut now, 100, 1 << 20, [367_000, 335_000]);
            assert!(copied <= TRIES + 4, "{copied}");
            // Lengths that differ by less than a factor of two share their times.
            assert_eq!(run(&mut choice, &mut now, 10, 100_000, [2, 1]), 10);
        }
    }

    #[test]
    fn a_route_that_becomes_faster_is_found_again() {
        let (mut choice, mut now) = (LongRouteChoice::new(0), 0);
        run(&mut choice, &mut now, 100, 1 << 16, [30_000, 60_000]);
        let copied = run(&mut choice, &mut now, 4000, 1 << 16, [30_000, 10_000]);
        assert!(copied < 2000, "{copied}");
    }

    #[test]
    fn messages_in_flight_together_share_the_time() {
        let mut choice = LongRouteChoice::new(usize::MAX);
        let count = 2 * u64::from(TRIES);
        let all: Vec<TimedRoute> = (0..count)
            .map(|_| choice.begin(0, 1 << 16, false))
            .collect();
        for timed in all {
            choice.end(count * 1000, timed, true);
        }
        let times = choice.times((0, 17));
        assert_eq!(times.mean, [1000, 1000]);
    }

    #[test]
    fn a_failed_message_counts_no_time() {
        let mut choice = LongRouteChoice::new(0);
        for now in 0..20 {
            let timed = choice.begin(now, 1 << 16, true);
            choice.end(now, timed, timed.route == LongRoute::Copied);
        }
        assert_eq!(choice.times((1, 17)).mean[LongRoute::Written as usize], 0);
        assert_eq!(choice.in_flight, 0);
    }
}
