//! A call into the conduit by a thread that has the turn.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, MutexGuard},
    thread,
};

use hydrant_conduit::Rank;

use crate::{
    World,
    options::Died,
    seats,
    state::{RankState, SimState},
    time::VirtualTime,
    turns::{Actor, ActorId, ActorPhase, ActorWait, Seat},
};

pub(crate) struct SimCall<'w> {
    pub(crate) world: &'w World,
    /// `None` only while the lock is released.
    state: Option<MutexGuard<'w, SimState>>,
    me: ActorId,
    seat: Arc<Seat>,
    pub(crate) rank: usize,
}

impl Deref for SimCall<'_> {
    type Target = SimState;

    fn deref(&self) -> &SimState {
        match &self.state {
            Some(state) => state,
            None => unreachable!("the lock is only released within a method"),
        }
    }
}

impl DerefMut for SimCall<'_> {
    fn deref_mut(&mut self) -> &mut SimState {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the lock is only released within a method"),
        }
    }
}

impl World {
    /// Begins a call of the calling thread; returns once the thread has the turn.
    pub(crate) fn call(&self, rank: Rank) -> SimCall<'_> {
        let rank = rank.index();
        let (me, seat) = seats::actor(self, rank);
        let mut call = SimCall {
            world: self,
            state: Some(self.lock()),
            me,
            seat,
            rank,
        };
        call.take_turn();
        call
    }
}

impl World {
    /// Makes the calling thread an actor of the rank. The actor is in the queue for the turn, and
    /// its next call waits for that turn.
    pub(crate) fn take_part(&self, rank: Rank) {
        let (me, _) = seats::actor(self, rank.index());
        let mut state = self.lock();
        let actor = &state.turns.actors[me];
        if actor.phase == ActorPhase::Away {
            let clock = actor.clock;
            state.turns.make_ready(me, clock);
        }
    }
}

