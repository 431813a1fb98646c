//! A job's machine: all ranks of this process, in one virtual time.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hydrant_conduit::Rank;

use crate::{
    Profile, Statistics,
    state::{Fixed, State},
    time::duration,
    turns::ActorId,
};

/// The machine of a job: every rank is a [`Sim`](crate::Sim) of it, driven by threads of this process.
pub struct World {
    pub(crate) fixed: Fixed,
    /// Under a lock of std, which allocates nothing: who waits for it depends on real time, and
    /// nothing that a rank allocates may.
    pub(crate) state: Mutex<State>,
    /// Tells worlds apart in what threads remember.
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

    /// The machine's figures.
    pub fn profile(&self) -> &Profile {
        &self.fixed.profile
    }

    /// What a rank did so far.
    pub fn statistics(&self, rank: Rank) -> Statistics {
        let state = self.lock();
        (state.ranks.get(rank.index())).map_or_else(Statistics::default, |rank| Statistics {
            registering: duration(rank.registering),
            computing: duration(rank.computing),
            ..rank.statistics
        })
    }

    /// The time of what happened last, on any rank.
    pub fn now(&self) -> Duration {
        duration(self.lock().now)
    }

    /// A number that follows from everything that happened and when: two runs that have the
    /// same did the same.
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn weak(&self) -> std::sync::Weak<World> {
        self.this.clone()
    }

    /// Nobody has the turn: it goes to the earliest.
    pub(crate) fn pass_on(&self, mut state: MutexGuard<'_, State>) {
        if state.turns.running.is_some() {
            return;
        }
        let next = state.advance(&self.fixed);
        let seat = next.map(|id| Arc::clone(&state.turns.actors[id].seat));
        drop(state);
        if let Some(seat) = seat {
            seat.go();
        }
    }

    /// An actor's thread has ended.
    pub(crate) fn retire(&self, actor: ActorId) {
        let mut state = self.lock();
        state.turns.retire(actor);
        self.pass_on(state);
    }

    /// A rank's part ends without a turn: the game has not begun, or nobody stands for it.
    pub(crate) fn end_early(&self, rank: Rank) -> bool {
        let mut state = self.lock();
        if state.turns.open {
            return false;
        }
        state.end(&self.fixed, rank.index(), false);
        // Perhaps it was the last that the others waited for.
        self.pass_on(state);
        true
    }

    /// Whether the rank's part is over.
    pub(crate) fn is_over(&self, rank: Rank) -> bool {
        self.lock().ranks[rank.index()].over.is_some()
    }

    /// One conduit less stands for the rank: whether it was the last.
    pub(crate) fn let_go(&self, rank: Rank) -> bool {
        let handles = &mut self.lock().ranks[rank.index()].handles;
        *handles -= 1;
        *handles == 0
    }
}
