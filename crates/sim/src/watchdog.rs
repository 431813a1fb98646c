//! Looks after turns that do not come back by themselves.
//!
//! A thread that has the turn may block outside the conduit: it joins another thread, or waits
//! for a lock that another has. When nothing happened for a while and that thread sleeps, its
//! turn is taken away until it calls again. One that computes keeps it, however long that takes,
//! so that an ordinary program has one result.

use std::{
    fs,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use hydrant_conduit::Error;

use crate::{World, turns::Phase};

/// Between two looks.
const TICK: Duration = Duration::from_millis(10);
/// Looks at a thread that sleeps before its turn is taken away.
const ASLEEP: u32 = 2;
/// Looks at ranks that did not call yet before the others begin without them.
const MISSING: u32 = 200;
/// Looks at a world in which nothing can happen before it is called a deadlock.
const STUCK: u32 = 20;

pub(crate) fn start(world: &Arc<World>) -> Result<(), Error> {
    let world = Arc::downgrade(world);
    thread::Builder::new()
        .name("hydrant-sim-watch".to_owned())
        .spawn(move || watch(&world))
        .map(drop)
        .map_err(|cause| Error::system("starting the watchdog of a simulation", cause))
}

#[derive(Default)]
struct Seen {
    calls: u64,
    idle: u32,
    asleep: u32,
}

fn watch(world: &Weak<World>) {
    let mut seen = Seen::default();
    loop {
        thread::sleep(TICK);
        let Some(world) = world.upgrade() else {
            return;
        };
        look(&world, &mut seen);
    }
}

fn look(world: &World, seen: &mut Seen) {
    let mut state = world.lock();
    let turns = &mut state.turns;
    if turns.calls != seen.calls {
        *seen = Seen {
            calls: turns.calls,
            ..Seen::default()
        };
        return;
    }
    seen.idle += 1;
    if !turns.open {
        if seen.idle >= MISSING && turns.anyone_ready() {
            turns.open = true;
            world.pass_on(state);
        }
        return;
    }
    if let Some(holder) = turns.running {
        let actor = &turns.actors[holder];
        if !actor.seated || !sleeps(actor.seat.tid) {
            seen.asleep = 0;
            return;
        }
        seen.asleep += 1;
        if seen.asleep >= ASLEEP && (turns.anyone_ready() || turns.anyone_waits()) {
            turns.drop_turn(holder, Phase::Away);
            *seen = Seen::default();
            world.pass_on(state);
        }
        return;
    }
    let stuck = turns.anyone_waits() && !turns.anyone_ready() && !turns.anyone_away();
    if stuck && seen.idle >= STUCK && state.events.is_empty() {
        for id in state.turns.waiters() {
            state.turns.actors[id].stranded = true;
            let clock = state.turns.actors[id].clock;
            state.turns.make_ready(id, clock);
        }
        *seen = Seen::default();
        world.pass_on(state);
    }
}

/// Whether a thread sleeps; one that is gone does for ever.
fn sleeps(tid: i32) -> bool {
    match fs::read_to_string(format!("/proc/self/task/{tid}/stat")) {
        // The name in parentheses may hold anything; the state comes after it.
        Ok(stat) => {
            (stat.rsplit_once(") ")).is_some_and(|(_, rest)| rest.starts_with(['S', 'X', 'Z']))
        }
        Err(_) => true,
    }
}
