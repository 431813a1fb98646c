//! Waiting in the conduit, and the bell that shows it.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hydrant_conduit::{Door, Sleeper};

use crate::{Sim, World, call::Call, time::picos, turns::Wait};

impl Sim {
    /// Waits in the conduit until something happens that ends a wait of this kind.
    pub(crate) fn sleep(
        &self,
        call: &mut Call<'_>,
        sleeper: Sleeper,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) {
        // No need to look before: what happened earlier ends the wait at once.
        call.charge(self.world.fixed.profile.host().poll.0);
        if sleeper != Sleeper::Nap {
            // What another thread was handing up is there for `ready` to see.
            call.await_poller();
            if !call.own().inbox.is_empty() {
                return;
            }
        }
        let until = timeout
            .map(|timeout| call.clock().saturating_add(picos(timeout)))
            .filter(|until| *until != u64::MAX);
        let shown = match sleeper {
            Sleeper::Memory => Door::APPLICATION | Door::MEMORY,
            Sleeper::Application | Sleeper::Room => Door::APPLICATION,
            Sleeper::Service | Sleeper::Nap => 0,
        };
        let bell = &self.world.fixed.segments[self.rank.index()].door.bell;
        bell.fetch_or(shown, SeqCst);
        call.begin_wait(Wait::Sleep(sleeper));
        let tidy = Tidy {
            world: &self.world,
            actor: call.id(),
        };
        let is_ready = call.outside(&mut *ready);
        if !is_ready && !call.is_told() {
            call.rest(until);
        }
        std::mem::forget(tidy);
        call.end_wait();
        self.show(call);
    }

    /// Shows on the bell which sleepers are left.
    fn show(&self, call: &mut Call<'_>) {
        let bits = call.turns.sleepers(self.rank.index());
        let bell = &self.world.fixed.segments[self.rank.index()].door.bell;
        bell.store(bits, SeqCst);
    }
}

/// Ends the wait of a thread that panicked in it.
struct Tidy<'w> {
    world: &'w World,
    actor: usize,
}

impl Drop for Tidy<'_> {
    fn drop(&mut self) {
        self.world.lock().turns.actors[self.actor].waits.pop();
    }
}
