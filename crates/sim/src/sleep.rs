//! Waits in the conduit, and the wake word that announces them.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hydrant_conduit::{Sleeper, WakeWord};

use crate::{Sim, World, call::SimCall, time::picos, turns::ActorWait};

impl Sim {
    /// Waits in the conduit until news ends a wait of this kind.
    pub(crate) fn sleep(
        &self,
        call: &mut SimCall<'_>,
        sleeper: Sleeper,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) {
        // No need to look first: an earlier event ends the wait at once.
        call.charge(self.world.fixed.profile.host().poll.0);
        if sleeper != Sleeper::Nap {
            // `ready` must see the items that another thread is delivering.
            call.await_poller();
            if !call.own().inbox.is_empty() {
                return;
            }
        }
        let until = timeout
            .map(|timeout| call.clock().saturating_add(picos(timeout)))
            .filter(|until| *until != u64::MAX);
        let shown = match sleeper {
            Sleeper::Memory => WakeWord::APPLICATION | WakeWord::MEMORY,
            Sleeper::Application | Sleeper::Room => WakeWord::APPLICATION,
            Sleeper::Service | Sleeper::Nap => 0,
        };
        let wake_word = &self.world.fixed.segments[self.rank.index()].wake_word.bits;
        wake_word.fetch_or(shown, SeqCst);
        call.begin_wait(ActorWait::Sleep(sleeper));
        let tidy = Tidy {
            world: &self.world,
            actor: call.id(),
        };
        let is_ready = call.without_lock(&mut *ready);
        if !is_ready && !call.is_ended() {
            call.wait_for_news(until);
        }
        std::mem::forget(tidy);
        call.end_wait();
        self.show(call);
    }

    /// Stores the remaining sleepers in the wake word.
    fn show(&self, call: &mut SimCall<'_>) {
        let bits = call.turns.sleepers(self.rank.index());
        let wake_word = &self.world.fixed.segments[self.rank.index()].wake_word.bits;
        wake_word.store(bits, SeqCst);
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
