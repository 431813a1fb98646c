//! The machine of a job: all ranks of this process, in one virtual time.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hydrant_conduit::Rank;

use crate::{
    Profile, Statistics,
    state::{SimShared, SimState},
    time::duration,
    turns::ActorId,
};

/// The machine of a job: every rank is a [`Sim`](crate::Sim) of it, driven by threads of this process.
pub struct World {
    pub(crate) fixed: SimShared,
    /// Under a lock of std, which allocates nothing. Real time decides which thread waits for the
    /// lock, so the lock must not disturb the ranks' allocations.
    pub(crate) state: Mutex<SimState>,
    /// Tells worlds apart in the threads' memory of their actors.
    pub(crate) id: u64,
    pub(crate) this: std::sync::Weak<World>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, ranks) = (self.fixed.profile.name(), self.fixed.segments.len());
        write!(f, "World({name}, {ranks} ranks)")
    }
}

impl World {
    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.fixed.segments.len() as u32
    }

    /// The machine's profile.
    pub fn profile(&self) -> &Profile {
        &self.fixed.profile
    }

    /// Counts of a rank's work so far.
    pub fn statistics(&self, rank: Rank) -> Statistics {
        let state = self.lock();
        (state.ranks.get(rank.index())).map_or_else(Statistics::default, |rank| Statistics {
            registering: duration(rank.registering),
            computing: duration(rank.computing),
            ..rank.statistics
        })
    }

    /// The time of the last event, on any rank.
    pub fn now(&self) -> Duration {
        duration(self.lock().now)
    }

    /// A hash of all events and their times: equal digests mean equal runs.
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn weak(&self) -> std::sync::Weak<World> {
        self.this.clone()
    }

    /// Gives the turn to the earliest actor, if nobody has it.
    pub(crate) fn pass_on(&self, mut state: MutexGuard<'_, SimState>) {
        if state.turns.running.is_some() {
            return;
        }
        let next = state.advance(&self.fixed);
        let seat = next.map(|id| Arc::clone(&state.turns.actors[id].seat));
        drop(state);
        if let Some(seat) = seat {
            seat.grant();
        }
    }

    /// An actor's thread has ended.
    pub(crate) fn retire(&self, actor: ActorId) {
        let mut state = self.lock();
        state.turns.retire(actor);
        self.pass_on(state);
    }

    /// Ends a rank without a turn; returns false if the job has begun and a turn is needed.
    pub(crate) fn end_early(&self, rank: Rank) -> bool {
        let mut state = self.lock();
        if state.turns.open {
            return false;
        }
        state.end(&self.fixed, rank.index(), false);
        // This rank may be the last that the others waited for.
        self.pass_on(state);
        true
    }

    /// True if the rank is over.
    pub(crate) fn is_over(&self, rank: Rank) -> bool {
        self.lock().ranks[rank.index()].over.is_some()
    }

    /// Drops one conduit of the rank; returns true if it was the last.
    pub(crate) fn drop_handle(&self, rank: Rank) -> bool {
        let handles = &mut self.lock().ranks[rank.index()].handles;
        *handles -= 1;
        *handles == 0
    }
}
