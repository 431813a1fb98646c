//! The choice of `auto`: which way an operation goes that is no hit, from what each way took lately,
//! its size and what was seen.
//!
//! It is a question of renting or buying. An operation that is copied pays, beside what a hit would
//! have cost, a *rent*; attaching its buckets has a *price*. What has paid about as much rent lately
//! as it would cost is attached, and so is what will: misses in sequence will be followed by as many
//! more. While firehoses are free, the price buys no other bucket's place, and what is missed is
//! attached at once, for as long as enough of what was attached is [used again](reuse).
//!
//! So a table that is full is left as it is unless something else is used far more: of uses at random
//! over more than there are firehoses, as many are hits as there can be. What is attached for
//! a sequence that comes by takes its place from the sequence itself.
//!
//! What a way takes is measured with the driver's clock, by a few operations of each size: those that
//! are copied and the moves as they come, hits while [`Hot`] sends them to the engine. The way that
//! takes longer is tried again when a small part of the time since pays for that.

mod calm;
mod costs;
mod meter;
mod places;
mod pulled;
mod rents;
mod reuse;

use std::sync::Arc;

use crate::{Config, Direction, Hot, Run};
pub(super) use calm::Calm;
pub(super) use costs::{Class, Way};
use costs::{Costs, Prices, TRIALS};
pub(super) use meter::Meter;
pub(super) use pulled::Pulled;
use rents::Rents;
pub(super) use reuse::Reuse;

/// Operations that go to the engine, hit or not, when something of a class is not known: other classes'
/// are among them.
const ASKING: u32 = 64;
/// What was missed so often lately takes the place of what was not used; what was used makes room for
/// what has paid so many times its price.
const OFTEN: u64 = 8;
/// One piece in so many is timed, once its class is known.
const TIMED: u64 = 16;
/// Operations that go to the engine, hit or not, when somebody wants a bucket: other threads' are among them.
const WANTING: u32 = 8;
/// Most buckets that somebody wants attached whatever it costs.
const MOST_WANTED: usize = 64;

/// A miss that may be attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss {
    pub(super) class: Class,
    /// The peer, and the first bucket that is missing.
    pub(super) place: (u32, u64),
    /// Buckets that are missing.
    pub(super) count: u64,
    /// Buckets that would be attached: those, and what will be missed next if they are of a sequence.
    pub(super) width: u64,
    /// Whether others must be given up for them.
    pub(super) evicts: bool,
    /// Whether those have not been used for a while.
    pub(super) is_next_unused: bool,
    /// Whether what is attached to the peer's memory is likely used again before that goes.
    pub(super) is_reused: bool,
}

/// Which way a miss goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Copy,
    Attach {
        /// Whether it is the next to be given up.
        passes: bool,
    },
}

/// What `auto` knows.
#[derive(Debug)]
pub(super) struct Choice {
    hot: Arc<Hot>,
    /// Whether the network reads one-sidedly; never changed.
    reads: bool,
    costs: Costs,
    prices: Prices,
    rents: Rents,
    pub(super) meter: Meter,
    /// Pieces that chose.
    pieces: u64,
    /// Whether the class of the last piece is not known well yet.
    unsettled: bool,
    /// Pieces and moves under way that are timed.
    timed: u32,
    /// Nanoseconds that may be spent on a move that finds out what moves take.
    saved: u64,
    /// Buckets that are to be attached whatever it costs: the NIC is to change a word of them.
    wanted: Vec<(u32, u64)>,
}

impl Choice {
    /// How many `firehoses` there are at a peer.
    pub(super) fn new(hot: Arc<Hot>, config: &Config, firehoses: u64) -> Self {
        let pages = (config.bucket / config.page.max(1)) as u64;
        Self {
            hot,
            reads: config.reads,
            costs: Costs::default(),
            prices: Prices::new(config.register, config.cost, pages),
            rents: Rents::new(firehoses),
            meter: Meter::default(),
            pieces: 0,
            unsettled: true,
            timed: 0,
            saved: 0,
            wanted: Vec::new(),
        }
    }

    /// Whether the time is of use if a piece begins in the step to come.
    pub(super) fn wants_time(&self) -> bool {
        // Where the peer takes part in gets, what each takes is worth knowing.
        self.unsettled
            || !self.reads
            || self.timed > 0
            || self.pieces.is_multiple_of(TIMED)
            || self.hot.asking() > 0
    }

    /// Whether something is being timed.
    pub(super) fn is_timing(&self) -> bool {
        self.timed > 0
    }

