//! The recent times of each route: of operations by class, of moves by their number of buckets.

use std::array::from_fn;

use hydrant_base::recent::{RecentTime, Savings};

use crate::{
    CostModel, Direction,
    hot::{CLASSES as SIZES, class_of},
};

/// The number of classes of a move's buckets, one for each power of two.
const WIDTHS: usize = 21;
/// The samples of a route that was not tried, and of one that is tried again.
const FIRST: u32 = 3;
const AGAIN: u32 = 2;
/// The further samples of copies, in classes up to the length SHORT. A peer that only hits have
/// reached is asleep, and the first short copies include the time to wake it.
const WAKING: u32 = 5;
const SHORT: u64 = 4096;
/// If copies take this many times longer than hits, longer copies are not tried. A single one may
/// take as long as many hits.
const OUTDONE: u64 = 2;
/// The shortest operations whose times predict those of longer ones.
const TELLING: u64 = 16 << 10;
/// The cap on the first measured moves: this many times the conduit's cost of their registrations.
const FIRST_MOVES: u64 = 2;

/// Operations of about the same cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct OperationClass {
    pub(in crate::engine) direction: Direction,
    /// True if own memory is registered for the operation alone.
    pub(in crate::engine) transient: bool,
    pub(in crate::engine) size: usize,
}

impl OperationClass {
    pub(in crate::engine) fn new(direction: Direction, len: u64, transient: bool) -> Self {
        Self {
            direction,
            transient,
            size: class_of(len),
        }
    }
}

/// The route of a piece's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum PieceRoute {
    /// The data goes in messages.
    Copied,
    /// The NIC moves the data, with the peer's memory registered already.
    Hit,
    /// The peer first registers what is needed, or the peer itself writes the data and may have to
    /// register.
    PeerRegisters,
}

#[derive(Default, Debug)]
struct ClassTimes {
    /// The time of each route in nanoseconds, with samples up to [`RouteCosts::samples_wanted`].
    times: [RecentTime; 3],
    /// The number of pulls whose route was chosen.
    pulls: u32,
    saved: Savings,
    /// True if copies must be tried, whatever shorter ones suggest.
    must_try: bool,
}

impl ClassTimes {
    /// The time of each route; zero before its first sample.
    fn means(&self) -> [u64; 3] {
        self.times.each_ref().map(RecentTime::mean)
    }
}

/// The times of operations, by class and route.
#[derive(Debug)]
pub(super) struct RouteCosts {
    cells: Box<[[[ClassTimes; SIZES]; 2]; 2]>,
}

impl Default for RouteCosts {
    fn default() -> Self {
        Self {
            cells: Box::new(from_fn(|_| from_fn(|_| from_fn(|_| ClassTimes::default())))),
        }
    }
}

impl RouteCosts {
    pub(super) fn record(&self, class: OperationClass, route: PieceRoute, nanos: u64) {
        let first = Self::samples_wanted(class, route);
        let time = &self.cell(class).times[route as usize];
        if route == PieceRoute::PeerRegisters {
            // The peer's own work differs from one operation to the next.
            time.average(nanos, first);
        } else {
            time.record(nanos, first);
        }
    }

    /// Returns the time of a copy, and the time that a hit saves. The saving is half of the copy
    /// where hits are not known.
    pub(super) fn saving(&self, class: OperationClass) -> Option<(u64, u64)> {
        let hit = self.cell(class).means()[PieceRoute::Hit as usize];
        match (self.copy(class), hit) {
            (0, _) => None,
            (copy, 0) => Some((copy, copy / 2)),
            (copy, hit) => Some((copy, copy.saturating_sub(hit))),
        }
    }

    /// Returns the time of a copy, or an estimate by the next shorter class that is known.
    pub(super) fn expected_copy(&self, class: OperationClass) -> Option<u64> {
        let known = |size: usize| {
            let like = [class.transient, !class.transient].map(|transient| OperationClass {
                transient,
                size,
                ..class
            });
            let took = like.map(|like| self.cell(like).means()[PieceRoute::Copied as usize]);
            took.into_iter().find(|took| *took > 0)
        };
        (0..=class.size)
            .rev()
            .find_map(|size| Some(known(size)?.saturating_mul(1 << (class.size - size))))
    }

