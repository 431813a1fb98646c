//! What each way took lately: operations by class, moves by how many buckets they bring.

use crate::{
    CostModel, Direction,
    hot::{CLASSES as SIZES, class_of},
};

/// Buckets of a move, to powers of two.
const WIDTHS: usize = 21;
/// Samples that are taken of a way that was not tried, and of one that is tried again.
const FIRST: u32 = 3;
const AGAIN: u32 = 2;
/// As many more copies are tried of classes up to this length: a peer that hits have passed by sleeps, and the
/// first short copies take what it takes to wake it.
const WAKING: u32 = 5;
const SHORT: u64 = 4096;
/// Where copies take so many times what hits do, those of longer operations are not tried to find out: one may take
/// as long as many hits.
const OUTDONE: u64 = 2;
/// The shortest operations that say so of longer ones.
const TELLING: u64 = 16 << 10;
/// The first moves that are measured are believed to take at most so many times what the conduit says of their
/// registrations.
const FIRST_MOVES: u64 = 2;
/// Of the time that operations take, this part may be spent on trying the way that takes longer.
pub(super) const TRIALS: u64 = 256;

/// Operations of about the same cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct Class {
    pub(in crate::engine) direction: Direction,
    /// Whether own memory is registered for the operation alone.
    pub(in crate::engine) transient: bool,
    pub(in crate::engine) size: usize,
}

impl Class {
    pub(in crate::engine) fn new(direction: Direction, len: u64, transient: bool) -> Self {
        Self {
            direction,
            transient,
            size: class_of(len),
        }
    }
}

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Way {
    /// In messages.
    Copied,
    /// By the NIC, what it needs of the peer being registered.
    Hit,
    /// When the peer has registered what it needs, or written by the peer, who may have to.
    Far,
}

#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    /// Nanoseconds, by way; zero if that was not tried.
    took: [u64; 3],
    /// Samples, by way, up to [`Costs::first`].
    samples: [u32; 3],
    /// Pulls that chose.
    pulls: u32,
    /// Nanoseconds that may be spent on a trial.
    saved: u64,
    /// Copies are to be tried whatever shorter ones say.
    must_try: bool,
}

/// What operations took.
#[derive(Debug)]
pub(super) struct Costs {
    cells: Box<[[[Cell; SIZES]; 2]; 2]>,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            cells: Box::new([[[Cell::default(); SIZES]; 2]; 2]),
        }
    }
}

impl Costs {
    pub(super) fn took(&mut self, class: Class, way: Way, nanos: u64) {
        let first = Self::first(class, way);
        let cell = self.cell_mut(class);
        let (took, samples) = (
            &mut cell.took[way as usize],
            &mut cell.samples[way as usize],
        );
        *took = match *took {
            0 => nanos,
            // What the peer has to do first differs from one to the next.
            before if way == Way::Far => before.saturating_mul(7).saturating_add(nanos) / 8,
            // The first ones may have waited for others or for the scheduler, and none is faster than
            // it can be.
            before if nanos < before && *samples < first => nanos,
            // Later it is the mean that counts: a peer may be asleep each second time it is asked. What
            // takes far longer is no measure of its way, and counts as twice the mean.
            before if nanos < before => before - (before - nanos).div_ceil(8),
            before => before + ((nanos - before).min(before) / 8),
        };
        *samples = (*samples + 1).min(first);
    }

    /// What a copy takes, and how much less a hit does; half of it where hits are not known.
    pub(super) fn saving(&self, class: Class) -> Option<(u64, u64)> {
        let hit = self.cell(class).took[Way::Hit as usize];
        match (self.copy(class), hit) {
            (0, _) => None,
            (copy, 0) => Some((copy, copy / 2)),
            (copy, hit) => Some((copy, copy.saturating_sub(hit))),
        }
    }

    /// What a copy takes, or by the next shorter ones that are known is likely to take.
    pub(super) fn copying(&self, class: Class) -> Option<u64> {
        let known = |size: usize| {
            let like = [class.transient, !class.transient].map(|transient| Class {
                transient,
                size,
                ..class
            });
            let took = like.map(|like| self.cell(like).took[Way::Copied as usize]);
            took.into_iter().find(|took| *took > 0)
        };
        (0..=class.size)
            .rev()
            .find_map(|size| Some(known(size)?.saturating_mul(1 << (class.size - size))))
    }

