//! What a thread remembers: as which actors it takes part.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use crate::{
    World,
    turns::{ActorId, Seat},
};

struct Part {
    world: Weak<World>,
    id: u64,
    rank: usize,
    actor: ActorId,
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(world) = self.world.upgrade() {
            world.retire(self.actor);
        }
    }
}

#[derive(Default)]
struct Parts {
    seat: Option<Arc<Seat>>,
    parts: Vec<Part>,
}

thread_local! {
    static PARTS: RefCell<Parts> = RefCell::default();
}

/// The calling thread as an actor of a rank; it joins if it is none yet.
///
/// Within the destructors of a thread that ends there is nowhere to remember it: it then joins
/// anew with each call.
pub(crate) fn actor(world: &World, rank: usize) -> (ActorId, Arc<Seat>) {
    let known = PARTS.try_with(|parts| {
        let mut parts = parts.borrow_mut();
        let seat = Arc::clone(parts.seat.get_or_insert_with(Seat::here));
        let found = (parts.parts.iter()).find(|part| part.id == world.id && part.rank == rank);
        if let Some(part) = found {
            return (part.actor, seat, Vec::new());
        }
        let (over, left) = (std::mem::take(&mut parts.parts).into_iter())
            .partition(|part| part.world.strong_count() == 0);
        parts.parts = left;
        let actor = join(world, rank, Arc::clone(&seat));
        parts.parts.push(Part {
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
