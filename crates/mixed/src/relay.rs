//! Sleeping until either of two conduits has something.
//!
//! A thread sleeps in the intra-node conduit. What wakes it in the inter-node one is passed on by a
//! thread of the rank, the *relay*, which sleeps there for the same things, and wakes the
//! intra-node sleepers whenever it returns. While nobody sleeps for messages it only naps there,
//! and messages do not disturb it.
//!
//! Nothing is missed:
//!
//! - A sleeper goes to sleep only once the relay is *armed* for it: since then the inter-node
//!   conduit wakes the relay for all that the sleeper sleeps for. `ready` is asked after that.
//! - When the relay returns it counts, and then wakes the intra-node sleepers. Who saw it armed saw
//!   the count; who is asked whether it is ready after the intra-node wake word is set compares it.
//!   So either the count has changed, or the wake comes after the wake word was set.
//! - The relay sleeps again only when all that it woke are awake: what woke it is still there
//!   until they have looked, and would wake it again and again.
//! - Who finds that something came while it was not looking does not sleep. (It could wait for
//!   ever for the relay to be armed: with something there to be taken, that returns at once.)
//! - What a conduit sleeps for may depend on what it has delivered or begun (a reply that waits
//!   for room). So the relay is armed anew when the inter-node conduit has done something since.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use hydrant_conduit::{Conduit, Error, Rank, Sleeper};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long the relay sleeps at most where one kind of sleep does not cover all there are.
const TICK: Duration = Duration::from_millis(1);

/// Kinds of sleep, each for more than a [`Sleeper::Nap`].
const KINDS: [Sleeper; 4] = [
    Sleeper::Service,
    Sleeper::Application,
    Sleeper::Memory,
    Sleeper::Room,
];

/// What the relay and the sleepers share.
pub(crate) struct Relay {
    state: Mutex<State>,
    changed: Condvar,
    /// How often the relay has returned.
    returns: AtomicU64,
    /// How often the inter-node conduit has done what may change what it sleeps for.
    deeds: AtomicU64,
}

#[derive(Default)]
struct State {
    /// How many sleep, of each of the [`KINDS`].
    asleep: [usize; KINDS.len()],
    /// For what the inter-node conduit wakes the relay, while it is sure to.
    armed: Option<Armed>,
    /// How many, of the [`KINDS`], want the relay to be armed for them.
    arriving: usize,
    /// Whether the relay was asked to return and be armed anew.
    recalled: bool,
    /// How often it has returned otherwise: something came, or its time was over.
    heard: u64,
    /// How many are asleep in the intra-node conduit, or about to be, since the relay last
    /// returned.
    sleepers: usize,
    /// How many of those that it woke then are not yet awake, or have not yet turned back.
    waking: usize,
    stopped: bool,
}

/// A sleep of the relay.
#[derive(Clone, Copy)]
struct Armed {
    covered: [bool; KINDS.len()],
    deeds: u64,
}