    /// A piece begins. When, if it is to be timed; not if its peer is not free to answer.
    pub(super) fn begin(&mut self, class: Class, is_free: impl Fn() -> bool) -> Option<u64> {
        let timed = self.wants_time() && self.meter.is_running() && is_free();
        self.pieces += 1;
        self.unsettled = self.costs.needs(class, Way::Copied);
        if self.pieces.is_multiple_of(TIMED) || self.hot.is_due() {
            self.look_again(class);
        }
        timed.then(|| self.start())
    }

    /// The way that operations of a class do not go is tried again, if that was paid for, or if there
    /// were many hits that nobody timed.
    fn look_again(&mut self, class: Class) {
        if class.transient || self.pulls(class) {
            return;
        }
        let is_due = self.hot.take_due();
        let Some([better, worse]) = self.costs.ways(class) else {
            if is_due {
                self.hot.set_asking(ASKING);
            }
            return;
        };
        let more = (worse.1 - better.1).saturating_mul(Costs::again(class, worse.0).into());
        if self.costs.pays(class, TIMED * better.1, more) || (is_due && better.0 == Way::Hit) {
            self.costs.forget(class, worse.0);
            self.hot.set_asking(ASKING);
        }
    }

    fn start(&mut self) -> u64 {
        self.timed += 1;
        self.meter.shared()
    }

    /// A piece that was timed from `begun` on is over: what it took. `None` if it was not timed.
    pub(super) fn stop(&mut self, begun: Option<u64>) -> Option<u64> {
        let begun = begun?;
        self.timed = self.timed.saturating_sub(1);
        Some(self.meter.shared().saturating_sub(begun).max(1))
    }

    /// A move begins. When, if it is to be timed.
    pub(super) fn start_move(&mut self) -> Option<u64> {
        if !self.wants_time() || !self.meter.is_running() {
            return None;
        }
        self.timed += 1;
        Some(self.meter.idle())
    }

    /// A move that was timed from `begun` on is over: what it took. `None` if it was not timed.
    pub(super) fn stop_move(&mut self, begun: Option<u64>) -> Option<u64> {
        let begun = begun?;
        self.timed = self.timed.saturating_sub(1);
        Some(self.meter.idle().saturating_sub(begun).max(1))
    }

    /// An operation took so many nanoseconds that way.
    pub(super) fn took(&mut self, class: Class, way: Way, nanos: u64) {
        self.costs.took(class, way, nanos);
        if !class.transient && !self.pulls(class) {
            let copies = self.costs.copies_beat_hits(class);
            self.hot.set_copied(class.direction, class.size, copies);
        }
    }

    /// Whether the peer writes what these operations get.
    fn pulls(&self, class: Class) -> bool {
        class.direction == Direction::Get && !self.reads
    }

    /// A move of so many buckets took so many nanoseconds, and brought them.
    pub(super) fn moved(&mut self, count: u64, evicts: bool, nanos: u64) {
        self.prices.took(count, evicts, nanos);
    }

    /// What was attached for a class is there: what its hits take is found out, if it is not known.
    pub(super) fn landed(&mut self, class: Class) {
        if self.costs.needs(class, Way::Hit) {
            self.hot.set_asking(ASKING);
        }
    }

    /// Whether it is not known well what hits of a class take.
    pub(super) fn needs_hit(&self, class: Class) -> bool {
        self.costs.needs(class, Way::Hit)
    }

    /// An operation came to the engine that might have gone without.
    pub(super) fn asked(&mut self, class: Class) {
        let left = self.hot.asking();
        if left > 0 {
            let needs = [Way::Hit, Way::Copied].map(|way| self.costs.needs(class, way));
            self.hot
                .set_asking(if needs == [false; 2] { 0 } else { left - 1 });
        }
    }

    /// Somebody wants a bucket attached whatever it costs.
    pub(super) fn want(&mut self, peer: u32, bucket: u64) {
        if !self.wanted.contains(&(peer, bucket)) {
            // What came without being weighed stays in the list until it is the oldest.
            if self.wanted.len() == MOST_WANTED {
                self.wanted.remove(0);
            }
            self.wanted.push((peer, bucket));
        }
        // Where all of its size are copied, the operation that is to attach it comes to the engine yet.
        self.hot.set_asking(self.hot.asking().max(WANTING));
    }

    /// A peer takes buckets back.
    pub(super) fn taken_back(&mut self, peer: u32, run: Run) {
        self.rents.forget(peer, run);
    }

