//! The actors as which a thread takes actor, remembered by the thread.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use crate::{
    World,
    turns::{ActorId, Seat},
};

struct ThreadActor {
    world: Weak<World>,
    id: u64,
    rank: usize,
    actor: ActorId,
}

impl Drop for ThreadActor {
    fn drop(&mut self) {
        if let Some(world) = self.world.upgrade() {
            world.retire(self.actor);
        }
    }
}

#[derive(Default)]
struct ThreadActors {
    seat: Option<Arc<Seat>>,
    actors: Vec<ThreadActor>,
}

thread_local! {
    static ACTORS: RefCell<ThreadActors> = RefCell::default();
}

/// Returns the calling thread's actor for a rank; the thread joins if it has none yet.
///
/// Destructors of an ending thread cannot remember the actor, so the thread joins anew with each
/// call.
pub(crate) fn actor(world: &World, rank: usize) -> (ActorId, Arc<Seat>) {
    let known = ACTORS.try_with(|known| {
        let mut known = known.borrow_mut();
        let seat = Arc::clone(known.seat.get_or_insert_with(Seat::here));
        let found = (known.actors.iter()).find(|actor| actor.id == world.id && actor.rank == rank);
        if let Some(actor) = found {
            return (actor.actor, seat, Vec::new());
        }
        let (over, left) = (std::mem::take(&mut known.actors).into_iter())
            .partition(|actor| actor.world.strong_count() == 0);
        known.actors = left;
        let actor = join(world, rank, Arc::clone(&seat));
        known.actors.push(ThreadActor {
            world: world.weak(),
            id: world.id,
            rank,
            actor,
        });
        (actor, seat, over)
    });
    match known {
        Ok((actor, seat, _over)) => (actor, seat),
        Err(_) => {
            let seat = Seat::here();
            (join(world, rank, Arc::clone(&seat)), seat)
        }
    }
}

fn join(world: &World, rank: usize, seat: Arc<Seat>) -> ActorId {
    let mut state = world.lock();
    let clock = state.now.max(state.ranks[rank].clock);
    state.turns.join(rank, seat, clock)
}
