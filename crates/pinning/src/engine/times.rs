//! The times that the strategy `auto` chooses by.

use super::{Engine, TimedHit};
use crate::Direction;

impl Engine {
    /// Returns true if the engine can use the driver's time when an operation begins: `auto` does,
    /// now and then.
    pub fn wants_time(&self) -> bool {
        self.initiator.wants_time()
    }

    /// Returns true if the engine can use the time in any step, because it is timing something.
    pub fn is_timing(&self) -> bool {
        self.initiator.is_timing()
    }

    /// Tells the time before a step, in nanoseconds by any clock of the driver.
    pub fn tell_time(&mut self, now: u64) {
        self.initiator.tell_time(now);
    }

    /// Makes the engine attach the next miss at this address of a peer, if it can, whatever the
    /// cost. An atomic operation needs the registration, for example.
    pub fn want(&mut self, peer: u32, addr: u64) {
        let bucket = self.limits().geometry.bucket_of(addr);
        if let Some(choice) = self.initiator.choice() {
            choice.want(peer, bucket);
        }
    }

    /// Decides about an operation that [asked](crate::Hot::ask), holds both sides, and is waited for.
    /// `Some` lets it post at once; then report the time with [`record_hit_time`](Self::record_hit_time). `None`
    /// sends it to the engine.
    pub fn time_hit(&mut self, peer: u32, direction: Direction, len: u64) -> Option<TimedHit> {
        self.initiator.time_hit(peer, direction, len)
    }

    /// Reports the nanoseconds of a timed hit.
    pub fn record_hit_time(&mut self, timed: TimedHit, nanos: u64) {
        self.initiator.record_hit_time(timed, nanos);
        self.update_hot_flags();
    }
}
