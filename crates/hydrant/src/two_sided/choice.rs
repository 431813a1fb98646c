//! Chooses the route of a long message by recent times: copied in parts, or written into the
//! receiver's buffer.
//!
//! The receiver chooses, and measures from the match to the end of the receive. That time includes
//! the registrations of both sides by the strategy in force. Each length has its own [`Chooser`],
//! which begins with the route that the conduit's costs favour. Messages in flight together share
//! the time: each is charged its part.

use std::array::from_fn;

use hydrant_base::recent::Chooser;

/// Lengths by powers of two, for peers whose memory is mapped here and for others.
const CLASSES: usize = usize::BITS as usize + 1;

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

/// The times of long messages to this rank.
#[derive(Debug)]
pub(super) struct LongRouteChoice {
    /// The largest message that is copied first, before anything was measured.
    copied_first: usize,
    /// The choices by length, for peers whose memory is mapped here and for others.
    choosers: Box<[[Chooser; CLASSES]; 2]>,
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
            choosers: Box::new(from_fn(|_| from_fn(|_| Chooser::default()))),
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
            LongRoute::Copied
        } else {
            LongRoute::Written
        };
        TimedRoute {
            route: ROUTES[self.chooser(class).choose(first as usize)],
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
            self.chooser(timed.class).record(timed.route as usize, took);
        }
    }

    fn advance_clock(&mut self, now: u64) {
        let passed = now.saturating_sub(self.updated);
        self.shared += passed / self.in_flight.max(1);
        self.updated = self.updated.max(now);
    }

    fn chooser(&self, (mapped, size): (usize, usize)) -> &Chooser {
        &self.choosers[mapped][size]
    }
}

#[cfg(test)]
mod tests {
    use hydrant_base::recent::TRIES;

    use super::*;

    #[test]
    fn lengths_that_differ_by_less_than_a_factor_of_two_share_their_times() {
        let (mut choice, mut now) = (LongRouteChoice::new(0), 7);
        for (len, took) in [
            (1 << 16, [29, 62]),
            (100_000, [62, 29]),
            (1 << 17, [62, 29]),
        ] {
            for _ in 0..100 {
                let timed = choice.begin(now, len, false);
                now += took[timed.route as usize];
                choice.end(now, timed, true);
            }
        }
        assert!(choice.chooser((0, 17)).means()[LongRoute::Copied as usize] > 29);
        assert_eq!(choice.chooser((0, 18)).means(), [62, 29]);
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
        assert_eq!(choice.chooser((0, 17)).means(), [1000, 1000]);
    }

    #[test]
    fn a_failed_message_counts_no_time() {
        let mut choice = LongRouteChoice::new(0);
        for now in 0..20 {
            let timed = choice.begin(now, 1 << 16, true);
            choice.end(now, timed, timed.route == LongRoute::Copied);
        }
        assert_eq!(
            choice.chooser((1, 17)).means()[LongRoute::Written as usize],
            0
        );
        assert_eq!(choice.in_flight, 0);
    }
}
