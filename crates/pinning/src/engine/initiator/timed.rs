//! What a hit takes, by `auto`: measured where hits go by, past the engine.
//!
//! Through the engine it would take what the engine takes besides, which on a slow machine is as much as the
//! network takes. Then copies, which all go through it, would seem as good as hits.

use super::Initiator;
use crate::{
    Direction,
    engine::choice::{OperationClass, PieceRoute, RouteChoice},
};

/// A hit that is timed by whoever posts it.
#[derive(Clone, Copy, Debug)]
#[must_use = "what it took is told to the engine"]
pub struct TimedHit {
    peer: u32,
    class: OperationClass,
    /// Disturbances of the peer when it began.
    began: u32,
}

impl Initiator {
    /// A hit had to ask: whether it goes straight through, and is timed. Not while anything else is
    /// under way, or the peer is busy.
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

    /// It took so many nanoseconds.
    pub(in crate::engine) fn hit_took(&mut self, timed: TimedHit, nanos: u64) {
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