    /// Returns the time that a hit saves over a copy, and the time that a registration adds to a
    /// hit. `None` unless all are known.
    pub(super) fn rent(&self, class: OperationClass) -> Option<(u64, u64)> {
        let [_, hit, far] = self.cell(class).means();
        let copy = self.copy(class);
        let known = copy > 0 && hit > 0 && far > 0;
        known.then(|| (copy.saturating_sub(hit), far.saturating_sub(hit)))
    }

    /// Returns true if copies are known to take less than hits.
    pub(super) fn copies_beat_hits(&self, class: OperationClass) -> bool {
        let [copy, hit, _] = self.cell(class).means();
        copy > 0 && copy < hit
    }

    /// Returns true if a route needs more samples.
    pub(super) fn needs(&self, class: OperationClass, route: PieceRoute) -> bool {
        let is_few =
            self.cell(class).times[route as usize].samples() < Self::samples_wanted(class, route);
        is_few && !(route == PieceRoute::Copied && self.is_estimated(class))
    }

    /// The time of a copy, or its estimate where shorter ones suffice; zero if neither is known.
    fn copy(&self, class: OperationClass) -> u64 {
        match self.cell(class).means()[PieceRoute::Copied as usize] {
            0 => self.estimated_copy(class).unwrap_or(0),
            took => took,
        }
    }

    /// Returns true if the time of copies is estimated from shorter ones.
    pub(super) fn is_estimated(&self, class: OperationClass) -> bool {
        self.estimated_copy(class).is_some()
    }

    /// Estimates the time of a copy in a class without any sample. The next shorter class must have
    /// samples, and its copies must take far longer than its hits. There is no estimate where
    /// copies may still be faster than the class's own hits, or than its moves where there are no
    /// hits.
    fn estimated_copy(&self, class: OperationClass) -> Option<u64> {
        let cell = self.cell(class);
        let [copied, hit, _] = cell.means();
        let only_moves = hit == 0 && !self.needs(class, PieceRoute::PeerRegisters);
        if cell.must_try || copied > 0 || only_moves {
            return None;
        }
        let shorter = (class_of(TELLING)..class.size).rev();
        let mut known = shorter.map(|size| OperationClass { size, ..class });
        let next = known.find(|it| self.cell(*it).means()[PieceRoute::Copied as usize] > 0)?;
        let [copy, shorter_hit, _] = self.cell(next).means();
        let is_known = ![PieceRoute::Copied, PieceRoute::Hit]
            .map(|route| self.needs(next, route))
            .contains(&true);
        let is_outdone = is_known && copy >= shorter_hit.saturating_mul(OUTDONE);
        let likely = copy.saturating_mul(1 << (class.size - next.size));
        (is_outdone && hit < likely).then_some(likely)
    }

    /// Makes a route be tried again, a few times.
    pub(super) fn forget(&mut self, class: OperationClass, route: PieceRoute) {
        let left = Self::samples_wanted(class, route) - Self::retries(class, route);
        let cell = self.cell_mut(class);
        cell.must_try |= route == PieceRoute::Copied;
        // Estimated copies have no samples, and get as many trials as were paid for.
        cell.times[route as usize].forget(left);
    }

    /// The number of samples of a route that is known.
    fn samples_wanted(class: OperationClass, route: PieceRoute) -> u32 {
        FIRST + Self::retries(class, route) - AGAIN
    }

    /// The number of operations that try a route again.
    pub(super) fn retries(class: OperationClass, route: PieceRoute) -> u32 {
        if route == PieceRoute::Copied && class.size <= class_of(SHORT) {
            AGAIN + WAKING
        } else {
            AGAIN
        }
    }

    /// Returns the better and the worse of copies and hits with their times, if both are known.
    pub(super) fn ranked_routes(&self, class: OperationClass) -> Option<[(PieceRoute, u64); 2]> {
        let hit = self.cell(class).means()[PieceRoute::Hit as usize];
        let copy = self.copy(class);
        let known = ![PieceRoute::Copied, PieceRoute::Hit]
            .map(|route| self.needs(class, route))
            .contains(&true);
        let ways = [(PieceRoute::Copied, copy), (PieceRoute::Hit, hit)];
        known.then(|| if copy < hit { ways } else { [ways[1], ways[0]] })
    }