impl SimCall<'_> {
    pub(crate) fn actor(&mut self) -> &mut Actor {
        let me = self.me;
        &mut self.turns.actors[me]
    }

    pub(crate) fn own(&mut self) -> &mut RankState {
        let rank = self.rank;
        &mut self.ranks[rank]
    }

    /// The calling thread's clock.
    pub(crate) fn clock(&self) -> VirtualTime {
        self.turns.actors[self.me].clock
    }

    /// Keeps the caller busy for this time.
    pub(crate) fn charge(&mut self, time: VirtualTime) {
        let clock = self.clock() + time;
        self.set_clock(clock);
    }

    /// Advances the caller's clock to this time; it never goes back.
    pub(crate) fn set_clock(&mut self, clock: VirtualTime) {
        let actor = self.actor();
        actor.clock = actor.clock.max(clock);
        let clock = actor.clock;
        let own = self.own();
        own.clock = own.clock.max(clock);
    }

    /// Lets everything happen that is earlier than the caller's clock.
    pub(crate) fn sync(&mut self) {
        let clock = self.clock();
        let attends = self.own().attends_from(clock);
        self.set_clock(attends);
        let clock = self.clock();
        let due = self.events.next_time().is_some_and(|time| time <= clock);
        if due || self.turns.before(self.me) {
            self.queue();
            self.pass_turn();
        }
        let clock = self.clock();
        self.now = self.now.max(clock);
        self.actor().looked = clock;
        self.unwind_if_dead();
    }

    /// Like [`sync`](Self::sync), but returns early if the inbox holds something, or if the caller
    /// looked less than a `moment` ago. Nothing takes less than a moment to arrive, and passing the
    /// turn on is the largest cost of a simulation. While another thread of the rank delivers, the
    /// caller always syncs, because items arrive only by that thread's turn.
    pub(crate) fn sync_unless_fresh(&mut self) {
        let fresh = self.clock() - self.actor().looked < self.world.fixed.moment;
        if !fresh && (self.own().inbox.is_empty() || self.own().polling) {
            self.sync();
        }
    }

    /// Waits until the innermost of the caller's waits ends, or until a time.
    ///
    /// # Panics
    /// If nothing will ever end the wait: the program deadlocks.
    pub(crate) fn wait_for_news(&mut self, until: Option<VirtualTime>) {
        let me = self.me;
        let number = self.actor().number;
        if let Some(until) = until {
            (self.events).at(until, crate::event::SimEvent::Timer(me, number));
        }
        self.turns.drop_turn(me, ActorPhase::Waiting);
        self.pass_turn();
        let actor = self.actor();
        actor.looked = actor.clock;
        actor.number += 1;
        if std::mem::take(&mut actor.stranded) {
            let text = self.deadlock();
            self.state = None;
            panic!("{text}");
        }
        self.unwind_if_dead();
    }

    /// Runs a callback of the layer above without the lock. The callback may call the conduit.
    pub(crate) fn without_lock<R>(&mut self, act: impl FnOnce() -> R) -> R {
        self.state = None;
        let result = act();
        self.state = Some(self.world.lock());
        self.take_turn();
        result
    }

    /// Begins a wait; see [`ActorWait`].
    pub(crate) fn begin_wait(&mut self, wait: ActorWait) {
        self.actor().waits.push((wait, false));
    }

    /// True if news ended the innermost wait.
    pub(crate) fn is_ended(&self) -> bool {
        (self.turns.actors[self.me].waits.last()).is_some_and(|(_, ended)| *ended)
    }

    pub(crate) fn end_wait(&mut self) {
        self.actor().waits.pop();
    }

    pub(crate) fn id(&self) -> ActorId {
        self.me
    }

    /// Queues for the turn, at the caller's clock.
    fn queue(&mut self) {
        let (me, clock) = (self.me, self.clock());
        self.turns.make_ready(me, clock);
    }

    /// Takes the turn, unless the caller has it already.
    fn take_turn(&mut self) {
        self.turns.calls += 1;
        if self.turns.running == Some(self.me) {
            if !std::mem::replace(&mut self.actor().seated, true) {
                // The caller was given the turn outside the conduit; the giver rings its seat, or
                // is about to.
                self.seat.wait();
            }
            return;
        }
        if let Some(other) = self.turns.running
            && Arc::ptr_eq(&self.turns.actors[other].seat, &self.seat)
        {
            // The same thread holds the turn for another rank.
            self.turns.drop_turn(other, ActorPhase::Away);
        }
        // Time went on while the caller was away.
        let now = self.now;
        self.set_clock(now);
        self.queue();
        self.pass_turn();
        self.unwind_if_dead();
    }

    /// Gives the turn to the earliest actor, and waits until the caller is the earliest.
    fn pass_turn(&mut self) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        let mut mine = false;
        let mut other = None;
        if state.turns.running.is_none()
            && let Some(next) = state.advance(&self.world.fixed)
        {
            if next == self.me {
                mine = true;
            } else {
                other = Some(Arc::clone(&state.turns.actors[next].seat));
            }
        }
        if !mine {
            drop(state);
            if let Some(other) = other {
                other.grant();
            }
            self.seat.wait();
            state = self.world.lock();
        }
        state.turns.actors[self.me].seated = true;
        state.turns.calls += 1;
        self.state = Some(state);
    }

    /// Unwinds if a fault killed the rank.
    fn unwind_if_dead(&mut self) {
        if self.own().dead && !thread::panicking() {
            let rank = Rank(self.rank as u32);
            self.state = None;
            std::panic::resume_unwind(Box::new(Died(rank)));
        }
    }

    /// Describes every wait of a deadlock.
    fn deadlock(&self) -> String {
        let mut text = format!(
            "the program deadlocks: at {:?} of virtual time every rank waits and nothing is in flight",
            crate::time::duration(self.now)
        );
        let mut actors: Vec<&Actor> = self.turns.actors.iter().collect();
        actors.sort_by_key(|actor| actor.rank);
        for actor in actors {
            if let (
                ActorPhase::Waiting | ActorPhase::Ready | ActorPhase::Running,
                Some((wait, _)),
            ) = (actor.phase, actor.waits.last())
            {
                let since = crate::time::duration(actor.clock);
                let has_come = self
                    .world
                    .fixed
                    .standings
                    .has_come_to_end(Rank(actor.rank as u32));
                let at_end = if has_come {
                    ", at the end of the job"
                } else {
                    ""
                };
                text += &format!(
                    "\n  rank {} since {since:?}: {}{at_end}",
                    actor.rank,
                    wait.describe()
                );
            }
        }
        for rank in self.turns.missing() {
            text += &format!("\n  rank {rank} never called");
        }
        for rank in 0..self.ranks.len() {
            for (peer, unhandled, kept, held) in self.open_business(rank) {
                text += &format!(
                    "\n  rank {rank} and rank {peer}: {unhandled} requests not handled, \
                     {kept} replies and {held} requests kept back"
                );
            }
        }
        text
    }
}
