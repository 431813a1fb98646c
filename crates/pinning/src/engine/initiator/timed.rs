//! The time of a hit under `auto`, measured on the fast path.
//!
//! A hit through the engine would include the engine's time, which on a slow machine is as long as
//! the network's. Copies, which all go through the engine, would then seem as good as hits.

use super::Initiator;
use crate::{
    Direction,
    engine::choice::{OperationClass, PieceRoute, RouteChoice},
};

/// A hit that the posting thread times.
#[derive(Clone, Copy, Debug)]
#[must_use = "what it took is told to the engine"]
pub struct TimedHit {
    peer: u32,
    class: OperationClass,
    /// The epoch of the peer's load at its start.
    began: u32,
}

impl Initiator {
    /// Decides if a hit that had to ask is posted at once and timed. It is not while anything else
    /// is in flight, or while the peer is busy.
    pub(in crate::engine) fn time_hit(
        &mut self,
        peer: u32,
        direction: Direction,
        len: u64,
    ) -> Option<TimedHit> {
        let choice = self.choice.as_ref()?;
        let class = RouteChoice::class(direction, len, false);
        let table = self.tables.get(&peer)?;
        let is_calm = self.pieces.is_empty() && table.asked.is_empty() && table.load.is_free();
        (is_calm && choice.needs_hit(class)).then(|| TimedHit {
            peer,
            class,
            began: table.load.epoch(),
        })
    }

    /// Records the nanoseconds of a timed hit.
    pub(in crate::engine) fn record_hit_time(&mut self, timed: TimedHit, nanos: u64) {
        let (Some(choice), Some(table)) = (&mut self.choice, self.tables.get_mut(&timed.peer))
        else {
            return;
        };
        if self.pieces.is_empty() && table.load.finish(timed.began) {
            choice.record_time(timed.class, PieceRoute::Hit, nanos.max(1));
        }
        choice.count_measured(timed.class);
    }
}