    /// Which way a miss goes.
    pub(super) fn weigh(&mut self, miss: &Miss) -> Verdict {
        let Miss {
            class,
            place,
            count,
            width,
            evicts,
            is_next_unused,
            is_reused,
        } = *miss;
        if let Some(at) = self.wanted.iter().position(|wanted| *wanted == place) {
            self.wanted.swap_remove(at);
            return Verdict::Attach { passes: false };
        }
        let Some((copy, saving)) = self.costs.saving(class) else {
            // It is copied until that is known, unless it is likely to be used again.
            return match !evicts && is_reused {
                true => Verdict::Attach { passes: false },
                false => Verdict::Copy,
            };
        };
        if saving == 0 {
            // There may be nothing that is a hit.
            self.asked(class);
            // Now and then it is found out whether that is still so.
            self.saved = self.saved.saturating_add(copy / TRIALS);
            let price = self.price(class, width, evicts, copy);
            let tries = self.costs.needs(class, Way::Hit) && self.can_try(price);
            return match tries {
                true => Verdict::Attach { passes: evicts },
                false => Verdict::Copy,
            };
        }
        let price = self.price(class, width, evicts, copy);
        let paid = self.rents.of(place);
        self.rents.pay(place, saving);
        let soon = saving.saturating_mul(width.div_ceil(count.max(1)));
        self.saved = self.saved.saturating_add(copy / TRIALS);
        if !evicts {
            // What is attached is used again before it goes, or this is.
            if is_reused || paid.saturating_add(soon) >= price / 2 {
                return Verdict::Attach { passes: false };
            }
        }
        // It has a better claim to a place than what is not used any more, if that is no accident.
        let (comes_again, is_often) = (paid >= saving / 2, paid >= OFTEN.saturating_mul(saving));
        let keeps = paid >= price || (is_next_unused && comes_again);
        let worth = match width > count || (is_next_unused && is_often) {
            true => price,
            false => price.saturating_mul(OFTEN),
        };
        // What costs less than a copy is worth it even once.
        if soon >= price || paid.saturating_add(soon) >= worth {
            return Verdict::Attach { passes: !keeps };
        }
        match self.can_try(price) {
            true => Verdict::Attach { passes: evicts },
            false => Verdict::Copy,
        }
    }

    /// What attaching so many buckets for an operation of a class adds to what it takes, which is `copy` if
    /// it is copied.
    fn price(&self, class: Class, width: u64, evicts: bool, copy: u64) -> u64 {
        let price = self.prices.of(width, evicts, copy);
        match self.costs.rent(class) {
            Some((_, more)) if evicts => price.max(more),
            _ => price,
        }
    }

    /// Whether a move of that price was paid for by a part of what operations took; then it is spent.
    fn can_try(&mut self, price: u64) -> bool {
        let can = self.saved >= price;
        if can {
            self.saved = 0;
        }
        can
    }

    /// Whether a piece is copied rather than waiting for a move under way that brings what it needs.
    pub(super) fn overtakes(&self, class: Class) -> bool {
        (self.costs.saving(class))
            .is_none_or(|(_, saving)| saving < self.prices.of(1, false, 0) / 2)
    }

    /// Whether a piece is copied though all it needs of the peer is there.
    pub(super) fn copies_hit(&mut self, class: Class) -> bool {
        match class.transient {
            // Nobody else finds out what these take.
            true => self.costs.pull(class, Way::Hit) == Way::Copied,
            false => {
                let needs = [Way::Hit, Way::Copied].map(|way| self.costs.needs(class, way));
                self.asked(class);
                match needs {
                    [true, _] => false,
                    [_, true] => true,
                    _ => self.costs.copies_beat_hits(class),
                }
            }
        }
    }

    /// Whether what misses of a class is copied because hits take longer, as is known well.
    pub(super) fn copies_all(&self, class: Class) -> bool {
        let needs = [Way::Hit, Way::Copied].map(|way| self.costs.needs(class, way));
        needs == [false; 2] && self.costs.copies_beat_hits(class)
    }

    /// Which way a get goes that the peer may write here: `near` if its memory, from `place` on, is likely
    /// registered there. `room`: if it could stay so beside what else is, whether it is likely used again.
    pub(super) fn pull(
        &mut self,
        class: Class,
        place: (u32, u64),
        near: bool,
        room: Option<bool>,
    ) -> Way {
        if near {
            return self.costs.pull(class, Way::Hit);
        }
        if self.costs.copies_beat_hits(class) {
            return self.costs.pull(class, Way::Far);
        }
        let paid = self.rents.of(place);
        // What is registered beside what is there is deregistered by nobody: it need not come often.
        if room.is_some_and(|is_reused| is_reused || paid > 0) {
            return Way::Far;
        }
        let way = self.costs.pull(class, Way::Far);
        match (way, self.costs.rent(class)) {
            (Way::Copied, Some((rent, price))) => {
                self.rents.pay(place, rent);
                if paid + rent >= price { Way::Far } else { way }
            }
            _ => way,
        }
    }