    /// How much less what is registered there takes than a copy, and how much more what has to be
    /// registered first, if all are known.
    pub(super) fn rent(&self, class: Class) -> Option<(u64, u64)> {
        let [_, hit, far] = self.cell(class).took;
        let copy = self.copy(class);
        let known = copy > 0 && hit > 0 && far > 0;
        known.then(|| (copy.saturating_sub(hit), far.saturating_sub(hit)))
    }

    /// Whether a copy is known to take less than a hit.
    pub(super) fn copies_beat_hits(&self, class: Class) -> bool {
        let [copy, hit, _] = self.cell(class).took;
        copy > 0 && copy < hit
    }

    /// Whether more is to be known of what a way takes.
    pub(super) fn needs(&self, class: Class, way: Way) -> bool {
        let is_few = self.cell(class).samples[way as usize] < Self::first(class, way);
        is_few && !(way == Way::Copied && self.is_estimated(class))
    }

    /// What a copy takes, or is likely to where shorter ones say enough; zero if neither is known.
    fn copy(&self, class: Class) -> u64 {
        match self.cell(class).took[Way::Copied as usize] {
            0 => self.estimated_copy(class).unwrap_or(0),
            took => took,
        }
    }

    /// Whether what copies take is estimated by shorter ones.
    pub(super) fn is_estimated(&self, class: Class) -> bool {
        self.estimated_copy(class).is_some()
    }

    /// What a copy is likely to take of a class of which none was tried, if the next shorter ones of which some were
    /// take far longer than their hits. It says nothing where copies may be faster all the same: than the class's own
    /// hits, or than moves where there are no hits.
    fn estimated_copy(&self, class: Class) -> Option<u64> {
        let cell = self.cell(class);
        let [copied, hit, _] = cell.took;
        let only_moves = hit == 0 && !self.needs(class, Way::Far);
        if cell.must_try || copied > 0 || only_moves {
            return None;
        }
        let shorter = (class_of(TELLING)..class.size).rev();
        let mut known = shorter.map(|size| Class { size, ..class });
        let next = known.find(|it| self.cell(*it).took[Way::Copied as usize] > 0)?;
        let [copy, shorter_hit, _] = self.cell(next).took;
        let is_known = ![Way::Copied, Way::Hit]
            .map(|way| self.needs(next, way))
            .contains(&true);
        let is_outdone = is_known && copy >= shorter_hit.saturating_mul(OUTDONE);
        let likely = copy.saturating_mul(1 << (class.size - next.size));
        (is_outdone && hit < likely).then_some(likely)
    }

    /// A way is to be tried again, a few times.
    pub(super) fn forget(&mut self, class: Class, way: Way) {
        let left = Self::first(class, way) - Self::again(class, way);
        let cell = self.cell_mut(class);
        cell.must_try |= way == Way::Copied;
        // Also where there are none, because they were estimated: as many as were paid for.
        cell.samples[way as usize] = left;
    }

    /// How many samples a way has that is known.
    fn first(class: Class, way: Way) -> u32 {
        FIRST + Self::again(class, way) - AGAIN
    }

    /// How many operations try a way again.
    pub(super) fn again(class: Class, way: Way) -> u32 {
        match way == Way::Copied && class.size <= class_of(SHORT) {
            true => AGAIN + WAKING,
            false => AGAIN,
        }
    }

    /// The better and the worse of copies and hits and what they take, if both are known.
    pub(super) fn ways(&self, class: Class) -> Option<[(Way, u64); 2]> {
        let hit = self.cell(class).took[Way::Hit as usize];
        let copy = self.copy(class);
        let known = ![Way::Copied, Way::Hit]
            .map(|way| self.needs(class, way))
            .contains(&true);
        let ways = [(Way::Copied, copy), (Way::Hit, hit)];
        known.then(|| if copy < hit { ways } else { [ways[1], ways[0]] })
    }

