//! The choice of `auto`: the route of an operation that missed. It weighs the recent times of each
//! route, the operation's size and the pattern of misses.
//!
//! The choice is a question of renting or buying. A copied operation pays, beside the cost of a
//! hit, a *rent*; attaching its buckets has a *price*. A bucket is attached when it has recently
//! paid about as much rent as its price, or when it soon will. Misses in sequence are expected to go
//! on as long again. While firehoses are free, the price takes no other bucket's place. Then a
//! miss is attached at once, as long as enough attached buckets are [used again](reuse).
//!
//! So a full table stays as it is unless another bucket is used far more. Of random uses over more
//! buckets than there are firehoses, as many hit as possible. A sequence that passes by takes the
//! places of its own buckets.
//!
//! The driver's clock measures the time of each route, on a few operations of each size. Copies and
//! moves are measured as they come, and hits while [`Hot`] sends them to the engine. The slower
//! route is tried again when a small part of the time since pays for it.

mod bounded_map;
mod costs;
mod meter;
mod peer_load;
mod pulled;
mod rents;
mod reuse;
#[cfg(test)]
mod tests;
mod weigh;

use std::sync::Arc;

use crate::{Config, Direction, Hot, Run};
use costs::{MovePrices, RouteCosts};
pub(super) use costs::{OperationClass, PieceRoute};
use hydrant_base::recent::Savings;
pub(super) use meter::Meter;
pub(super) use peer_load::PeerLoad;
pub(super) use pulled::PulledMemory;
use rents::Rents;
pub(super) use reuse::Reuse;
pub(super) use weigh::{Miss, MissDecision};

/// The number of operations that go to the engine, hit or not, to measure a class. Operations of
/// other classes are among them.
const ASKING: u32 = 64;
/// One piece in so many is timed, once its class is known.
const TIMED: u64 = 16;
/// The number of operations that go to the engine, hit or not, when somebody wants a bucket. Those
/// of other threads are among them.
const WANTING: u32 = 8;
/// The most buckets that are wanted at once, whatever they cost.
const MOST_WANTED: usize = 64;

/// The state of `auto`.
#[derive(Debug)]
pub(super) struct RouteChoice {
    hot: Arc<Hot>,
    /// True if the network reads one-sidedly; never changed.
    reads: bool,
    costs: RouteCosts,
    prices: MovePrices,
    rents: Rents,
    pub(super) meter: Meter,
    /// The number of pieces whose route was chosen.
    pieces: u64,
    /// True if the class of the last piece needs more samples.
    unsettled: bool,
    /// The number of timed pieces and moves in flight.
    timed: u32,
    /// The nanoseconds that may be spent on a trial move.
    saved: Savings,
    /// The buckets to attach whatever they cost, because the NIC is to change a word of them.
    wanted: Vec<(u32, u64)>,
}

impl RouteChoice {
    /// Makes a choice; `firehoses` is their number at each peer.
    pub(super) fn new(hot: Arc<Hot>, config: &Config, firehoses: u64) -> Self {
        let pages = (config.bucket / config.page.max(1)) as u64;
        Self {
            hot,
            reads: config.reads,
            costs: RouteCosts::default(),
            prices: MovePrices::new(config.register, config.cost, pages),
            rents: Rents::new(firehoses),
            meter: Meter::default(),
            pieces: 0,
            unsettled: true,
            timed: 0,
            saved: Savings::default(),
            wanted: Vec::new(),
        }
    }

    /// Returns true if the time is useful to a piece that begins in the next step.
    pub(super) fn wants_time(&self) -> bool {
        // Where the peer takes part in gets, the time of each route matters.
        self.unsettled
            || !self.reads
            || self.timed > 0
            || self.pieces.is_multiple_of(TIMED)
            || self.hot.asking() > 0
    }

    /// Returns true if a piece or a move is being timed.
    pub(super) fn is_timing(&self) -> bool {
        self.timed > 0
    }

    /// Counts a piece. Returns its start if it is to be timed, which it is not while its peer is
    /// busy.
    pub(super) fn begin(
        &mut self,
        class: OperationClass,
        is_free: impl Fn() -> bool,
    ) -> Option<u64> {
        let timed = self.wants_time() && self.meter.is_running() && is_free();
        self.pieces += 1;
        self.unsettled = self.costs.needs(class, PieceRoute::Copied);
        if self.pieces.is_multiple_of(TIMED) || self.hot.is_due() {
            self.retry_slower_route(class);
        }
        timed.then(|| self.start())
    }