    /// Decides if a get is copied or takes the `other` route, in which the peer takes part.
    pub(super) fn choose_pull(&mut self, class: OperationClass, other: PieceRoute) -> PieceRoute {
        let cell = self.cell_mut(class);
        let ways = [PieceRoute::Copied, other];
        let [copy, pull] = ways.map(|route| cell.times[route as usize].mean());
        let untried = ways.map(|route| cell.times[route as usize].samples() < 2);
        let call = cell.pulls;
        cell.pulls = call.wrapping_add(1);
        match untried {
            [true, true] => return ways[call as usize % 2],
            [true, false] => return PieceRoute::Copied,
            [false, true] => return other,
            [false, false] => {}
        }
        let (better, worse) = if copy < pull {
            (PieceRoute::Copied, other)
        } else {
            (other, PieceRoute::Copied)
        };
        if self.spend_savings(class, copy.min(pull), copy.abs_diff(pull)) {
            worse
        } else {
            better
        }
    }

    /// Adds a part of an operation's time `takes` to the savings of its class. If these cover the
    /// extra time `more` of the slower route, it spends them and returns true.
    pub(super) fn spend_savings(&self, class: OperationClass, takes: u64, more: u64) -> bool {
        let saved = &self.cell(class).saved;
        saved.earn(takes);
        saved.spend(more)
    }

    fn cell(&self, class: OperationClass) -> &ClassTimes {
        &self.cells[class.direction as usize][usize::from(class.transient)][class.size]
    }

    fn cell_mut(&mut self, class: OperationClass) -> &mut ClassTimes {
        &mut self.cells[class.direction as usize][usize::from(class.transient)][class.size]
    }
}

/// The times of moves. Until the first sample, the conduit's costs of registrations stand in.
#[derive(Debug)]
pub(super) struct MovePrices {
    /// The measured times, without and with an eviction.
    took: [[RecentTime; WIDTHS]; 2],
    /// The conduit's costs. The one with an eviction, to register and to deregister, is also the
    /// least price: the target may answer such a move before it has deregistered, but has no time
    /// for the next operation until then.
    said: [[u64; WIDTHS]; 2],
}

impl MovePrices {
    pub(super) fn new(register: CostModel, both: CostModel, pages: u64) -> Self {
        let prices = |cost: CostModel| {
            from_fn(|width| {
                let pages = (pages << width) as f64;
                (cost.per_op_ns + cost.per_page_ns * pages).clamp(1.0, 1e12) as u64
            })
        };
        Self {
            took: Default::default(),
            said: [prices(register), prices(both)],
        }
    }

    /// The price of a move of so many buckets, beside an operation of `beside` nanoseconds.
    pub(super) fn of(&self, count: u64, evicts: bool, beside: u64) -> u64 {
        let (row, width) = (usize::from(evicts), width(count));
        let (took, said) = (&self.took[row][width], self.said[row][width]);
        let price = match took.samples() {
            0 => said,
            // The first samples may include a wait for the peer's earlier work or for the
            // scheduler. A move that seems dear would not be tried again soon.
            1..FIRST => took.mean().min(said.saturating_mul(FIRST_MOVES)),
            _ => took.mean(),
        };
        price.max(if evicts {
            said.saturating_sub(beside)
        } else {
            0
        })
    }

    pub(super) fn record(&mut self, count: u64, evicts: bool, nanos: u64) {
        self.took[usize::from(evicts)][width(count)].record(nanos, FIRST);
    }
}