    /// Whether a get is copied or goes the other way, which the peer takes part in.
    pub(super) fn pull(&mut self, class: Class, other: Way) -> Way {
        let cell = self.cell_mut(class);
        let ways = [Way::Copied, other];
        let [copy, pull] = ways.map(|way| cell.took[way as usize]);
        let untried = ways.map(|way| cell.samples[way as usize] < 2);
        let call = cell.pulls;
        cell.pulls = call.wrapping_add(1);
        match untried {
            [true, true] => return ways[call as usize % 2],
            [true, false] => return Way::Copied,
            [false, true] => return other,
            [false, false] => {}
        }
        let (better, worse) = match copy < pull {
            true => (Way::Copied, other),
            false => (other, Way::Copied),
        };
        match self.pays(class, copy.min(pull), copy.abs_diff(pull)) {
            true => worse,
            false => better,
        }
    }

    /// An operation of a class takes so long, and another way takes so much more: whether that was paid
    /// for by a part of what operations took, which is then spent.
    pub(super) fn pays(&mut self, class: Class, takes: u64, more: u64) -> bool {
        let saved = &mut self.cell_mut(class).saved;
        *saved = saved.saturating_add(takes / TRIALS);
        let can = *saved > more;
        if can {
            *saved = 0;
        }
        can
    }

    fn cell(&self, class: Class) -> &Cell {
        &self.cells[class.direction as usize][usize::from(class.transient)][class.size]
    }

    fn cell_mut(&mut self, class: Class) -> &mut Cell {
        &mut self.cells[class.direction as usize][usize::from(class.transient)][class.size]
    }
}

/// What moves took; until one was measured, what the conduit says of registrations.
#[derive(Debug)]
pub(super) struct Prices {
    /// Without and with something that is given up.
    took: [[u64; WIDTHS]; 2],
    /// What the conduit says.
    said: [[u64; WIDTHS]; 2],
    /// How many were measured of each, up to [`FIRST`].
    samples: [[u32; WIDTHS]; 2],
    /// What registering and deregistering so many takes whoever does it: a move that gives something up
    /// may be answered before it is done, but who does it has no time for the next operation.
    least: [u64; WIDTHS],
}

impl Prices {
    pub(super) fn new(register: CostModel, both: CostModel, pages: u64) -> Self {
        let prices = |cost: CostModel| {
            std::array::from_fn(|width| {
                let pages = (pages << width) as f64;
                (cost.per_op_ns + cost.per_page_ns * pages).clamp(1.0, 1e12) as u64
            })
        };
        let said = [prices(register), prices(both)];
        Self {
            took: said,
            said,
            samples: [[0; WIDTHS]; 2],
            least: said[1],
        }
    }

    /// What a move of so many buckets takes, beside operations that take so long.
    pub(super) fn of(&self, count: u64, evicts: bool, beside: u64) -> u64 {
        let width = width(count);
        let least = if evicts { self.least[width] } else { 0 };
        let row = usize::from(evicts);
        // They may have waited for what the peer deregistered before, or for the scheduler: what seems dear
        // is not tried again soon.
        let most = match self.samples[row][width] < FIRST {
            true => self.said[row][width].saturating_mul(FIRST_MOVES),
            false => u64::MAX,
        };
        (self.took[row][width].min(most)).max(least.saturating_sub(beside))
    }

    pub(super) fn took(&mut self, count: u64, evicts: bool, nanos: u64) {
        let (row, width) = (usize::from(evicts), width(count));
        let (took, samples) = (&mut self.took[row][width], &mut self.samples[row][width]);
        *took = match *took {
            _ if *samples == 0 => nanos,
            before if *samples < FIRST => nanos.min(before),
            before if nanos < before => before / 2 + nanos / 2,
            before => before + ((nanos - before).min(before) / 4),
        };
        *samples = (*samples + 1).min(FIRST);
    }
}