impl Relay {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            returns: AtomicU64::new(0),
            deeds: AtomicU64::new(0),
        }
    }

    /// The inter-node conduit has delivered or begun something.
    #[inline]
    pub(crate) fn note(&self) {
        self.deeds.fetch_add(1, Release);
    }

    /// [`Sleep::wait`](hydrant_conduit::Sleep::wait) on both conduits.
    pub(crate) fn wait(
        &self,
        intra: &dyn Conduit,
        inter: &dyn Conduit,
        sleeper: Sleeper,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) {
        let kind = KINDS.iter().position(|kind| *kind == sleeper);
        let mut state = self.state();
        if let Some(kind) = kind {
            state.asleep[kind] += 1;
            state.arriving += 1;
        }
        let mut deeds = None;
        let heard = state.heard;
        while !state.stopped {
            let latest = *deeds.get_or_insert_with(|| self.deeds.load(Acquire));
            match (state.armed, kind) {
                (Some(_), None) => break,
                (Some(armed), Some(kind)) if armed.covers(kind, latest) => break,
                (_, Some(kind)) if state.heard != heard => {
                    state.asleep[kind] -= 1;
                    state.arriving -= 1;
                    return self.is_awake(state);
                }
                // It comes back with a new look at who sleeps.
                (Some(_), _) => {
                    state.armed = None;
                    state.recalled = true;
                    drop(state);
                    inter.wake(inter.rank());
                    state = self.state();
                }
                (None, _) => {
                    self.changed.wait(&mut state);
                }
            }
        }
        let seen = self.returns.load(SeqCst);
        state.arriving -= usize::from(kind.is_some());
        state.sleepers += 1;
        drop(state);
        intra.wait(sleeper, timeout, &mut || {
            ready() || self.returns.load(SeqCst) != seen
        });
        let mut state = self.state();
        if let Some(kind) = kind {
            state.asleep[kind] -= 1;
        }
        if self.returns.load(SeqCst) == seen {
            state.sleepers -= 1;
            return;
        }
        self.is_awake(state);
    }

    /// One whom the relay woke has seen it.
    fn is_awake(&self, mut state: MutexGuard<'_, State>) {
        state.waking -= 1;
        if state.waking == 0 {
            self.changed.notify_all();
        }
    }

    /// What the relay's thread does.
    fn serve(&self, intra: &dyn Conduit, inter: &dyn Conduit) {
        loop {
            let (asleep, deeds) = {
                let mut state = self.state();
                while state.waking > 0 && !state.stopped {
                    self.changed.wait(&mut state);
                }
                if state.stopped {
                    return;
                }
                (state.asleep, self.deeds.load(Acquire))
            };
            let (sleeper, covered) = widest(&asleep);
            let whole = asleep
                .iter()
                .zip(covered)
                .all(|(n, covered)| *n == 0 || covered);
            let armed = Armed {
                // What is not covered is looked after often.
                covered: covered.map(|covered| covered || !whole),
                deeds,
            };
            let mut outdated = false;
            inter.wait(sleeper, (!whole).then_some(TICK), &mut || {
                let mut state = self.state();
                outdated = state.stopped
                    || (0..KINDS.len()).any(|kind| state.asleep[kind] > 0 && !armed.covered[kind]);
                if !outdated {
                    state.armed = Some(armed);
                    self.changed.notify_all();
                }
                outdated
            });
            {
                let mut state = self.state();
                state.armed = None;
                if !std::mem::take(&mut state.recalled) && !outdated {
                    state.heard += 1;
                    state.waking += state.arriving;
                    self.changed.notify_all();
                }
                state.waking += std::mem::take(&mut state.sleepers);
                self.returns.fetch_add(1, SeqCst);
            }
            intra.wake(intra.rank());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Armed {
    /// Whether a sleeper of this kind, who knows of so many deeds, is woken by it.
    fn covers(&self, kind: usize, deeds: u64) -> bool {
        // More deeds than the sleeper knows of are looked at, too.
        self.covered[kind] && self.deeds >= deeds
    }
}

/// The sleep that is for most of what there are sleepers for, and what it is for.
fn widest(asleep: &[usize; KINDS.len()]) -> (Sleeper, [bool; KINDS.len()]) {
    let [service, application, memory, room] = asleep.map(|count| count > 0);
    if room {
        (Sleeper::Room, [true, true, false, true])
    } else if memory {
        (Sleeper::Memory, [true, true, true, false])
    } else if application || service {
        (Sleeper::Application, [true, true, false, false])
    } else {
        (Sleeper::Nap, [false; KINDS.len()])
    }
}

/// The relay's thread; it ends when this is dropped.
pub(crate) struct Thread {
    relay: Arc<Relay>,
    inter: Arc<dyn Conduit>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    pub(crate) fn start(
        relay: &Arc<Relay>,
        intra: &Arc<dyn Conduit>,
        inter: &Arc<dyn Conduit>,
        rank: Rank,
    ) -> Result<Self, Error> {
        let thread = thread::Builder::new()
            .name(format!("hydrant-relay-{rank}"))
            .spawn({
                let (relay, intra, inter) =
                    (Arc::clone(relay), Arc::clone(intra), Arc::clone(inter));
                move || relay.serve(&*intra, &*inter)
            })
            .map_err(|cause| Error::system("starting the relay thread", cause))?;
        Ok(Self {
            relay: Arc::clone(relay),
            inter: Arc::clone(inter),
            thread: Some(thread),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.relay.state().stopped = true;
        self.relay.changed.notify_all();
        self.inter.wake(self.inter.rank());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