fn width(count: u64) -> usize {
    // The width is rounded up, so that no dear move seems cheap.
    (count.max(1).next_power_of_two().ilog2() as usize).min(WIDTHS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_a_class() {
        let of = |len| OperationClass::new(Direction::Get, len, true).size;
        assert_eq!([of(0), of(1), of(8), of(u64::MAX)], [0, 0, 3, SIZES - 1]);
    }

    #[test]
    fn pulls_nearly_always_take_the_faster_route_and_notice_changes() {
        let class = OperationClass::new(Direction::Get, 1 << 16, false);
        let mut costs = RouteCosts::default();
        let mut run = |calls: u32, [copy, pull]: [u64; 2]| {
            let mut copied = 0;
            for _ in 0..calls {
                let route = costs.choose_pull(class, PieceRoute::PeerRegisters);
                let took = if route == PieceRoute::Copied {
                    copy
                } else {
                    pull
                };
                costs.record(class, route, took);
                copied += u32::from(route == PieceRoute::Copied);
            }
            copied
        };
        assert!(run(1000, [10_000, 15_000]) > 950);
        assert!(run(4000, [20_000, 5000]) < 1000);
    }

    #[test]
    fn a_route_that_is_slow_every_second_time_takes_the_mean() {
        let class = OperationClass::new(Direction::Put, 8, false);
        let costs = RouteCosts::default();
        for at in 0..200 {
            costs.record(
                class,
                PieceRoute::Copied,
                if at % 2 == 0 { 60 } else { 500 },
            );
        }
        let (copy, _) = costs.saving(class).expect("copies are known");
        assert!((150..400).contains(&copy), "{copy}");
        // Faster samples count within a few operations.
        (0..40).for_each(|_| costs.record(class, PieceRoute::Copied, 60));
        assert!(costs.saving(class) < Some((70, 0)));
    }

    #[test]
    fn first_moves_that_waited_set_no_price() {
        let cost = CostModel {
            per_op_ns: 1000.0,
            per_page_ns: 0.0,
        };
        let mut prices = MovePrices::new(cost, cost, 1);
        prices.record(1, false, 50_000_000);
        assert!(prices.of(1, false, 0) <= 2000);
        prices.record(1, false, 30_000);
        prices.record(1, false, 50_000_000);
        assert!(prices.of(1, false, 0) < 34_000);
        (0..20).for_each(|_| prices.record(1, false, 20_000));
        assert!((20_000..21_000).contains(&prices.of(1, false, 0)));
    }

    #[test]
    fn long_copies_are_estimated_from_shorter_ones_where_these_suffice() {
        let class = |len| OperationClass::new(Direction::Put, len, false);
        let (short, long) = (class(64 << 10), class(1 << 20));
        let mut costs = RouteCosts::default();
        for _ in 0..FIRST {
            assert!(costs.needs(long, PieceRoute::Copied));
            costs.record(short, PieceRoute::Copied, 3000);
            costs.record(short, PieceRoute::Hit, 1000);
        }
        assert!(!costs.needs(long, PieceRoute::Copied) && costs.needs(long, PieceRoute::Hit));
        assert_eq!(costs.saving(long), Some((48_000, 24_000)));
        (0..FIRST).for_each(|_| costs.record(long, PieceRoute::Hit, 10_000));
        let ways = costs.ranked_routes(long);
        assert_eq!(
            ways,
            Some([(PieceRoute::Hit, 10_000), (PieceRoute::Copied, 48_000)])
        );
        // A trial measures copies when it was paid for.
        costs.forget(long, PieceRoute::Copied);
        assert!(costs.needs(long, PieceRoute::Copied));
        costs.record(long, PieceRoute::Copied, 20_000);
        assert_eq!(costs.saving(long), Some((20_000, 10_000)));
        // There is no estimate from classes with little difference, nor from far shorter ones.
        // Neither is there one if the class's own hits take longer, or if it has moves and no hits.
        for (route, nanos) in [
            (PieceRoute::Hit, 50_000),
            (PieceRoute::PeerRegisters, 10_000),
        ] {
            let costs = RouteCosts::default();
            for _ in 0..FIRST {
                costs.record(short, PieceRoute::Copied, 3000);
                costs.record(short, PieceRoute::Hit, 1000);
                costs.record(long, route, nanos);
            }
            assert!(costs.needs(long, PieceRoute::Copied), "{route:?}");
        }
        for len in [8, 32 << 10] {
            let costs = RouteCosts::default();
            for _ in 0..RouteCosts::samples_wanted(class(len), PieceRoute::Copied) {
                costs.record(
                    class(len),
                    PieceRoute::Copied,
                    if len == 8 { 3000 } else { 1900 },
                );
                costs.record(class(len), PieceRoute::Hit, 1000);
            }
            assert!(costs.needs(long, PieceRoute::Copied), "{len}");
        }
    }

    #[test]
    fn a_slow_sample_says_little() {
        let class = OperationClass::new(Direction::Put, 8, false);
        let costs = RouteCosts::default();
        costs.record(class, PieceRoute::Copied, 1_000_000);
        costs.record(class, PieceRoute::Copied, 1000);
        assert_eq!(costs.saving(class), Some((1000, 500)));
        costs.record(class, PieceRoute::Copied, 1_000_000);
        assert!(costs.saving(class) < Some((1200, 0)));
    }
}
