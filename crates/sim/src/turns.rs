//! Who runs: the threads of all ranks take turns, the one earliest in virtual time first.
//!
//! An *actor* is a thread as one rank knows it. One actor has the turn: it runs, inside the
//! conduit or outside, until it looks at what others did. Then everything earlier happens
//! first: events, and the turns of actors whose clocks show less.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread::{self, Thread},
};

use hydrant_conduit::{Sleeper, WakeWord};

use crate::time::Time;

pub(crate) type ActorId = usize;

/// Where a thread waits for its turn.
pub(crate) struct Seat {
    thread: Thread,
    go: AtomicBool,
    /// The thread's number in the system, to look whether it sleeps.
    pub(crate) tid: i32,
}

impl Seat {
    pub(crate) fn here() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            go: AtomicBool::new(false),
            tid: rustix::thread::gettid().as_raw_nonzero().get(),
        })
    }

    pub(crate) fn go(&self) {
        self.go.store(true, Release);
        self.thread.unpark();
    }

    pub(crate) fn wait(&self) {
        while !self.go.swap(false, Acquire) {
            thread::park();
        }
    }
}

/// What an actor that has not the turn is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Has the turn.
    Running,
    /// Goes on as soon as its clock is the earliest.
    Ready,
    /// Goes on when something happens.
    Waiting,
    /// Outside the conduit, and did not give the turn back by itself.
    Away,
    /// Its thread ended.
    Ended,
}

/// What an actor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// In [`wait`](hydrant_conduit::Sleep::wait).
    Sleep(Sleeper),
    /// For another thread of the rank to be done with polling.
    Polling,
    /// For the end of a computation, or something that may interrupt it.
    Computing,
    /// As [`Computing`](Self::Computing), or for room for messages that are to be sent meanwhile.
    ComputingForRoom,
}

/// What may end a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// A message.
    Message,
    /// An operation is locally or remotely complete.
    Complete,
    /// Own memory was written to.
    Memory,
    /// There may be room for a message.
    Room,
    /// Somebody rang.
    Ring,
    /// Somebody woke the rank, or a rank's standing changed.
    Wake,
    /// A thread of the rank is done with polling.
    Polled,
}

impl Wait {
    /// A text for people.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Wait::Polling => "it waits until another of its threads has handled what came",
            Wait::Computing | Wait::ComputingForRoom => "it computes",
            Wait::Sleep(Sleeper::Memory) => {
                "it waits for a word of its memory to change, as wait_until and the lock of a mutex do"
            }
            Wait::Sleep(Sleeper::Room) => {
                "it waits for room at a peer, as am_quiet does until all is handled"
            }
            Wait::Sleep(Sleeper::Application) => {
                "it waits for a message, an answer or a collective, as receive, call and barrier do"
            }
            Wait::Sleep(Sleeper::Service | Sleeper::Nap) => "it looks after messages",
        }
    }
}

impl News {
    fn ends(self, wait: Wait) -> bool {
        use Sleeper::{Application, Memory, Nap, Room, Service};
        match (wait, self) {
            (Wait::Polling, news) => news == News::Polled,
            (Wait::Computing, news) => matches!(news, News::Message | News::Complete),
            (Wait::ComputingForRoom, news) => {
                matches!(news, News::Message | News::Complete | News::Room)
            }
            (Wait::Sleep(_), News::Wake) => true,
            (Wait::Sleep(Nap), _) | (_, News::Polled) => false,
            (Wait::Sleep(_), News::Message | News::Complete) => true,
            (Wait::Sleep(sleeper), News::Memory) => sleeper == Memory,
            (Wait::Sleep(sleeper), News::Room) => sleeper == Room,
            (Wait::Sleep(Application | Memory | Room), News::Ring) => true,
            (Wait::Sleep(Service), News::Ring) => false,
        }
    }
}

