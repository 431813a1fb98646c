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
#[cfg(test)]
mod tests;
mod weigh;

use std::sync::Arc;

use crate::{Config, Direction, Hot, Run};
pub(super) use calm::Calm;
pub(super) use costs::{Class, Way};
use costs::{Costs, Prices};
pub(super) use meter::Meter;
pub(super) use pulled::Pulled;
use rents::Rents;
pub(super) use reuse::Reuse;
pub(super) use weigh::{Miss, Verdict};

/// Operations that go to the engine, hit or not, when something of a class is not known: other classes'
/// are among them.
const ASKING: u32 = 64;
/// One piece in so many is timed, once its class is known.
const TIMED: u64 = 16;
/// Operations that go to the engine, hit or not, when somebody wants a bucket: other threads' are among them.
const WANTING: u32 = 8;
/// Most buckets that somebody wants attached whatever it costs.
const MOST_WANTED: usize = 64;

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
        // What is only estimated may take as long as many hits, and is tried when that was paid for.
        let is_free = is_due && better.0 == Way::Hit && !self.costs.is_estimated(class);
        if self.costs.pays(class, TIMED * better.1, more) || is_free {
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
