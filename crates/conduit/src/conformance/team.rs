//! Ranks as threads of this process.

use std::{
    any::Any,
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

use crate::{Backoff, Conduit, Message, Rank, Sent, Sink, Sleeper};

use super::{Fixture, GUARD, log::Log};

/// The number of failed polls with a spin after each, and then with a yield after each. Later ones
/// are followed by a sleep.
const SPINS: u32 = 15;
const YIELDS: u32 = 184;

/// Starts a job and checks the ranks of its conduits.
pub(super) fn start(fixture: &dyn Fixture, ranks: u32) -> Vec<Arc<dyn Conduit>> {
    let conduits = fixture.start(ranks);
    let started: Vec<Rank> = conduits.iter().map(|conduit| conduit.rank()).collect();
    assert_eq!(started, (0..ranks).map(Rank).collect::<Vec<_>>());
    conduits
}

/// Runs `work` on every rank of a new job, each in its thread.
pub(super) fn each(fixture: &dyn Fixture, ranks: u32, work: impl Fn(&TeamMember<'_>) + Sync) {
    let conduits = start(fixture, ranks);
    each_of(fixture, &conduits, work);
    for conduit in &conduits {
        conduit.leave(true);
    }
}

/// Runs `work` on the ranks of a job, each in its thread.
pub(super) fn each_of(
    fixture: &dyn Fixture,
    conduits: &[Arc<dyn Conduit>],
    work: impl Fn(&TeamMember<'_>) + Sync,
) {
    let team = RankTeam {
        size: conduits.len(),
        takes_turns: fixture.takes_turns(),
        ..RankTeam::default()
    };
    let (team, work) = (&team, &work);
    let causes: Vec<Box<dyn Any + Send>> = thread::scope(|scope| {
        let ranks: Vec<_> = conduits
            .iter()
            .map(|conduit| {
                scope.spawn(move || {
                    let _alarm = Alarm(&team.failed);
                    let conduit = &**conduit;
                    work(&TeamMember { conduit, team });
                })
            })
            .collect();
        ranks
            .into_iter()
            .filter_map(|rank| rank.join().err())
            .collect()
    });
    // The panic of the rank that failed, not of a rank that gave up in consequence.
    let cause = causes.into_iter().reduce(
        |first, next| {
            if first.is::<GaveUp>() { next } else { first }
        },
    );
    if let Some(cause) = cause {
        panic::resume_unwind(cause);
    }
}

/// The panic of a rank that gave up because another failed.
struct GaveUp;

/// Tells the other ranks if its thread panics.
pub(super) struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

#[derive(Default)]
pub(super) struct RankTeam {
    size: usize,
    takes_turns: bool,
    failed: AtomicBool,
    meeting: Mutex<Meeting>,
}

#[derive(Default)]
struct Meeting {
    held: u64,
    brought: Vec<(Rank, u64)>,
    /// The words of the last meeting, by rank.
    minutes: Vec<u64>,
}

/// A rank of the job under test.
#[derive(Clone, Copy)]
pub(super) struct TeamMember<'a> {
    pub(super) conduit: &'a dyn Conduit,
    team: &'a RankTeam,
}

impl<'a> TeamMember<'a> {
    pub(super) fn rank(&self) -> Rank {
        self.conduit.rank()
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.conduit.size()).map(Rank)
    }

    /// Returns the next rank, in a circle.
    pub(super) fn right(&self) -> Rank {
        Rank((self.rank().0 + 1) % self.conduit.size())
    }

    /// Returns the previous rank, in a circle.
    pub(super) fn left(&self) -> Rank {
        Rank((self.rank().0 + self.conduit.size() - 1) % self.conduit.size())
    }

    /// Returns an alarm for an additional thread of this rank, which tells the others if it panics.
    pub(super) fn alarm(&self) -> Alarm<'a> {
        Alarm(&self.team.failed)
    }

    /// Panics if another rank failed, or if this rank has waited for too long.
    pub(super) fn hope(&self, what: &str, since: Instant) {
        if self.team.failed.load(SeqCst) {
            panic::resume_unwind(Box::new(GaveUp));
        }
        assert!(
            since.elapsed() < GUARD,
            "rank {} waited {GUARD:?} for {what}",
            self.rank()
        );
    }

    /// Polls until `done`.
    pub(super) fn until<S: Sink>(
        &self,
        sink: &mut S,
        what: &str,
        mut done: impl FnMut(&mut S) -> bool,
    ) {
        let since = Instant::now();
        let mut backoff = Backoff::new(SPINS, YIELDS);
        while !done(sink) {
            self.hope(what, since);
            if self.conduit.poll(sink) == 0 {
                self.pause(&mut backoff);
            } else {
                backoff.renew();
            }
        }
    }

    /// Sends a message, and polls while there is no room.
    pub(super) fn send<S: Sink>(&self, sink: &mut S, peer: Rank, message: &Message<'_>) {
        self.until(sink, "room for a message", |_| {
            self.conduit
                .send(peer, message)
                .expect("a message within the limits")
                == Sent::Yes
        });
    }

    /// Waits for all ranks, and polls meanwhile.
    pub(super) fn meet<S: Sink>(&self, sink: &mut S) {
        self.gather(sink, 0);
    }

    /// Waits for all ranks, and polls meanwhile. Returns the words of all ranks.
    pub(super) fn gather<S: Sink>(&self, sink: &mut S, word: u64) -> Vec<u64> {
        let turn = self.bring(word);
        self.until(sink, "the other ranks", |_| self.meeting().held > turn);
        self.meeting().minutes.clone()
    }

    /// Waits for all ranks without polling.
    pub(super) fn meet_deaf(&self) {
        let turn = self.bring(0);
        let since = Instant::now();
        while self.meeting().held == turn {
            self.hope("the other ranks", since);
            self.conduit
                .wait(Sleeper::Nap, Some(Duration::from_millis(1)), &mut || {
                    self.meeting().held > turn
                });
        }
    }

    /// Waits, and fails if the wait was so long that a wake was lost.
    pub(super) fn sleep(&self, sleeper: Sleeper, mut ready: impl FnMut() -> bool) {
        let since = Instant::now();
        self.conduit.wait(sleeper, Some(GUARD / 2), &mut ready);
        assert!(
            since.elapsed() < GUARD / 2,
            "rank {}: a wake-up of the sleeper {sleeper:?} was lost",
            self.rank()
        );
    }

    /// Polls a while longer, for messages that must not arrive.
    pub(super) fn linger<S: Sink>(&self, sink: &mut S) {
        for _ in 0..50 {
            self.conduit.poll(sink);
            self.give_way(100);
        }
    }

    /// Lets other threads run, for a wait without polling.
    pub(super) fn breathe(&self) {
        self.give_way(16);
    }

    /// Lets other threads run, for longer the longer nothing happens.
    fn pause(&self, backoff: &mut Backoff) {
        if self.team.takes_turns {
            backoff.rest();
            return self.nap(backoff.failed_checks().min(100));
        }
        backoff.pause_or_sleep(Duration::from_micros(100));
    }

    /// Yields the core once. In virtual time, sleeps this long instead.
    fn give_way(&self, microseconds: u32) {
        if self.team.takes_turns {
            self.nap(microseconds);
        } else {
            thread::yield_now();
        }
    }

    fn nap(&self, microseconds: u32) {
        let time = Duration::from_micros(microseconds.into());
        self.conduit.wait(Sleeper::Nap, Some(time), &mut || false);
    }

    /// Returns true if the conduit reads one-sidedly.
    pub(super) fn reads(&self) -> bool {
        self.conduit.caps().reads
    }

    fn bring(&self, word: u64) -> u64 {
        let mut meeting = self.meeting();
        let turn = meeting.held;
        meeting.brought.push((self.rank(), word));
        if meeting.brought.len() == self.team.size {
            let mut brought = std::mem::take(&mut meeting.brought);
            brought.sort_unstable();
            meeting.minutes = brought.into_iter().map(|(_, word)| word).collect();
            meeting.held += 1;
        }
        turn
    }

    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.team.meeting.lock()
    }
}

/// Polls until `done`, and drops the deliveries.
pub(super) fn poll_until(member: &TeamMember<'_>, what: &str, mut done: impl FnMut() -> bool) {
    member.until(&mut Log::new(), what, |_| done());
}