    /// The class of an operation.
    pub(super) fn class(direction: Direction, len: u64, transient: bool) -> Class {
        Class::new(direction, len, transient)
    }

    /// Whether hits are to ask first.
    pub(super) fn asks(&self) -> bool {
        self.hot.asking() > 0 || self.hot.copies_some() || self.hot.is_due()
    }

    /// A peer is gone with all that was timed with it.
    pub(super) fn forget_timed(&mut self) {
        self.timed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CostModel, Engine, Strategy};

    const COST: CostModel = CostModel {
        per_op_ns: 20_000.0,
        per_page_ns: 300.0,
    };

    fn choice() -> Choice {
        let mut config = Config::firehose_paper(0, 2);
        config.strategy = Strategy::Auto;
        (config.cost, config.register) = (COST, COST);
        let engine = Engine::new(config.clone()).expect("the paper's");
        Choice::new(Arc::clone(engine.hot()), &config, 1024)
    }

    fn put(len: u64) -> Class {
        Choice::class(Direction::Put, len, false)
    }

    fn miss(class: Class, bucket: u64, evicts: bool) -> Miss {
        Miss {
            class,
            place: (1, bucket),
            count: 1,
            width: 1,
            evicts,
            is_next_unused: false,
            is_reused: true,
        }
    }

    /// A choice that knows what copies and hits of a class take.
    fn knowing(class: Class, copy: u64, hit: u64) -> Choice {
        let mut choice = choice();
        for _ in 0..8 {
            choice.took(class, Way::Copied, copy);
            choice.took(class, Way::Hit, hit);
        }
        choice
    }

    fn attaches(verdict: Verdict) -> bool {
        verdict != Verdict::Copy
    }

    #[test]
    fn what_is_missed_is_attached_while_firehoses_are_free() {
        assert!(attaches(choice().weigh(&miss(put(8), 7, false))));
        let mut known = knowing(put(8), 3000, 2000);
        assert!(attaches(known.weigh(&miss(put(8), 7, false))));
    }

    #[test]
    fn where_a_hit_takes_longer_everything_is_copied() {
        let mut choice = knowing(put(8), 700, 3500);
        assert!((0..10_000).all(|at| !attaches(choice.weigh(&miss(put(8), at, at % 2 == 0)))));
        assert!(choice.asks());
    }

    #[test]
    fn the_way_that_takes_longer_is_tried_again_for_a_small_part_of_the_time() {
        let (copy, hit, pieces) = (700, 3500, 100_000);
        let mut choice = knowing(put(8), copy, hit);
        let mut tried = 0;
        for _ in 0..pieces {
            choice.begin(put(8), || true);
            if !choice.copies_hit(put(8)) {
                choice.took(put(8), Way::Hit, hit);
                tried += 1;
            }
        }
        assert!(
            tried > 0 && tried * (hit - copy) <= pieces * copy / TRIALS,
            "{tried}"
        );
        // When hits take less by then that is seen.
        let to_come = (0..pieces).find(|_| {
            choice.begin(put(8), || true);
            let hits = !choice.copies_hit(put(8));
            if hits {
                choice.took(put(8), Way::Hit, 100);
            }
            hits && !choice.costs.needs(put(8), Way::Hit)
        });
        assert!(to_come.is_some());
        assert!(!choice.copies_hit(put(8)));
    }

    #[test]
    fn many_hits_that_nobody_timed_are_compared_with_copies_again() {
        let mut choice = knowing(put(8), 3000, 2000);
        choice.begin(put(8), || true);
        assert!(!choice.copies_hit(put(8)) && !choice.asks());
        choice.hot.look_again();
        assert!(choice.asks());
        choice.begin(put(8), || true);
        assert!(choice.copies_hit(put(8)));
        (0..2).for_each(|_| choice.took(put(8), Way::Copied, 1000));
        assert!(choice.copies_hit(put(8)) && choice.asks());
    }

