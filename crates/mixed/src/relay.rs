//! Sleep until either of two conduits has an event.
//!
//! A thread sleeps in the intra-node conduit. Another thread of the rank, the *relay*, sleeps in
//! the inter-node one for the same events. It wakes the intra-node sleepers whenever it returns.
//! While no thread sleeps for messages, the relay only naps, and messages do not wake it.
//!
//! No event is missed:
//!
//! - A sleeper sleeps only once the relay is *armed* for it. From then on the inter-node conduit
//!   wakes the relay for all events of the sleeper. `ready` is called after that.
//! - When the relay returns, it increments a counter and then wakes the intra-node sleepers. A
//!   sleeper that saw the relay armed has read the counter. It compares the counter in `ready`,
//!   after the intra-node wake word is set. So either the counter has changed, or the wake comes
//!   after the wake word was set.
//! - The relay sleeps again only when all sleepers that it woke are awake. Until they have polled,
//!   the same event would wake it again and again.
//! - A sleeper does not sleep if an event came before the relay was armed for it. (It could
//!   otherwise wait for ever: with a pending event, the relay's sleep returns at once.)
//! - The events of a sleep may depend on the conduit's own activity, such as a reply that waits for
//!   room. The relay is therefore armed anew after activity of the inter-node conduit.

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

/// The longest sleep of the relay if one kind of sleep does not cover all sleepers.
const TICK: Duration = Duration::from_millis(1);

/// The kinds of sleep, each for more events than a [`Sleeper::Nap`].
const KINDS: [Sleeper; 4] = [
    Sleeper::Service,
    Sleeper::Application,
    Sleeper::Memory,
    Sleeper::Room,
];

/// The state shared by the relay and the sleepers.
pub(crate) struct Relay {
    state: Mutex<RelayState>,
    changed: Condvar,
    /// The number of returns of the relay.
    returns: AtomicU64,
    /// The number of activities of the inter-node conduit that may change the events of its sleep.
    activity: AtomicU64,
}

#[derive(Default)]
struct RelayState {
    /// The number of sleepers of each of the [`KINDS`].
    asleep: [usize; KINDS.len()],
    /// The events for which the inter-node conduit reliably wakes the relay.
    armed: Option<ArmedSleep>,
    /// The number of sleepers of the [`KINDS`] that wait for the relay to be armed for them.
    arriving: usize,
    /// True if the relay was asked to return and be armed anew.
    recalled: bool,
    /// The number of its other returns: an event came, or its time was over.
    heard: u64,
    /// The number of threads that sleep in the intra-node conduit, or are about to, since the relay
    /// last returned.
    sleepers: usize,
    /// The number of threads woken then that are not awake yet, or have not noticed the event yet.
    waking: usize,
    stopped: bool,
}

/// The coverage of one sleep of the relay.
#[derive(Clone, Copy)]
struct ArmedSleep {
    covered: [bool; KINDS.len()],
    activity: u64,
}

impl Relay {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            returns: AtomicU64::new(0),
            activity: AtomicU64::new(0),
        }
    }

    /// Notes that the inter-node conduit has delivered or posted something.
    #[inline]
    pub(crate) fn note_activity(&self) {
        self.activity.fetch_add(1, Release);
    }

    /// Implements [`Sleep::wait`](hydrant_conduit::Sleep::wait) on both conduits.
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
        let mut activity = None;
        let heard = state.heard;
        while !state.stopped {
            let latest = *activity.get_or_insert_with(|| self.activity.load(Acquire));
            match (state.armed, kind) {
                (Some(_), None) => break,
                (Some(armed), Some(kind)) if armed.covers(kind, latest) => break,
                (_, Some(kind)) if state.heard != heard => {
                    state.asleep[kind] -= 1;
                    state.arriving -= 1;
                    return self.count_awake(state);
                }
                // The relay returns, and is armed for the present sleepers.
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
        self.count_awake(state);
    }

    /// Counts a thread that the relay woke as awake.
    fn count_awake(&self, mut state: MutexGuard<'_, RelayState>) {
        state.waking -= 1;
        if state.waking == 0 {
            self.changed.notify_all();
        }
    }

    /// Runs the relay's thread.
    fn serve(&self, intra: &dyn Conduit, inter: &dyn Conduit) {
        loop {
            let (asleep, activity) = {
                let mut state = self.state();
                while state.waking > 0 && !state.stopped {
                    self.changed.wait(&mut state);
                }
                if state.stopped {
                    return;
                }
                (state.asleep, self.activity.load(Acquire))
            };
            let (sleeper, covered) = widest(&asleep);
            let whole = asleep
                .iter()
                .zip(covered)
                .all(|(n, covered)| *n == 0 || covered);
            let armed = ArmedSleep {
                // Short sleeps cover all kinds.
                covered: covered.map(|covered| covered || !whole),
                activity,
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

    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock()
    }
}

impl ArmedSleep {
    /// Returns true if this sleep of the relay covers a sleeper of this kind that knows of
    /// `activity`.
    fn covers(&self, kind: usize, activity: u64) -> bool {
        // More recent activity than the sleeper's is covered, too.
        self.covered[kind] && self.activity >= activity
    }
}

/// Returns the sleep that covers the most sleepers, and the kinds that it covers.
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

/// The relay's thread, which ends when this is dropped.
pub(crate) struct RelayThread {
    relay: Arc<Relay>,
    inter: Arc<dyn Conduit>,
    thread: Option<JoinHandle<()>>,
}

impl RelayThread {
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

impl Drop for RelayThread {
    fn drop(&mut self) {
        self.relay.state().stopped = true;
        self.relay.changed.notify_all();
        self.inter.wake(self.inter.rank());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
