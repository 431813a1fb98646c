//! The two routes for many runs in one call, and their recent times.
//!
//! Each run may be an operation of the network. Or all runs are packed into messages, which the
//! peer's processor unpacks. The faster route depends on the network, on registration and on the
//! load of the peer. So calls with about as many runs of about the same length are measured.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// The route of a call with many runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunRoute {
    /// Each run is an operation of the network.
    Pieces,
    /// The runs are packed into messages.
    Packed,
}

const ROUTES: [RunRoute; 2] = [RunRoute::Pieces, RunRoute::Packed];

/// The shape of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunShape {
    /// True for a get, false for a put.
    pub(crate) gets: bool,
    /// The number of runs, and the bytes of all of them.
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// The limit of bytes of a packed run. A network moves longer runs faster without copies.
const LONGEST: usize = 4096;
/// Classes of runs by length, in powers of two.
const LENGTHS: usize = 13;
/// Classes of calls by the number of runs. The last class has all larger numbers.
const COUNTS: usize = 10;
/// Calls of a class that try both routes in turns.
const TRIALS: u32 = 6;
/// One call in so many tries the slower route, unless that is slower by [`MANY_TIMES`].
const AGAIN: u32 = 64;
const MANY_TIMES: u64 = 8;
/// One call in so many tries the slower route in any case.
const HOPELESS: u32 = 4096;

/// The times of both routes.
#[derive(Default)]
pub(crate) struct RunRoutes {
    times_by_class: [[[RunTimes; COUNTS]; LENGTHS]; 2],
}

#[derive(Default)]
struct RunTimes {
    /// Calls so far.
    calls: AtomicU32,
    /// Nanoseconds of a run, by route; zero if the route was not tried.
    took: [AtomicU32; ROUTES.len()],
}

impl RunRoutes {
    /// Chooses the route of a call.
    pub(crate) fn choose(&self, shape: RunShape) -> RunRoute {
        let Some(times) = self.times(shape) else {
            return RunRoute::Pieces;
        };
        let call = times.calls.fetch_add(1, Relaxed);
        if call < TRIALS {
            return ROUTES[call as usize % ROUTES.len()];
        }
        let [pieces, packed] =
            ROUTES.map(|route| u64::from(times.took[route as usize].load(Relaxed)));
        let (better, other) = if packed < pieces {
            (RunRoute::Packed, RunRoute::Pieces)
        } else {
            (RunRoute::Pieces, RunRoute::Packed)
        };
        let is_near = pieces.max(packed) / MANY_TIMES < pieces.min(packed);
        let period = if is_near { AGAIN } else { HOPELESS };
        let tries_again = call.is_multiple_of(period);
        if tries_again { other } else { better }
    }

    /// Records the time of a call.
    pub(crate) fn record(&self, shape: RunShape, route: RunRoute, time: Duration) {
        let Some(times) = self.times(shape) else {
            return;
        };
        let took = &times.took[route as usize];
        let nanos = time.as_nanos() / shape.count.max(1) as u128;
        let now = u32::try_from(nanos).unwrap_or(u32::MAX).max(1);
        let before = took.load(Relaxed);
        // A shorter time is taken at once. A longer one may include a registration or a wait for
        // the scheduler.
        let known = match before {
            0 => now,
            before if now < before => now,
            before => before.saturating_add((now - before).min(before) / 4),
        };
        took.store(known, Relaxed);
    }

    /// Returns the times of the call's class, if there is a choice.
    fn times(&self, shape: RunShape) -> Option<&RunTimes> {
        let RunShape { gets, count, bytes } = shape;
        if count < 2 || bytes / count > LONGEST {
            return None;
        }
        let length = (bytes / count).max(1).ilog2() as usize;
        let many = (count.ilog2() as usize - 1).min(COUNTS - 1);
        Some(&self.times_by_class[usize::from(gets)][length][many])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: RunShape = RunShape {
        gets: false,
        count: 100,
        bytes: 6400,
    };

    /// Runs `calls` calls with the given microseconds for each route. Returns the number of packed
    /// calls.
    fn packed(routes: &RunRoutes, calls: u32, [pieces, packed]: [u64; 2]) -> u32 {
        let mut count = 0;
        for _ in 0..calls {
            let route = routes.choose(SHAPE);
            let took = match route {
                RunRoute::Pieces => pieces,
                RunRoute::Packed => packed,
            };
            routes.record(SHAPE, route, Duration::from_micros(took));
            count += u32::from(route == RunRoute::Packed);
        }
        count
    }

    #[test]
    fn nearly_all_calls_take_the_faster_route() {
        assert!(packed(&RunRoutes::default(), 1000, [30, 10]) > 970);
        assert!(packed(&RunRoutes::default(), 1000, [10, 30]) < 30);
        // A far slower route is not tried again.
        assert_eq!(packed(&RunRoutes::default(), 1000, [10, 1000]), TRIALS / 2);
    }

    #[test]
    fn a_change_of_the_faster_route_is_found() {
        let routes = RunRoutes::default();
        packed(&routes, 1000, [10, 20]);
        // The packed route is slower for a while, as with a busy peer, and then is faster.
        assert!(packed(&routes, 2000, [20, 5]) > 1500);
        assert!(packed(&routes, 2000, [5, 20]) < 500);
    }

    #[test]
    fn a_slow_start_is_forgotten() {
        let routes = RunRoutes::default();
        let first = routes.choose(SHAPE);
        assert_eq!(first, RunRoute::Pieces);
        routes.record(SHAPE, first, Duration::from_millis(9));
        assert!(packed(&routes, 1000, [10, 30]) < 30);
    }

    #[test]
    fn classes_are_apart_and_cover_every_shape() {
        let routes = RunRoutes::default();
        let put = |count, bytes| RunShape {
            gets: false,
            count,
            bytes,
        };
        for bytes in [0, 1, 2, 100, 1 << 20, usize::MAX] {
            assert_eq!(routes.choose(put(1, bytes)), RunRoute::Pieces);
        }
        assert_eq!(routes.choose(put(2, 2 * LONGEST + 2)), RunRoute::Pieces);
        for count in [2, 1000, usize::MAX / LONGEST] {
            for len in [1, 7, LONGEST] {
                let mut seen = ROUTES.map(|_| 0);
                for _ in 0..TRIALS {
                    let route = routes.choose(put(count, count * len));
                    routes.record(put(count, count * len), route, Duration::ZERO);
                    seen[route as usize] += 1;
                }
                assert_eq!(seen, [TRIALS / 2; 2], "{count} runs of {len}");
            }
        }
    }
}