    #[test]
    fn copies_are_tried_until_a_peer_that_slept_is_awake() {
        let mut choice = knowing(put(8), 50_000, 3000);
        choice.hot.look_again();
        choice.begin(put(8), || true);
        let mut tried = 0;
        while choice.copies_hit(put(8)) && tried < 100 {
            choice.took(put(8), Way::Copied, if tried < 4 { 20_000 } else { 1000 });
            tried += 1;
        }
        assert_eq!(tried, 100, "copies are faster once the peer is awake");
        assert!(choice.hot.copies(Direction::Put, 8));
    }

    #[test]
    fn hits_of_a_class_that_nothing_was_attached_for_are_found_out() {
        let mut choice = knowing(put(8), 3000, 2000);
        choice.hot.look_again();
        choice.begin(put(4096), || true);
        assert!(choice.asks());
        assert!(!choice.copies_hit(put(4096)));
    }

    #[test]
    fn a_full_table_changes_for_what_is_used_often_and_hardly_else() {
        let mut choice = knowing(put(8), 3000, 2000);
        let moves = (0..4000).filter(|at| attaches(choice.weigh(&miss(put(8), *at, true))));
        // What finds out what a move costs is a small part of what copies take.
        let (moves, price) = (moves.count() as u64, 20_300);
        assert!(
            moves > 0 && moves * price <= 4000 * 3000 / TRIALS,
            "{moves}"
        );
        // One that comes again and again is attached, for good, when it has paid for it.
        let verdicts: Vec<_> = (0..400)
            .map(|_| choice.weigh(&miss(put(8), 1 << 20, true)))
            .collect();
        let kept = Verdict::Attach { passes: false };
        let first = verdicts.iter().position(|verdict| *verdict == kept);
        assert!(
            first.is_some_and(|first| (20..300).contains(&first)),
            "{first:?}"
        );
    }

    #[test]
    fn what_is_not_used_makes_room_sooner() {
        let mut choice = knowing(put(8), 3000, 2000);
        let miss = Miss {
            is_next_unused: true,
            ..miss(put(8), 9, true)
        };
        let first = (0..100).position(|_| attaches(choice.weigh(&miss)));
        assert!(
            first.is_some_and(|first| (8..30).contains(&first)),
            "{first:?}"
        );
    }

    #[test]
    fn what_comes_by_in_sequence_is_attached_wide_and_passes() {
        let mut choice = knowing(put(8), 3000, 2000);
        let narrow = miss(put(8), 9, true);
        assert!(!attaches(choice.weigh(&narrow)));
        let wide = Miss {
            width: 64,
            ..miss(put(8), 10, true)
        };
        assert_eq!(choice.weigh(&wide), Verdict::Attach { passes: true });
    }

    #[test]
    fn what_costs_less_to_register_than_to_copy_is_never_copied() {
        let class = put(1 << 20);
        let mut choice = knowing(class, 600_000, 300_000);
        let miss = Miss {
            count: 256,
            width: 256,
            ..miss(class, 9, true)
        };
        // The first time it passes: it may be the only one.
        assert_eq!(choice.weigh(&miss), Verdict::Attach { passes: true });
    }

    #[test]
    fn a_long_operation_is_copied_in_one_go_where_all_of_its_class_are() {
        let long = put(1 << 19);
        assert!(!choice().copies_all(long));
        assert!(!knowing(long, 300_000, 150_000).copies_all(long));
        let mut choice = knowing(long, 20_000, 90_000);
        assert!(choice.copies_all(long));
        // While what hits take is found out again, it is cut as what hits is.
        choice.costs.forget(long, Way::Hit);
        assert!(!choice.copies_all(long));
    }

    #[test]
    fn what_is_wanted_is_attached_whatever_it_costs() {
        let mut choice = knowing(put(8), 700, 3500);
        choice.want(1, 5);
        let asked = choice.hot.ask(Direction::Put, 8);
        assert!(choice.asks() && asked == crate::Ask::Engine, "{asked:?}");
        assert!(attaches(choice.weigh(&miss(put(8), 5, true))));
        assert!(!attaches(choice.weigh(&miss(put(8), 5, true))));
        // Others that were wanted and came otherwise are in nobody's way.
        (0..1000).for_each(|bucket| choice.want(1, 100 + bucket));
        choice.want(1, 5);
        assert!(attaches(choice.weigh(&miss(put(8), 5, true))));
    }

    #[test]
    fn nothing_is_attached_at_once_where_little_is_used_again() {
        let mut choice = knowing(put(8), 3000, 2000);
        let miss = |bucket, is_reused| Miss {
            is_reused,
            ..miss(put(8), bucket, false)
        };
        assert!(!attaches(choice.weigh(&miss(7, false))));
        assert!(attaches(choice.weigh(&miss(8, true))));
    }
}