fn width(count: u64) -> usize {
    // Rounded up: what is dear is not thought cheap.
    (count.max(1).next_power_of_two().ilog2() as usize).min(WIDTHS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_a_class() {
        let of = |len| Class::new(Direction::Get, len, true).size;
        assert_eq!([of(0), of(1), of(8), of(u64::MAX)], [0, 0, 3, SIZES - 1]);
    }

    #[test]
    fn pulls_go_the_faster_way_nearly_always_and_find_out_what_changes() {
        let class = Class::new(Direction::Get, 1 << 16, false);
        let mut costs = Costs::default();
        let mut run = |calls: u32, [copy, pull]: [u64; 2]| {
            let mut copied = 0;
            for _ in 0..calls {
                let way = costs.pull(class, Way::Far);
                let took = if way == Way::Copied { copy } else { pull };
                costs.took(class, way, took);
                copied += u32::from(way == Way::Copied);
            }
            copied
        };
        assert!(run(1000, [10_000, 15_000]) > 950);
        assert!(run(4000, [20_000, 5000]) < 1000);
    }

    #[test]
    fn what_is_slow_each_second_time_takes_the_mean() {
        let class = Class::new(Direction::Put, 8, false);
        let mut costs = Costs::default();
        for at in 0..200 {
            costs.took(class, Way::Copied, if at % 2 == 0 { 60 } else { 500 });
        }
        let (copy, _) = costs.saving(class).expect("copies are known");
        assert!((150..400).contains(&copy), "{copy}");
        // What takes less now is believed within some operations.
        (0..40).for_each(|_| costs.took(class, Way::Copied, 60));
        assert!(costs.saving(class) < Some((70, 0)));
    }

    #[test]
    fn the_first_moves_that_waited_are_no_price() {
        let cost = CostModel {
            per_op_ns: 1000.0,
            per_page_ns: 0.0,
        };
        let mut prices = Prices::new(cost, cost, 1);
        prices.took(1, false, 50_000_000);
        assert!(prices.of(1, false, 0) <= 2000);
        prices.took(1, false, 30_000);
        prices.took(1, false, 50_000_000);
        assert_eq!(prices.of(1, false, 0), 30_000);
        (0..20).for_each(|_| prices.took(1, false, 20_000));
        assert!((10_000..=20_000).contains(&prices.of(1, false, 0)));
    }

    #[test]
    fn what_shorter_ones_say_enough_of_is_not_copied_to_find_out() {
        let class = |len| Class::new(Direction::Put, len, false);
        let (short, long) = (class(64 << 10), class(1 << 20));
        let mut costs = Costs::default();
        for _ in 0..FIRST {
            assert!(costs.needs(long, Way::Copied));
            costs.took(short, Way::Copied, 3000);
            costs.took(short, Way::Hit, 1000);
        }
        assert!(!costs.needs(long, Way::Copied) && costs.needs(long, Way::Hit));
        assert_eq!(costs.saving(long), Some((48_000, 24_000)));
        (0..FIRST).for_each(|_| costs.took(long, Way::Hit, 10_000));
        let ways = costs.ways(long);
        assert_eq!(ways, Some([(Way::Hit, 10_000), (Way::Copied, 48_000)]));
        // It is found out when that was paid for.
        costs.forget(long, Way::Copied);
        assert!(costs.needs(long, Way::Copied));
        costs.took(long, Way::Copied, 20_000);
        assert_eq!(costs.saving(long), Some((20_000, 10_000)));
        // Those that take little longer say nothing, nor do those that are far shorter; nor where the class's own hits
        // take longer than that, or where it has moves and no hits.
        for (way, nanos) in [(Way::Hit, 50_000), (Way::Far, 10_000)] {
            let mut costs = Costs::default();
            for _ in 0..FIRST {
                costs.took(short, Way::Copied, 3000);
                costs.took(short, Way::Hit, 1000);
                costs.took(long, way, nanos);
            }
            assert!(costs.needs(long, Way::Copied), "{way:?}");
        }
        for len in [8, 32 << 10] {
            let mut costs = Costs::default();
            for _ in 0..Costs::first(class(len), Way::Copied) {
                costs.took(class(len), Way::Copied, if len == 8 { 3000 } else { 1900 });
                costs.took(class(len), Way::Hit, 1000);
            }
            assert!(costs.needs(long, Way::Copied), "{len}");
        }
    }

    #[test]
    fn a_slow_sample_says_little() {
        let class = Class::new(Direction::Put, 8, false);
        let mut costs = Costs::default();
        costs.took(class, Way::Copied, 1_000_000);
        costs.took(class, Way::Copied, 1000);
        assert_eq!(costs.saving(class), Some((1000, 500)));
        costs.took(class, Way::Copied, 1_000_000);
        assert!(costs.saving(class) < Some((1200, 0)));
    }
}
