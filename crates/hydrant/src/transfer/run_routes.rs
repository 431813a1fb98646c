//! The two routes for many runs in one call, and their recent times.
//!
//! Each run may be an operation of the network. Or all runs are packed into messages, which the
//! peer's processor unpacks. The faster route depends on the network, on registration and on the
//! load of the peer. So calls with about as many runs of about the same length are measured.

use std::time::Duration;

use hydrant_base::recent::Chooser;

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
/// Calls are compared by the time of so many runs, which is long enough to count in nanoseconds.
const COMPARED: u128 = 1024;

/// Calls of a class that try each route. Programs may make few calls of a class.
const TRIES: u32 = 3;

/// The choices by direction, length and number of runs.
#[derive(Default)]
pub(crate) struct RunRoutes {
    choosers: [[[Chooser<TRIES>; COUNTS]; LENGTHS]; 2],
}

impl RunRoutes {
    /// Chooses the route of a call.
    pub(crate) fn choose(&self, shape: RunShape) -> RunRoute {
        let chooser = self.chooser(shape);
        chooser.map_or(RunRoute::Pieces, |it| {
            ROUTES[it.choose(RunRoute::Pieces as usize)]
        })
    }

    /// Records the time of a call.
    pub(crate) fn record(&self, shape: RunShape, route: RunRoute, time: Duration) {
        if let Some(chooser) = self.chooser(shape) {
            let took = time.as_nanos() * COMPARED / shape.count as u128;
            chooser.record(route as usize, u64::try_from(took).unwrap_or(u64::MAX));
        }
    }

    /// Returns the choice of the call's class, if there is one.
    fn chooser(&self, shape: RunShape) -> Option<&Chooser<TRIES>> {
        let RunShape { gets, count, bytes } = shape;
        if count < 2 || bytes / count > LONGEST {
            return None;
        }
        let length = (bytes / count).max(1).ilog2() as usize;
        let many = (count.ilog2() as usize - 1).min(COUNTS - 1);
        Some(&self.choosers[usize::from(gets)][length][many])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(count: usize, bytes: usize) -> RunShape {
        RunShape {
            gets: false,
            count,
            bytes,
        }
    }

    #[test]
    fn a_route_is_chosen_by_the_time_of_a_run() {
        let routes = RunRoutes::default();
        for count in [64, 100].repeat(TRIES as usize) {
            let shape = put(count, count * 64);
            let route = routes.choose(shape);
            let each = match route {
                RunRoute::Pieces => Duration::from_nanos(9),
                RunRoute::Packed => Duration::from_nanos(8),
            };
            routes.record(shape, route, each * count as u32);
        }
        assert_eq!(routes.choose(put(80, 80 * 64)), RunRoute::Packed);
    }

    #[test]
    fn classes_are_apart_and_cover_every_shape() {
        let routes = RunRoutes::default();
        for bytes in [0, 1, 2, 100, 1 << 20, usize::MAX] {
            assert_eq!(routes.choose(put(1, bytes)), RunRoute::Pieces);
        }
        assert_eq!(routes.choose(put(2, 2 * LONGEST + 2)), RunRoute::Pieces);
        for count in [2, 1000, usize::MAX / LONGEST] {
            for len in [1, 7, LONGEST] {
                let mut seen = ROUTES.map(|_| 0);
                for _ in 0..2 * TRIES {
                    let route = routes.choose(put(count, count * len));
                    routes.record(put(count, count * len), route, Duration::ZERO);
                    seen[route as usize] += 1;
                }
                assert_eq!(seen, [TRIES; 2], "{count} runs of {len}");
            }
        }
    }
}