    /// Tries the slower route of a class again, if the savings pay for it, or after many hits that
    /// nobody timed.
    fn retry_slower_route(&mut self, class: OperationClass) {
        if class.transient || self.pulls(class) {
            return;
        }
        let is_due = self.hot.take_due();
        let Some([better, worse]) = self.costs.ranked_routes(class) else {
            if is_due {
                self.hot.set_asking(ASKING);
            }
            return;
        };
        let more = (worse.1 - better.1).saturating_mul(RouteCosts::retries(class, worse.0).into());
        // An estimated copy may take as long as many hits, so its trial must be paid for.
        let is_free = is_due && better.0 == PieceRoute::Hit && !self.costs.is_estimated(class);
        if self.costs.spend_savings(class, TIMED * better.1, more) || is_free {
            self.costs.forget(class, worse.0);
            self.hot.set_asking(ASKING);
        }
    }

    fn start(&mut self) -> u64 {
        self.timed += 1;
        self.meter.shared()
    }

    /// Ends the timing of a piece that began at `begun`. Returns its time, or `None` if it was not
    /// timed.
    pub(super) fn stop(&mut self, begun: Option<u64>) -> Option<u64> {
        let begun = begun?;
        self.timed = self.timed.saturating_sub(1);
        Some(self.meter.shared().saturating_sub(begun).max(1))
    }

    /// Returns the start of a move, if it is to be timed.
    pub(super) fn start_move(&mut self) -> Option<u64> {
        if !self.wants_time() || !self.meter.is_running() {
            return None;
        }
        self.timed += 1;
        Some(self.meter.idle())
    }

    /// Ends the timing of a move that began at `begun`. Returns its time, or `None` if it was not
    /// timed.
    pub(super) fn stop_move(&mut self, begun: Option<u64>) -> Option<u64> {
        let begun = begun?;
        self.timed = self.timed.saturating_sub(1);
        Some(self.meter.idle().saturating_sub(begun).max(1))
    }

    /// Notes the time of an operation by its route.
    pub(super) fn record_time(&mut self, class: OperationClass, route: PieceRoute, nanos: u64) {
        self.costs.record(class, route, nanos);
        if !class.transient && !self.pulls(class) {
            let copies = self.costs.copies_beat_hits(class);
            self.hot.set_copied(class.direction, class.size, copies);
        }
    }

    /// Returns true if the peer writes the data of these operations.
    fn pulls(&self, class: OperationClass) -> bool {
        class.direction == Direction::Get && !self.reads
    }

    /// Notes the time of a move that brought so many buckets.
    pub(super) fn record_move(&mut self, count: u64, evicts: bool, nanos: u64) {
        self.prices.record(count, evicts, nanos);
    }

    /// Has hits of a class measured, if they are not known, after buckets were attached for it.
    pub(super) fn measure_hits(&mut self, class: OperationClass) {
        if self.costs.needs(class, PieceRoute::Hit) {
            self.hot.set_asking(ASKING);
        }
    }

    /// Returns true if hits of a class need more samples.
    pub(super) fn needs_hit(&self, class: OperationClass) -> bool {
        self.costs.needs(class, PieceRoute::Hit)
    }

    /// Counts an operation that came to the engine to be measured.
    pub(super) fn count_measured(&mut self, class: OperationClass) {
        let left = self.hot.asking();
        if left > 0 {
            let needs =
                [PieceRoute::Hit, PieceRoute::Copied].map(|route| self.costs.needs(class, route));
            self.hot
                .set_asking(if needs == [false; 2] { 0 } else { left - 1 });
        }
    }

    /// Wants a bucket attached, whatever it costs.
    pub(super) fn want(&mut self, peer: u32, bucket: u64) {
        if !self.wanted.contains(&(peer, bucket)) {
            // A bucket that was attached otherwise stays in the list until it is the oldest.
            if self.wanted.len() == MOST_WANTED {
                self.wanted.remove(0);
            }
            self.wanted.push((peer, bucket));
        }
        // Where all operations of its size are copied, one must still come to the engine to attach
        // the bucket.
        self.hot.set_asking(self.hot.asking().max(WANTING));
    }

    /// Forgets the rents of buckets that a peer takes back.
    pub(super) fn forget_revoked(&mut self, peer: u32, run: Run) {
        self.rents.forget(peer, run);
    }

    /// The class of an operation.
    pub(super) fn class(direction: Direction, len: u64, transient: bool) -> OperationClass {
        OperationClass::new(direction, len, transient)
    }

    /// Returns true if hits must ask first.
    pub(super) fn asks(&self) -> bool {
        self.hot.asking() > 0 || self.hot.copies_some() || self.hot.is_due()
    }

    /// Forgets the pieces and moves that were timed, because their peer is lost.
    pub(super) fn forget_timed(&mut self) {
        self.timed = 0;
    }
}