pub(crate) struct Actor {
    pub(crate) rank: usize,
    pub(crate) seat: Arc<Seat>,
    pub(crate) clock: Time,
    pub(crate) phase: Phase,
    /// Its waits, one within the other, and whether news that ends it has come.
    pub(crate) waits: Vec<(Wait, bool)>,
    /// Tells a wait from later ones, for timers.
    pub(crate) number: u64,
    /// Nothing will ever end its wait.
    pub(crate) stranded: bool,
    /// Up to when it has seen what others did.
    pub(crate) looked: Time,
    /// Whether its thread knows that it has the turn.
    pub(crate) seated: bool,
}

/// All actors.
pub(crate) struct Turns {
    pub(crate) actors: Vec<Actor>,
    of_rank: Vec<Vec<ActorId>>,
    free: Vec<ActorId>,
    ready: BTreeSet<(Time, usize, ActorId)>,
    waiting: usize,
    pub(crate) running: Option<ActorId>,
    /// Whether the game is on: every rank has wanted a turn, or ended, or the watchdog found that
    /// nobody is about to.
    pub(crate) open: bool,
    /// Of each rank, whether it has.
    came: Vec<bool>,
    /// Counts up with every call, for the watchdog.
    pub(crate) calls: u64,
}

impl Turns {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            actors: Vec::new(),
            of_rank: vec![Vec::new(); ranks],
            free: Vec::new(),
            ready: BTreeSet::new(),
            waiting: 0,
            running: None,
            open: false,
            came: vec![false; ranks],
            calls: 0,
        }
    }

    /// A thread calls for a rank for the first time.
    pub(crate) fn join(&mut self, rank: usize, seat: Arc<Seat>, clock: Time) -> ActorId {
        let mut actor = Actor {
            rank,
            seat,
            clock,
            phase: Phase::Away,
            waits: Vec::new(),
            number: 0,
            stranded: false,
            looked: 0,
            seated: false,
        };
        let id = match self.free.pop() {
            Some(id) => {
                actor.number = self.actors[id].number + 1;
                self.actors[id] = actor;
                id
            }
            None => {
                self.actors.push(actor);
                self.actors.len() - 1
            }
        };
        self.of_rank[rank].push(id);
        self.calls += 1;
        id
    }

    /// A rank wants a turn, or ended: nobody has to wait for it before the game begins.
    pub(crate) fn came(&mut self, rank: usize) {
        self.came[rank] = true;
        self.open |= self.came.iter().all(|came| *came);
    }

    /// The ranks that did neither.
    pub(crate) fn missing(&self) -> impl Iterator<Item = usize> {
        (self.came.iter().enumerate())
            .filter(|(_, came)| !**came)
            .map(|(rank, _)| rank)
    }

    /// An actor's thread ended. The rank stays one that came.
    pub(crate) fn retire(&mut self, id: ActorId) {
        self.drop_turn(id, Phase::Ended);
        let rank = self.actors[id].rank;
        self.of_rank[rank].retain(|other| *other != id);
        self.actors[id].waits.clear();
        self.free.push(id);
    }

    /// Takes the turn, or the place in the queue for it, from an actor.
    pub(crate) fn drop_turn(&mut self, id: ActorId, phase: Phase) {
        let actor = &mut self.actors[id];
        match actor.phase {
            Phase::Running => self.running = None,
            Phase::Ready => {
                self.ready.remove(&(actor.clock, actor.rank, id));
            }
            Phase::Waiting => self.waiting -= 1,
            Phase::Away | Phase::Ended => {}
        }
        actor.phase = phase;
        self.waiting += usize::from(phase == Phase::Waiting);
    }

    /// From now on the actor waits for the turn, at this time.
    pub(crate) fn make_ready(&mut self, id: ActorId, clock: Time) {
        self.drop_turn(id, Phase::Ready);
        let actor = &mut self.actors[id];
        actor.clock = clock;
        let rank = actor.rank;
        self.ready.insert((clock, rank, id));
        if !self.open {
            // Only now, and not as soon as it has joined: the first turn is that of the earliest of
            // all ranks, so all of them are to be in the queue when it is given.
            self.came(rank);
        }
    }

    /// The time of the earliest actor that could run.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.ready.first().map(|(time, ..)| *time)
    }

    /// Whether an actor that could run comes before this one at its time.
    pub(crate) fn before(&self, id: ActorId) -> bool {
        let actor = &self.actors[id];
        (self.ready.first()).is_some_and(|first| *first < (actor.clock, actor.rank, id))
    }

    /// Gives the turn to the earliest.
    pub(crate) fn take_first(&mut self) -> Option<ActorId> {
        let (.., id) = self.ready.pop_first()?;
        let actor = &mut self.actors[id];
        actor.phase = Phase::Running;
        actor.seated = false;
        self.running = Some(id);
        Some(id)
    }

    pub(crate) fn anyone_waits(&self) -> bool {
        self.waiting > 0
    }

    pub(crate) fn anyone_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a thread is outside that might call. One that waits as another rank's cannot: so it
    /// is with the handles of several ranks in one thread, once their job is over.
    pub(crate) fn anyone_away(&self) -> bool {
        let actors = || (self.of_rank.iter().flatten()).map(|id| &self.actors[*id]);
        let waits = |seat: &Arc<Seat>| {
            actors().any(|actor| actor.phase == Phase::Waiting && Arc::ptr_eq(&actor.seat, seat))
        };
        actors().any(|actor| actor.phase == Phase::Away && !waits(&actor.seat))
    }

    /// The bits of a rank's wake word: who waits now, or is about to.
    pub(crate) fn sleepers(&self, rank: usize) -> u32 {
        let waits = (self.of_rank[rank].iter()).flat_map(|id| &self.actors[*id].waits);
        waits.fold(0, |bits, (wait, _)| {
            bits | match wait {
                Wait::Sleep(Sleeper::Memory) => WakeWord::APPLICATION | WakeWord::MEMORY,
                Wait::Sleep(Sleeper::Application | Sleeper::Room) => WakeWord::APPLICATION,
                _ => 0,
            }
        })
    }

    /// Nothing will ever end a wait: those who wait get the turn, and are to say so.
    pub(crate) fn strand(&mut self) {
        let all: Vec<ActorId> = (self.of_rank.iter().flatten().copied())
            .filter(|id| self.actors[*id].phase == Phase::Waiting)
            .collect();
        for id in all {
            self.actors[id].stranded = true;
            let clock = self.actors[id].clock;
            self.make_ready(id, clock);
        }
    }

    /// Tells the actors of a rank; those whose waits end are ready from `time` on.
    pub(crate) fn notify(&mut self, rank: usize, news: News, time: Time) {
        for n in 0..self.of_rank[rank].len() {
            let id = self.of_rank[rank][n];
            let actor = &mut self.actors[id];
            let mut ends = false;
            for (wait, ended) in &mut actor.waits {
                ends = news.ends(*wait);
                *ended |= ends;
            }
            if ends && actor.phase == Phase::Waiting {
                let clock = actor.clock.max(time);
                self.make_ready(id, clock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_turn_is_given_when_every_rank_is_in_the_queue_for_it() {
        let mut turns = Turns::new(2);
        let [first, second] = [0, 1].map(|rank| turns.join(rank, Seat::here(), 0));
        // The thread of the first lost its core on the way from joining to the queue.
        turns.make_ready(second, 0);
        assert!(
            !turns.open,
            "the second would begin, though the first is as early"
        );
        turns.make_ready(first, 0);
        assert!(turns.open);
        assert_eq!(turns.take_first(), Some(first));
    }

    #[test]
    fn nobody_waits_for_a_rank_that_ended_before_it_wanted_a_turn() {
        let mut turns = Turns::new(2);
        let second = turns.join(1, Seat::here(), 0);
        turns.make_ready(second, 0);
        turns.came(0);
        assert!(turns.open);
    }
}
